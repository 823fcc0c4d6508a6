"""Given-up messages over HTTP: groups, lists, single messages and traces for the dashboard, and the resend."""

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import azure.functions as func
import msgspec

from functions.answers import Remembered, answer, answered, failure
from shared.errors import BuswayError, ConfigError, Problem
from shared.printable import printable
from shared.tasks.files import Configuration

if TYPE_CHECKING:
    from shared.resend.board import Board
    from shared.resend.model import DeadLetterReport, ResendStep

_LOGGER = logging.getLogger("busway.dead_letters")

NAME = "busway-resend"
ROUTE = "resend"
RESEND, BODIES = "BUSWAY_DASHBOARD_RESEND", "BUSWAY_DASHBOARD_BODIES"

_ON, _OFF = "on", "off"
_REPORT_SECONDS = 15.0
_TRACED_HOURS = 4
_MOST_TRACED_HOURS = 24
_HOUR = "%Y-%m-%dT%H"
_NUMBER = re.compile(r"[0-9]{1,19}")
_LARGEST_NUMBER = 2**63 - 1
_COUNT = re.compile(r"[0-9]{1,3}")
_LONGEST_ID = 1024


class Choices(NamedTuple):
    """What the app settings allow on the dashboard."""

    may_resend: bool
    shows_bodies: bool


def choices(settings: Mapping[str, str]) -> Choices:
    """Return what the app settings allow; raises ConfigError."""
    problems = [
        Problem(name, f"is {settings[name]!r}, expected {_ON} or {_OFF}")
        for name in (RESEND, BODIES)
        if settings.get(name, "") not in ("", _ON, _OFF)
    ]
    if problems:
        raise ConfigError(problems)
    return Choices(settings.get(RESEND) == _ON, settings.get(BODIES) == _ON)


class DeadLetterPages:
    """Answers the requests of the dashboard that read."""

    def __init__(self, configuration: Configuration, settings: Mapping[str, str], chosen: Choices) -> None:
        """Read with the connections of the app."""
        self._configuration = configuration
        self._settings = settings
        self._chosen = chosen
        self._report = Remembered(self._read_report, _REPORT_SECONDS)

    @cached_property
    def board(self) -> "Board":
        """The entities of the tasks."""
        # Import lazily: most instances never show a dead letter.
        from shared.resend.board import Board  # noqa: PLC0415

        return Board(self._configuration, self._settings, shows_bodies=self._chosen.shows_bodies)

    async def groups(self, _: func.HttpRequest) -> func.HttpResponse:
        """Answer with the groups of all entities."""
        return answer(await self._report(""))

    async def letters(self, request: func.HttpRequest) -> func.HttpResponse:
        """Answer with the messages of a group."""
        from shared.resend.model import GroupChoice  # noqa: PLC0415 - as above

        parameters = request.params
        group = GroupChoice(parameters.get("reason", ""), parameters.get("source"), parameters.get("task"))
        return answer(await self.board.letters(parameters.get("entity", ""), group))

    async def letter(self, request: func.HttpRequest) -> func.HttpResponse:
        """Answer with one message."""
        number = request.params.get("number", "")
        if not _NUMBER.fullmatch(number) or int(number) > _LARGEST_NUMBER:
            return failure("number: expected a sequence number", 400)
        found = await self.board.letter(request.params.get("entity", ""), int(number))
        return failure(f"number: no message has {number}", 404) if found is None else answer(found)

    async def trace(self, request: func.HttpRequest) -> func.HttpResponse:
        """Answer with the hops of a message."""
        message_id = request.params.get("id", "")
        if not 0 < len(message_id) <= _LONGEST_ID:
            return failure(f"id: expected a message id of at most {_LONGEST_ID} characters", 400)
        hours = _hours(request.params.get("from"), request.params.get("hours", str(_TRACED_HOURS)))
        if hours is None:
            text = f"from: expected an hour like 2026-11-20T23, and hours: 1 to {_MOST_TRACED_HOURS}"
            return failure(text, 400)
        journal = self._configuration.journal
        if journal is None or journal.blob is None:
            return failure("the journal is not in blobs, which a trace needs", 404)
        # Import lazily: likewise.
        from shared.journal.hops import hops  # noqa: PLC0415
        from shared.journal.trace_document import trace, trace_document  # noqa: PLC0415
        from shared.stores.storage_account import open_container  # noqa: PLC0415

        blob = journal.blob
        container = open_container(blob.setting, self._settings, blob.container, errors_name="journal ")
        try:
            found = await trace(container, message_id, hours)
        finally:
            await container.close()
        return answer(trace_document(message_id, hours, hops(found.records), found.problems))

    def forget(self) -> None:
        """Read the groups again at the next request."""
        self._report.forget()

    async def _read_report(self, _: str) -> "DeadLetterReport":
        return await self.board.report(may_resend=self._chosen.may_resend)


def register_resend(
    app: func.FunctionApp, configuration: Configuration, settings: Mapping[str, str], pages: DeadLetterPages
) -> None:
    """Add the function that resends; it has a key of its own, so that a key to the dashboard only reads."""

    async def resend(request: func.HttpRequest) -> func.HttpResponse:
        from shared.resend.model import ResendOrder  # noqa: PLC0415 - as above
        from shared.resend.step import resend_step  # noqa: PLC0415 - likewise

        # A form of another site cannot send this type.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return failure("expected the content type application/json", 415)
        try:
            order = msgspec.json.decode(request.get_body(), type=ResendOrder)
        except msgspec.DecodeError as error:
            return failure(f"expected a resend order: {error}", 400)
        try:
            step = await resend_step(order, pages.board.place(order.entity), configuration, settings)
        except BuswayError as error:
            _LOGGER.warning("%s: not resent: %s", printable(order.entity), printable(str(error)))
            raise
        finally:
            pages.forget()
        _log(order.entity, step)
        return answer(step)

    async def serve(request: func.HttpRequest) -> func.HttpResponse:
        return await answered(resend, request)

    decorated = app.route(
        route=ROUTE, trigger_arg_name="request", methods=["POST"], auth_level=func.AuthLevel.FUNCTION
    )(serve)
    app.function_name(NAME)(decorated)


def _log(entity: str, step: "ResendStep") -> None:
    left = sum(each.messages for each in step.left)
    text = "%s: %d messages resent from the dashboard, %d removed that an earlier request had sent, %d left, %d waiting"
    _LOGGER.info(text, entity, step.sent, step.completed, left, step.waiting)


def _hours(first: str | None, count: str) -> list[str] | None:
    """Return *count* hours from *first* on, or the last ones; None if one of both is not what it should be."""
    if not (_COUNT.fullmatch(count) and 1 <= int(count) <= _MOST_TRACED_HOURS):
        return None
    begin = datetime.now(UTC) - timedelta(hours=int(count) - 1)
    try:
        if first is not None:
            begin = datetime.strptime(first, _HOUR).replace(tzinfo=UTC)
    except ValueError:
        return None
    return [f"{begin + timedelta(hours=number):{_HOUR}}" for number in range(int(count))]
