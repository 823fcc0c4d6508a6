"""One history as it is printed: its seed, the fewest faults that make it fail, and the path of one message."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import timedelta

from tests.simulation.history import History, Plan, run, shortest
from tests.simulation.judgement import disagreements, judged
from tests.simulation.oracles import lines_of, stored
from tests.simulation.resend import ResendWorld
from tests.simulation.site import BEGIN
from tests.simulation.world import World

_NAME = re.compile(r"\b\w+\.(?:west|east|north)\.\d+")
_MOST_RECORDS = 30


def report_of(plan: Plan) -> Iterator[str]:
    """Yield the lines of the story of *plan*."""
    failed = bool(_objections(run(plan, plan.seed)))
    if failed and plan.most_faults is None:
        plan = shortest(plan, lambda history: bool(_objections(history)))
    history = run(plan, plan.seed, keeps_world=True)
    assert history.world is not None
    limit = "" if plan.most_faults is None else f", the first {plan.most_faults} faults"
    yield f"seed {plan.seed}: {history.topology}{limit}; digest {digest(history.world)}"
    yield f"{history.messages} messages, {history.steps} steps, {timedelta(seconds=round(history.seconds))} virtual"
    found = _objections(history)
    yield from (f"  violation: {each}" for each in found)
    if not found:
        yield "  no violation"
    yield "faults:"
    yield from (f"  {at:10.3f}  {what}" for at, what in history.log)
    names = [name for each in found for name in _NAME.findall(each)] or [history.world.accepted[0].name]
    yield f"path of {names[0]}:"
    if isinstance(history.world, ResendWorld):
        yield from _ledger_path(history.world, names[0])
    else:
        yield from _path(history.world, names[0])


def digest(world: World | ResendWorld) -> str:
    """Return a digest of all records and of what lies at the targets."""
    if isinstance(world, ResendWorld):
        there = [world.copies(*place) for place in world.backlog.copies]
        return hashlib.sha256(f"{world.lines.text}{there}{world.at_source()}".encode()).hexdigest()[:16]
    whole = hashlib.sha256(repr(lines_of(world)).encode())
    for site, path in world.topology.places:
        for arrival in stored(world, site, path):
            whole.update(arrival.content)
    return whole.hexdigest()[:16]


def _objections(history: History) -> list[str]:
    """Return what the oracles and the judgement have against a history."""
    if history.objections or history.evidence is None:
        return list(history.objections)
    proof = history.evidence
    return list(disagreements(proof, judged([proof])[proof.number]))


def _path(world: World, name: str) -> Iterator[str]:
    """Yield the records of a message, and where its copies lie."""
    whole = name.partition("/")[0]
    numbers: dict[tuple[object, ...], None] = {}
    shown = 0
    for line in lines_of(world):
        key = line["task"], line.get("src_part"), line.get("src_seq")
        if line.get("message_id") == whole and line["role"] == "source":
            numbers[key] = None
        if key in numbers and (shown := shown + 1) <= _MOST_RECORDS:
            at = float(str(line["journal_time"])) / 1e6 - BEGIN.timestamp()
            again = ", remembered" if line.get("remembered") else ""
            target = f" {line['target']}" if "target" in line else ""
            yield f"  {at:10.3f}  {line['task']} on {line['instance']}: {line['outcome']}{target}{again}"
    for site, path in world.topology.places:
        count = sum(arrival.name.partition("/")[0] == whole for arrival in stored(world, site, path))
        if count:
            yield f"  at {site}/{path}: {count}"


def _ledger_path(world: ResendWorld, name: str) -> Iterator[str]:
    """Yield the lines of the ledger that concern a message, what the runs reported, and where it lies."""
    key = next(key for key, each in world.names.items() if each == name)
    for text in world.lines.text.splitlines():
        line = {}
        with contextlib.suppress(ValueError):  # a part of a line
            line = json.loads(text)
        at = float(line.get("at", 0.0)) - BEGIN.timestamp()
        if "ledger" in line:
            yield f"  {at:10.3f}  run {line['run']} begins"
        elif key in line.get("keys", ()):
            yield f"  {at:10.3f}  {line['state']} {line['to']}, one of {len(line['keys'])}"
        elif "number" in line:
            yield f"              the next number of {line['place']} is {line['number']}"
    for report in world.reports:
        result = report.result
        counts = f"{result.sent} sent, {result.sent_before} before, {result.completed} completed, {result.gone} gone"
        reason = result.left.get(key)
        left = "" if reason is None else f"; it is left: {reason}"
        error = "" if report.error is None else f"; {report.error}"
        yield f"  {report.began:10.3f}  of {len(report.wanted)}: {counts}, {len(result.left)} left{left}{error}"
    for place in world.backlog.copies:
        copies = [copy for copy in world.copies(*place) if copy.name == name]
        taken = [copy for copy in world.consumed[place] if copy.name == name]
        if copies:
            yield f"  at {'/'.join(place)}: {len(copies)}, of which {len(taken)} were taken from there"
    if name in world.at_source():
        yield "  at its source"
