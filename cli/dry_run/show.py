"""The result of a dry run, as text and as JSON: what each step changes."""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cli.dry_run.line import Result
from cli.dry_run.observer import Step
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.view import body_lines, fields
from shared.printable import printable
from shared.protocols import Outcome

BODY = "body"

_CONTEXT_LINES = 3

type View = Mapping[str, str]
"""The fields and properties of a message by name, and the lines of its body."""


def view(message: Message) -> dict[str, str]:
    """Return all fields, properties and annotations of *message*, and its body."""
    return {field.name: field.text for field in fields(message)} | {BODY: "\n".join(body_lines(message))}


def changes(before: View, after: View) -> dict[str, tuple[str | None, str | None]]:
    """Return the values that differ, by name: before and after, None if missing."""
    names = sorted({**before, **after}, key=lambda name: name == BODY)
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def diff_lines(before: View, after: View) -> Iterator[str]:
    """Yield the lines of a difference: `-` before, `+` after; changes of the body with the lines around them."""
    for name, (was, now) in changes(before, after).items():
        if name == BODY:
            yield "  body:"
            texts = ((was or "").split("\n"), (now or "").split("\n"))
            for line in difflib.unified_diff(*texts, lineterm="", n=_CONTEXT_LINES):
                if line.startswith("@@"):
                    yield "    …"
                elif line not in ("--- ", "+++ "):
                    yield f"{line[0]}   {line[1:]}"
            continue
        if was is not None:
            yield f"- {name}: {was}"
        if now is not None:
            yield f"+ {name}: {now}"


_STEPS = {
    "restore": "restore (broker properties that an event hub carried as application properties)",
    "stamps": "stamps (where the message has been)",
    "ttl": "ttl",
    "routes": "routes",
    "fit": "fit (changes that the target's kind of namespace needs)",
}


def lines(result: Result, number: int, count: int, *, with_body: bool = False) -> Iterator[str]:
    """Yield the lines about message *number* of *count*; *with_body* adds the body as it was received."""
    yield f"message {number} of {count}: {_name(result)}"
    if with_body and result.arrival is not None:
        yield from (f"    {line}" for line in body_lines(Message.received(result.content, result.arrival.origin)))
    times, seen = Counter(step.name for step in result.steps), Counter[str]()
    for step in result.steps:
        seen[step.name] += 1  # of several parts of the message
        which = "" if times[step.name] == 1 else f", {seen[step.name]} of {times[step.name]}"
        yield from _step_lines(step, which)
    if not result.ends:
        yield "  → skipped: the task does not read this partition"
    shown = "\n".join(step.text for step in result.steps if step.text is not None)
    for end in result.ends:
        # Do not repeat a reason that a step has shown.
        reason = "" if end.reason is None or end.reason in shown else f": {printable(end.reason)}"
        part = "" if end.part is None else f"part {end.part}: "
        what = {
            Outcome.SENT: f"would be sent to {end.target}",
            Outcome.REJECTED: f"would be rejected ({end.stage}) and sent to {end.target}",
            Outcome.RETRY: "would stay at the source",
        }.get(end.outcome, f"would be withheld, {end.outcome}")
        yield f"  → {part}{what}{reason}"


def _step_lines(step: Step, which: str) -> Iterator[str]:
    before = view(step.before)
    changed = any(any(diff_lines(before, view(message))) for message in step.after)
    if not changed and step.text is None and len(step.after) == 1:
        return
    heading = f"  {_STEPS.get(step.name, step.name)}{which}"
    if step.text is not None:
        heading += f": {printable(step.text)}"
    elif len(step.after) > 1:
        heading += f": {len(step.after)} messages"
    yield heading
    for part, message in enumerate(step.after):
        if len(step.after) > 1:
            yield f"    {part}:"
        yield from (f"    {line}" for line in diff_lines(before, view(message)))


def _name(result: Result) -> str:
    if result.arrival is None:
        return f"{len(result.content)} bytes that are not an AMQP message"
    message = Message.received(result.content, result.arrival.origin)
    facts = [f"sequence number {result.arrival.sequence_number}"]
    try:
        identity = message.message_id
        if identity is not None:
            facts.insert(0, printable(str(identity.payload)))
        if message.session_id is not None:
            facts.append(f"session {printable(message.session_id)}")
    except MessageRejected:
        facts.append("properties that cannot be read")
    if result.partition is not None:
        facts.append(f"partition {result.partition}")
    return ", ".join(facts)


def summary(results: Sequence[Result]) -> str:
    """Return one line with the number of messages for each outcome."""
    counts = Counter(str(end.outcome) for result in results for end in result.ends)
    skipped = sum(not result.ends for result in results)
    ends = [f"{count} {outcome}" for outcome, count in counts.items()] + ([f"{skipped} skipped"] if skipped else [])
    messages = "1 message" if len(results) == 1 else f"{len(results)} messages"
    return f"{messages} tried, nothing was changed; would be: {', '.join(ends)}"


def document(result: Result, task: str) -> dict[str, object]:
    """Return the result for one message as JSON."""
    arrival = result.arrival
    return {
        "task": task,
        "source": f"{arrival.origin.site}/{arrival.origin.entity}" if arrival is not None else None,
        "partition": result.partition,
        "sequence_number": None if arrival is None else arrival.sequence_number,
        "message": None if arrival is None else view(Message.received(result.content, arrival.origin)),
        "steps": [
            {
                "step": step.name,
                "text": step.text,
                "messages": [
                    {
                        name: {"before": was, "after": now}
                        for name, (was, now) in changes(view(step.before), view(message)).items()
                    }
                    for message in step.after
                ],
            }
            for step in result.steps
        ],
        "ends": [
            {
                "outcome": str(end.outcome),
                "target": end.target,
                "reason": end.reason,
                "stage": None if end.stage is None else str(end.stage),
                "part": end.part,
            }
            for end in result.ends
        ],
    }
