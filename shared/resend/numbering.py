"""
The sequence numbers of a queue or topic, which show that nothing has left it, and that a message never entered it.

A message that is scheduled gets a number as one that is sent would. So a run schedules one for a time that never comes,
before its first send: its mark. A later run does it again, and cancels that one at once. If the mark is still there,
and every number since is that of a message that is still there, nothing was taken: what is not there was never sent.
No producer can forge that, and an entity that was deleted and created again has no mark. A mark is cancelled when
everything is clear that its run has sent. One that no peek shows, as in a topic, is cancelled at once.

Numbers have no gaps on the service (Azure/azure-service-bus-dotnet 349); one that is missing for another reason leaves
the question open. The number is in the ledger before a message is cancelled: until then a peek shows it.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise

from azure.core.exceptions import AzureError

from shared.amqp.sections import Sections
from shared.amqp.values import string, timestamp
from shared.ends.service_bus.management import ManagementConnection
from shared.ends.service_bus.send_errors import translated
from shared.errors import BuswayError, ConfigError, TargetRefused, TargetUnavailable
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.protocols import Outgoing
from shared.resend.ledger import OPEN, Ledger
from shared.resend.letters import Letter
from shared.resend.peek import keys_in, partition_of
from shared.resend.places import Place, Scene, destination_of, place_of
from shared.resend.receiver import management_of, unavailable

PROBE = "repl-number-probe"
"""The property of a message that is scheduled only for its number; signed."""

_NEVER = round(datetime(9999, 1, 1, tzinfo=UTC).timestamp() * 1000)
SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
_SECONDS = 10.0
_LONGEST_ID = 128


async def next_number(
    entity: Place,
    settings: Mapping[str, str],
    session_id: str | None,
    to: str,
    ledger: Ledger,
    *,
    is_mark: bool = False,
) -> int | None:
    """
    Return the number that a message sent to *entity* now would get, and note it for *to*; None if it has no number.

    With *is_mark* the message that has got it stays. An entity that forwards takes no such request, and the partitions
    of one number for themselves. Raises TargetUnavailable and TargetRefused if the entity does not answer, or refuses
    every request.
    """
    identity = ledger.signed(f"{to.lower()} {ledger.run}/{next(ledger.attempts)}")
    message = Message(Sections(), Arrival(entity.origin))
    message.message_id = string(identity[-_LONGEST_ID:])
    message.session_id = session_id
    message.set_properties({PROBE: string(identity)})
    message.set_annotations({SCHEDULED_TIME: timestamp(_NEVER)})
    outgoing = Outgoing(message.encode(), identity[-_LONGEST_ID:], session_id, None)
    try:
        async with management_of(entity, settings) as management:
            (number,) = await management.schedule([outgoing], _SECONDS)
            is_known = partition_of(number) == 0
            if is_known:
                await ledger.note_number(to, number, is_mark=is_mark)
            if not (is_known and is_mark and await _is_shown(management, entity, number, ledger.run, ledger)):
                await management.cancel_scheduled([number], _SECONDS)
    except (AzureError, OSError) as error:
        failure = translated(str(entity), error)
        if isinstance(failure, TargetUnavailable | TargetRefused):
            raise failure from error
        return None
    return number if is_known else None


def run_of_probe(letter: Letter, ledger: Ledger) -> int | None:
    """Return the run with *ledger* that has scheduled a message for its number, None if it is another message."""
    stamp = letter.text(PROBE)
    text = None if stamp is None else ledger.text_of(stamp)
    return None if text is None else int(text.rpartition(" ")[2].partition("/")[0])


async def clear_probes(
    entity: Place, settings: Mapping[str, str], probes: Mapping[int, int], to: str, ledger: Ledger
) -> None:
    """Note the numbers of *probes* that were found, with their runs, and cancel those that are no marks."""
    marks = ledger.marks_of(to)
    for number, run in probes.items():
        if marks.get(run) != number:  # the run was killed, or its ledger did not answer
            await ledger.note_number(to, number)
            with suppress(BuswayError):
                async with management_of(entity, settings) as management:
                    await _cancel(management, entity, number, run, ledger)


async def cancel_marks(scene: Scene, ledger: Ledger) -> None:
    """
    Cancel the marks of all runs that have left nothing open at the source; others are for the next run.

    Raises what the ledger raises, whose lines have to be certain: one that is not known may be of an open message.
    """
    if not (ledger.is_certain and any(ledger.marks.values())):
        return
    # A connection to the place may be gone from the configuration.
    with suppress(ConfigError, TargetUnavailable, TargetRefused):
        opened = {key: entry for key, entry in ledger.entries.items() if entry.state in OPEN}
        there = await keys_in(scene.place, scene.settings) if opened else set[str]()
        needed = {(entry.to, entry.run) for key, entry in opened.items() if key in there}
        for to, marks in ledger.marks.items():
            entity = place_of(destination_of(to, scene.configuration), scene.configuration)
            done = {run: number for run, number in marks.items() if (to, run) not in needed}
            if done and entity is not None:
                async with management_of(entity, scene.settings) as management:
                    for run, number in done.items():
                        await _cancel(management, entity, number, run, ledger)
                        await ledger.note_cancelled(to, run)


async def _cancel(management: ManagementConnection, entity: Place, number: int, run: int, ledger: Ledger) -> None:
    """Cancel the probe of a *run*, unless another message has its number, in an entity that was created again."""
    with unavailable(entity):
        if await _is_shown(management, entity, number, run, ledger):
            await management.cancel_scheduled([number], _SECONDS)


async def _is_shown(management: ManagementConnection, entity: Place, number: int, run: int, ledger: Ledger) -> bool:
    letters = [Letter.at(entity, content) for content in await management.peek(number, 1, _SECONDS)]
    return any(letter.number == number and run_of_probe(letter, ledger) == run for letter in letters)


def is_complete(start: int, end: int, known: Collection[int]) -> bool:
    """Return whether *known* has every number between *start* and *end*."""
    return start < end and sum(start < number < end for number in set(known)) == end - start - 1


def is_increasing(numbers: Sequence[int]) -> bool:
    """Return whether each of *numbers* is larger than the one before it."""
    return all(first < second for first, second in pairwise(numbers))
