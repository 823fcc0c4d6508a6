"""What a trial has come to, for a person and for a machine."""

from collections import Counter
from collections.abc import Iterator, Sequence

from cli.trial.changes import body_lines, changed, difference, printable, view
from cli.trial.line import Step, Trial
from shared.errors import MessageRejected
from shared.message.message import Message, Origin
from shared.protocols import Outcome, Record

_STEPS = {
    "restore": "restore (what a hop over a hub has kept in properties)",
    "stamps": "stamps (where it has been)",
    "ttl": "ttl",
    "routes": "routes",
    "fit": "fit (what the target's kind of namespace needs)",
}


def lines(trial: Trial, number: int, count: int, *, with_body: bool = False) -> Iterator[str]:
    """Yield what would become of one message of *count*, as a person reads it; *with_body* as it came, too."""
    yield f"message {number} of {count}: {_named(trial)}"
    if with_body and trial.arrival is not None:
        yield from (f"    {line}" for line in body_lines(Message.received(trial.content, trial.arrival.origin)))
    for step, which in zip(trial.steps, _which(trial.steps), strict=True):
        yield from _step_lines(step, which)
    if not trial.ends:
        yield "  → passed over: the task does not take from this partition"
    told = "\n".join(step.told for step in trial.steps if step.told is not None)
    for end in trial.ends:
        # The step that has spoken against it has just said so.
        reason = "" if end.reason is None or end.reason in told else f": {printable(end.reason)}"
        yield f"  → {_end(end)}{reason}"


def _which(steps: Sequence[Step]) -> Iterator[str]:
    """Yield for each step which of several parts of the message it was given."""
    times, seen = Counter(step.name for step in steps), Counter[str]()
    for step in steps:
        seen[step.name] += 1
        yield "" if times[step.name] == 1 else f", {seen[step.name]} of {times[step.name]}"


def _step_lines(step: Step, which: str) -> Iterator[str]:
    before = view(step.before)
    told = [line for each in step.after for line in difference(before, view(each))]
    if not told and step.told is None and len(step.after) == 1:
        return
    heading = f"  {_STEPS.get(step.name, step.name)}{which}"
    if step.told is not None:
        heading += f": {printable(step.told)}"
    elif len(step.after) > 1:
        heading += f": {len(step.after)} messages"
    yield heading
    for part, each in enumerate(step.after):
        if len(step.after) > 1:
            yield f"    {part}:"
        yield from (f"    {line}" for line in difference(before, view(each)))


def _named(trial: Trial) -> str:
    if trial.arrival is None:
        return f"{len(trial.content)} bytes that are no AMQP message"
    message = Message.received(trial.content, trial.arrival.origin)
    said = [f"sequence number {trial.arrival.sequence_number}"]
    try:
        identity = message.message_id
        if identity is not None:
            said.insert(0, printable(str(identity.payload)))
        if message.session_id is not None:
            said.append(f"session {printable(message.session_id)}")
    except MessageRejected:
        said.append("properties that cannot be read")
    if trial.partition is not None:
        said.append(f"partition {trial.partition}")
    return ", ".join(said)


def _end(end: Record) -> str:
    part = "" if end.part is None else f"part {end.part}: "
    match end.outcome:
        case Outcome.SENT:
            return f"{part}would be sent to {end.target}"
        case Outcome.REJECTED:
            return f"{part}would be rejected ({end.stage}) and set aside in {end.target}"
        case Outcome.RETRY:
            return f"{part}would stay at the source"
    return f"{part}would be withheld, {end.outcome}"


def summary(trials: Sequence[Trial]) -> str:
    """Return in one line how many would come to which end."""
    counts = Counter(str(end.outcome) for trial in trials for end in trial.ends)
    passed = sum(not trial.ends for trial in trials)
    told = [f"{count} {outcome}" for outcome, count in counts.items()] + ([f"{passed} passed over"] if passed else [])
    messages = "1 message" if len(trials) == 1 else f"{len(trials)} messages"
    return f"{messages} tried, and left alone; would be: {', '.join(told)}"


def document(trial: Trial, task: str) -> dict[str, object]:
    """Return what would become of one message, as JSON."""
    arrival = trial.arrival
    return {
        "task": task,
        "source": _source(arrival.origin) if arrival is not None else None,
        "partition": trial.partition,
        "sequence_number": None if arrival is None else arrival.sequence_number,
        "message": None if arrival is None else view(Message.received(trial.content, arrival.origin)),
        "steps": [
            {
                "step": step.name,
                "told": step.told,
                "messages": [
                    {
                        name: {"before": was, "after": now}
                        for name, (was, now) in changed(view(step.before), view(each)).items()
                    }
                    for each in step.after
                ],
            }
            for step in trial.steps
        ],
        "ends": [
            {
                "outcome": str(end.outcome),
                "target": end.target,
                "reason": end.reason,
                "stage": None if end.stage is None else str(end.stage),
                "part": end.part,
            }
            for end in trial.ends
        ],
    }


def _source(origin: Origin) -> str:
    return f"{origin.site}/{origin.entity}"
