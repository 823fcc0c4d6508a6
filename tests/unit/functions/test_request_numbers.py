"""Numbers in the addresses of the dashboard: too long ones are refused, and nothing fails."""

import asyncio
from pathlib import Path

import azure.functions as func
import pytest

from functions.status import NAME, register_status
from shared.tasks.files import load

CONFIG = load(Path(__file__).parents[3] / "config/examples/all-active")
SETTINGS = {
    name: f"Endpoint=sb://{name.lower()}.example/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    for name in ("WEST", "EAST")
}


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 19, str(2**63), "-1", "", "\u0663", "1e3", "1\n"])
@pytest.mark.parametrize(
    ("what", "name", "others"),
    [("history", "hours", {}), ("trace", "hours", {"id": "m"}), ("letter", "number", {"entity": "west/orders"})],
)
def test_a_number_that_is_too_long_is_a_bad_request(what: str, name: str, others: dict[str, str], number: str) -> None:
    app = func.FunctionApp()
    register_status(app, CONFIG, SETTINGS)
    serve = next(
        function for function in app.get_functions() if function.get_function_name() == NAME
    ).get_user_function()
    request = func.HttpRequest(
        "GET", "/api/status", params={name: number, **others}, route_params={"what": what}, body=b""
    )
    answer = asyncio.run(serve(request))
    assert (answer.status_code, name.encode() in answer.get_body()) == (400, True)
