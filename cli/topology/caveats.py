"""What the entities of a plan do that slows tasks down or changes the order of messages, as `busway check` names it."""

from collections.abc import Iterator, Mapping

from cli.topology.model import Kind, Namespace
from cli.topology.needs import Needed
from shared.review.checks import FORWARDED, NO_SUPPORT_ORDERING, PARTITIONED_DUPLICATES, Check
from shared.tasks.topology import TOPOLOGY


def caveats_of(alias: str, needed: Mapping[tuple[Kind, str], Needed], present: Namespace) -> Iterator[str]:
    """Yield what to know of each entity that tasks use; *present* is the namespace once the steps are taken."""
    for need in needed.values():
        entity = present.find(need.name)
        if entity is None or not set(need.needed_by) - {TOPOLOGY}:
            continue
        where = f"{alias}/{'/'.join(need.name.parts)}"
        if need.is_target and entity.settings.get("enable_partitioning"):
            if entity.settings.get("requires_duplicate_detection"):
                yield _line(where, PARTITIONED_DUPLICATES)
            else:
                text = "does not detect duplicates, because it is partitioned and would then take no batches"
                remedy = (
                    "make its consumers idempotent, or say `duplicate_detection: true` in topology.yaml if it is new"
                )
                yield f"{where}: {text}: {remedy}"
        if entity.settings.get("support_ordering") is False:
            yield _line(where, NO_SUPPORT_ORDERING)
        if need.is_target and entity.settings.get("forward_to"):
            yield _line(where, FORWARDED)


def _line(where: str, check: Check) -> str:
    return f"{where}: {check.meaning} {check.remedy[0].upper()}{check.remedy[1:]}."
