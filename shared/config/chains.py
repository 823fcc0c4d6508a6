"""What a task with a chain must be like: in order at its source, and whole up to its target."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from shared.editors.chain import ChainedProperty, ChainOptions, ChainStep
from shared.editors.options import Step
from shared.editors.verify_chain import VerifyChainStep

# A redelivered message becomes another one here, whose link would be another one as well.
_NEVER_THE_SAME = ("encrypt", "re-encrypt")
# Behind a chain: what it does to the messages that were linked.
_TEARING = {
    **dict.fromkeys(("filter", "deduplicate"), "withholds messages that would then be missing"),
    **dict.fromkeys(("batch", "split"), "makes other messages of those that were linked"),
    **dict.fromkeys(("transform", "reduce", "transcode"), "makes another content of the one that was linked"),
}


class OrderedSource(Protocol):
    """The ordering that a source provides."""

    @property
    def hub(self) -> str | None:
        """The hub, whose partitions keep the order."""

    @property
    def sessions(self) -> bool:
        """Whether there are sessions, which keep the order."""

    @property
    def partitions(self) -> tuple[int, ...] | None:
        """Those of the hub that are taken from; all unless given."""

    @property
    def dead_letter(self) -> object:
        """Whether it is a dead-letter queue, which has no order."""


def chain_fault(source: OrderedSource, steps: Sequence[Step], conditions: Sequence[str | None]) -> str | None:
    """Return the first thing that keeps a chain from being right, None for nothing; *conditions* are the routes'."""
    return next(_faults(source, steps, conditions), None)


def _faults(source: OrderedSource, steps: Sequence[Step], conditions: Sequence[str | None]) -> Iterator[str]:
    for index, step in enumerate(steps):
        if isinstance(step, VerifyChainStep):
            if not (source.hub is not None or source.sessions or step.options.single_instance):
                yield (
                    f"editors[{index}].verify-chain takes from a source without order,"
                    " expected sessions, a hub, or single_instance: true"
                )
        elif isinstance(step, ChainStep):
            fault = _fault_of_order(source, step.options)
            if fault is not None:
                yield f"editors[{index}].chain: sequence: {fault}"
            for other in steps[:index]:
                if other.verb() in _NEVER_THE_SAME:
                    yield (
                        f"editors[{index}].chain stands behind {other.verb()}, which makes another message of the"
                        " same one at each delivery, expected it before"
                    )
            for other in steps[index + 1 :]:
                why = _tears(other)
                if why is not None:
                    yield f"editors[{index}].chain stands before {other.verb()}, which {why}, expected it behind"
            if conditions[0] is not None:
                yield (
                    f"editors[{index}].chain: the first route has a condition, so that a part of the chain would go"
                    " elsewhere, expected one route for all"
                )


def _fault_of_order(source: OrderedSource, options: ChainOptions) -> str | None:
    sequence = options.sequence
    if sequence == "session" and not source.sessions:
        return "is a session, expected a source with sessions: true"
    if sequence in {"partition", "partition_key"} and source.hub is None:
        return "is of a partition, expected a hub as the source"
    if sequence == "entity" or isinstance(sequence, ChainedProperty):
        if source.hub is not None and len(source.partitions or ()) != 1:
            return "goes over several partitions, which have no order, expected `partition` or one of partitions"
        if source.hub is None and not options.single_instance:
            return "goes over a whole entity, expected `session`, or single_instance: true"
    return None


def _tears(step: Step) -> str | None:
    (field,) = type(step).model_fields
    drops = getattr(getattr(step, field), "on_failure", None) == "drop"
    return _TEARING["filter"] if drops else _TEARING.get(step.verb())
