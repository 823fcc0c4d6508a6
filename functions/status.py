"""The status over HTTP: the dashboard, and the JSON that it and other programs read."""

import re
from collections.abc import Mapping

import azure.functions as func

from functions.answers import Remembered, Serve, answer, answered, failure, response
from functions.dashboard import page
from functions.dead_letters import DeadLetterPages, choices, register_resend
from shared.assembly.status import StatusReader
from shared.status.model import History, Status
from shared.tasks.files import Configuration

NAME = "busway-status"
ROUTE = "status/{what?}"

_STATUS_SECONDS = 5.0
_HISTORY_SECONDS = 30.0
_HISTORY_HOURS = 3
_LONGEST_HISTORY_HOURS = 24
_HOURS = re.compile(r"[0-9]{1,3}")


def register_status(app: func.FunctionApp, configuration: Configuration, settings: Mapping[str, str]) -> None:
    """
    Add the function that serves the dashboard at `status`, and below it what it reads; raises ConfigError.

    One function, so that one function key opens the page and what it reads. The resend is another one, added only
    where an app setting allows it.
    """
    reader = StatusReader(configuration, settings)
    chosen = choices(settings)
    pages = DeadLetterPages(configuration, settings, chosen)

    async def read(_: str) -> Status:
        return await reader.read()

    async def read_history(hours: int) -> History:
        return await reader.history(hours=hours)

    status, history = Remembered(read, _STATUS_SECONDS), Remembered(read_history, _HISTORY_SECONDS)

    async def show_page(_: func.HttpRequest) -> func.HttpResponse:
        found = page()
        return response(found.content, "text/html", headers={"Content-Security-Policy": found.policy})

    async def show_status(_: func.HttpRequest) -> func.HttpResponse:
        return answer(await status(""))

    async def show_history(request: func.HttpRequest) -> func.HttpResponse:
        hours = request.params.get("hours", str(_HISTORY_HOURS))
        if not (_HOURS.fullmatch(hours) and 1 <= int(hours) <= _LONGEST_HISTORY_HOURS):
            return failure(f"hours: expected a whole number from 1 to {_LONGEST_HISTORY_HOURS}", 400)
        return answer(await history(int(hours)))

    answers: Mapping[str, Serve] = {
        "": show_page,
        "json": show_status,
        "history": show_history,
        "dead": pages.groups,
        "letters": pages.letters,
        "letter": pages.letter,
        "trace": pages.trace,
    }

    async def serve(request: func.HttpRequest) -> func.HttpResponse:
        found = answers.get((request.route_params.get("what") or "").lower())
        if found is None:
            return failure(f"unknown: expected {', '.join(filter(None, answers))}", 404)
        return await answered(found, request)

    decorated = app.route(route=ROUTE, trigger_arg_name="request", methods=["GET"], auth_level=func.AuthLevel.FUNCTION)(
        serve
    )
    app.function_name(NAME)(decorated)
    if chosen.may_resend:
        register_resend(app, configuration, settings, pages)
