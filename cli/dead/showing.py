"""One message in full: why it was given up, its fields and properties with their types, its body."""

from collections.abc import Iterator

from cli.dead.ages import age_text
from cli.dry_run.changes import BODY, view
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.printable import printable
from shared.resend.letters import Letter
from shared.resend.places import Place


def lines(letter: Letter, place: Place, age: float | None, *, with_body: bool) -> Iterator[str]:
    """Yield the message as text; its body is only for a person's screen."""
    since = "" if age is None else f", {age_text(age)} ago"
    yield f"{place}, sequence number {letter.number}, enqueued {letter.enqueued}{since}"
    yield f"  reason: {printable(letter.reason)}"
    if letter.description is not None:
        yield f"  description: {printable(letter.description)}"
    if letter.source is not None:
        yield f"  from: {printable('/'.join(letter.source))}" + (
            "" if letter.task is None else f", rejected by task {printable(letter.task)}"
        )
    try:
        shown = view(letter.unwrapped() if letter.is_wrapped else _of(letter))
    except MessageRejected as error:
        yield f"  {len(letter.content)} bytes that cannot be read: {printable(error.description)}"
        return
    if letter.is_wrapped:
        yield "  the message is the body of this one; it is shown as the task received it"
    body = shown.pop(BODY)
    yield from (f"  {name}: {value}" for name, value in shown.items())
    if with_body:
        yield "  body:"
        yield from (f"    {line}" for line in body.split("\n"))
    else:
        yield "  body: not shown"


def _of(letter: Letter) -> Message:
    if letter.message is None:
        raise MessageRejected("MalformedMessage", "its sections are not AMQP")
    return letter.message
