"""The conclusion of a run: its exit code and its verdict in one sentence."""

from collections.abc import Sequence

from busway_reconcile.journal.problems import EMPTY, Problem
from busway_reconcile.judge.verdicts import FINDINGS, UNDECIDED
from busway_reconcile.summary import CLEAN, COULD_NOT_DECIDE, FOUND, TaskSummary, add_counts


def conclude(tasks: Sequence[TaskSummary], problems: Sequence[Problem]) -> tuple[int, str, str]:
    """Return the exit code, the verdict in a few words, and the verdict in a sentence."""
    verdicts = add_counts(task.verdicts for task in tasks)
    found = {kind: verdicts[kind] for kind in FINDINGS if verdicts.get(kind)}
    undecided = verdicts.get(UNDECIDED, 0)
    messages = _messages(sum(verdicts.values()) - verdicts.get("orphan", 0))
    doubts = []
    # If an empty file hides records, messages are undecided; if nothing is undecided, it hides nothing.
    if serious := [problem for problem in problems if problem.kind != EMPTY]:
        doubts.append(f"{len(serious)} {'problem' if len(serious) == 1 else 'problems'} with the evidence")
    if undecided:
        doubts.append(f"{_messages(undecided)} undecided")
    if not tasks and not doubts:
        return COULD_NOT_DECIDE, "could not decide", "No journal has a record of these hours."
    but = f"; {' and '.join(doubts)}" if doubts else ""
    if found:
        named = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in found.items())
        return FOUND, "findings", f"{messages}: {named}{but}."
    if doubts:
        return COULD_NOT_DECIDE, "could not decide", f"{messages}, no findings{but}."
    unusual = {"in_flight": "still in flight", "repaired": "repaired", "replayed": "replayed"}
    others = "".join(f", {verdicts[kind]} {text}" for kind, text in unusual.items() if verdicts.get(kind))
    return CLEAN, "clean", f"{messages}, all accounted for{others}."


def _messages(count: int) -> str:
    return f"{count} {'message' if count == 1 else 'messages'}"
