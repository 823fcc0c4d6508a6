"""The partitions of a partitioned entity, which the upper bits of a sequence number name."""

from collections.abc import Callable, Iterable

_PARTITION_BITS = 48


def partition_of(number: int) -> int:
    """Return the partition that a sequence number names, 0 also in an entity without partitions."""
    return number >> _PARTITION_BITS


def by_partition[T](items: Iterable[T], number_of: Callable[[T], int]) -> list[list[T]]:
    """Return *items* by the partitions of their sequence numbers."""
    found: dict[int, list[T]] = {}
    for item in items:
        found.setdefault(partition_of(number_of(item)), []).append(item)
    return [*found.values()]
