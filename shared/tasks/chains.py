"""Checks tasks with a chain: the source must keep the order, and every link must reach the target."""

from collections.abc import Iterator, Sequence

from shared.editors.chain import ChainedProperty, ChainOptions, ChainStep
from shared.editors.options import Step
from shared.editors.verify_chain import VerifyChainStep
from shared.tasks.source import Source

# Editors whose result differs at each delivery, and with it the link.
_NEVER_THE_SAME = ("encrypt", "re-encrypt")
# Editors that break a chain if they run after it, with the reason.
_BREAKING = {
    **dict.fromkeys(("filter", "deduplicate"), "withholds messages, so that links would be missing"),
    **dict.fromkeys(("batch", "split"), "replaces the linked messages by others"),
    **dict.fromkeys(("transform", "reduce", "transcode"), "changes the content that was linked"),
}


def chain_faults(source: Source, steps: Sequence[Step], conditions: Sequence[str | None]) -> Iterator[str]:
    """Yield the problems of the chains in a task; *conditions* are those of the routes."""
    for index, step in enumerate(steps):
        if isinstance(step, VerifyChainStep):
            if not (source.hub is not None or source.sessions or step.options.single_instance):
                yield (
                    f"editors[{index}].verify-chain: the source keeps no order,"
                    " expected sessions, a hub, or single_instance: true"
                )
        elif isinstance(step, ChainStep):
            fault = _fault_of_order(source, step.options)
            if fault is not None:
                yield f"editors[{index}].chain: sequence: {fault}"
            for other in steps[:index]:
                if other.verb() in _NEVER_THE_SAME:
                    yield (
                        f"editors[{index}].chain comes after {other.verb()}, which changes the message in a"
                        f" different way at each delivery; move {other.verb()} behind the chain"
                    )
            for other in steps[index + 1 :]:
                why = _break_of(other)
                if why is not None:
                    yield f"editors[{index}].chain comes before {other.verb()}, which {why}; move it before the chain"
            if conditions[0] is not None:
                yield (
                    f"editors[{index}].chain: the first route has a condition, so part of the chain would be sent"
                    " elsewhere, expected one route for all messages"
                )


def _fault_of_order(source: Source, options: ChainOptions) -> str | None:
    sequence = options.sequence
    if sequence == "session" and not source.sessions:
        return "is session, expected a source with sessions: true"
    if sequence in {"partition", "partition_key"} and source.hub is None:
        return "is per partition, expected a hub as the source"
    if sequence == "entity" or isinstance(sequence, ChainedProperty):
        if source.hub is not None and len(source.partitions or ()) != 1:
            return "covers several partitions, which have no common order, expected `partition` or a single partition"
        if source.hub is None and not options.single_instance:
            return "covers a whole entity, expected `session`, or single_instance: true"
    return None


def _break_of(step: Step) -> str | None:
    (field,) = type(step).model_fields
    drops = getattr(getattr(step, field), "on_failure", None) == "drop"
    return _BREAKING["filter"] if drops else _BREAKING.get(step.verb())
