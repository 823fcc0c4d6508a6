"""
The sequence numbers of a queue or topic, which show that nothing has left it, and that a message never entered it.

A message that is scheduled gets a number as one that is sent would. So a run schedules one for a time that never comes,
before its first send, and cancels it; a later run does it again. If every number between the two is that of a message
that is still there, nothing was taken: what is not there was never sent. No producer can forge that.

Numbers have no gaps on the service (Azure/azure-service-bus-dotnet 349); one that is missing for another reason leaves
the question open. The number is in the ledger before the message is cancelled: until then a peek shows it.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from azure.core.exceptions import AzureError

from shared.amqp.sections import Sections
from shared.amqp.values import string, timestamp
from shared.ends.service_bus.send_errors import translated
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.protocols import Outgoing
from shared.resend.ledger import Ledger
from shared.resend.letters import Letter
from shared.resend.places import Place
from shared.resend.receiver import management_of, unavailable

PROBE = "repl-number-probe"
"""The property of a message that is scheduled only for its number; signed."""

_NEVER = round(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1000)
_SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
_SECONDS = 10.0
_LONGEST_ID = 128
# Above are the numbers of a partition, of which there are several.
_UNPARTITIONED = 2**48


async def next_number(
    entity: Place, settings: Mapping[str, str], session_id: str | None, to: str, ledger: Ledger
) -> int | None:
    """
    Return the number that a message sent to *entity* now would get, and note it for *to*; None if it has no number.

    An entity that forwards takes no such request, and the partitions of one number for themselves. Raises
    TargetUnavailable and TargetRefused if the entity does not answer, or refuses every request.
    """
    identity = ledger.signed(f"{to.lower()} {ledger.run}/{len(ledger.numbers_of(to))}")
    message = Message(Sections(), Arrival(entity.origin))
    message.message_id = string(identity[-_LONGEST_ID:])
    message.session_id = session_id
    message.set_properties({PROBE: string(identity)})
    message.set_annotations({_SCHEDULED_TIME: timestamp(_NEVER)})
    outgoing = Outgoing(message.encode(), identity[-_LONGEST_ID:], session_id, None)
    try:
        async with management_of(entity, settings) as management:
            for run, before in ledger.numbers_of(to)[-1:]:
                if run is not None and run < ledger.run:  # killed perhaps before it was cancelled
                    with suppress(BuswayError), unavailable(entity):
                        await management.cancel_scheduled([before], _SECONDS)
            (number,) = await management.schedule([outgoing], _SECONDS)
            is_known = number < _UNPARTITIONED
            if is_known:
                await ledger.note_number(to, number)
            await management.cancel_scheduled([number], _SECONDS)
    except (AzureError, OSError) as error:
        failure = translated(str(entity), error)
        if isinstance(failure, TargetUnavailable | TargetRefused):
            raise failure from error
        return None
    return number if is_known else None


def is_probe(letter: Letter, ledger: Ledger) -> bool:
    """Return whether a run with *ledger* has scheduled a message for its number, and was killed before it ended."""
    stamp = letter.text(PROBE)
    return stamp is not None and ledger.text_of(stamp) is not None


async def cancel_probe(entity: Place, settings: Mapping[str, str], letter: Letter, to: str, ledger: Ledger) -> None:
    """Cancel a message that is scheduled for its number; its number stays known."""
    if letter.number is not None:
        await ledger.note_number(to, letter.number, is_late=True)
        with suppress(BuswayError):
            async with management_of(entity, settings) as management:
                with unavailable(entity):
                    await management.cancel_scheduled([letter.number], _SECONDS)


def is_complete(start: int, end: int, known: Collection[int]) -> bool:
    """Return whether *known* has every number between *start* and *end*."""
    return start < end and sum(start < number < end for number in set(known)) == end - start - 1


def first_numbers(noted: Sequence[tuple[int | None, int]], there: Collection[int]) -> dict[int, int]:
    """
    Return the first number of each run, of those *noted* in an entity where messages with the numbers *there* are.

    The numbers of an entity that was deleted and created again begin again at 1: those that were noted before show
    nothing. No message has a number that a run has noted for itself, except in another entity of the same name.
    """
    found: dict[int, int] = {}
    begun = set[int]()
    last = 0
    for run, number in noted:
        if run is None:
            continue
        if number <= last or number in there:
            found.clear()
        elif run not in begun:
            found[run] = number
        begun.add(run)
        last = number
    return found
