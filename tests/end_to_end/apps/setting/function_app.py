"""A user's own function, which sets its output binding to what the body of a message asks for."""

import azure.functions as func

from functions.raw_message import RawMessage
from shared.amqp import sections

app = func.FunctionApp()

FORMS: dict[str, str | bytes] = {
    "object": '{"a": 1, "a": 2}',
    "list": '["x", {"b": 1}]',
    "bytes": b"\x00\xff",
    "text": "x",
}


@app.service_bus_queue_trigger(arg_name="message", queue_name="orders", connection="WEST")
@app.service_bus_queue_output(arg_name="output", queue_name="notes", connection="EAST")
def own(message: RawMessage, output: func.Out[str]) -> None:
    ((_, body),) = sections.body_parts(sections.split(message.content).body)
    assert isinstance(body.payload, bytes)
    form = FORMS[body.payload.decode()]
    output.set(form)  # type: ignore[arg-type] # bytes too, as users do
