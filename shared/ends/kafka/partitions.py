"""
The partitions of a topic, and which of several producers sends to each.

A producer has one request on its way to a broker, with the records of one partition. Partitions with the same broker
have different producers, so that a batch takes one round trip and not one for each of them. The number of a producer
depends on the key alone, also when partitions move to other brokers or are added: no record overtakes one of its key.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

MOST_PRODUCERS = 16

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


class Partitions:
    """The partitions of a topic, each with the number of its producer."""

    def __init__(self, leaders: Sequence[int] = ()) -> None:
        """Take the broker of each partition; without any there is one producer."""
        among: Counter[int] = Counter()
        numbers = []
        for leader in leaders:
            numbers.append(among[leader] % MOST_PRODUCERS)
            among[leader] += 1
        self._numbers = tuple(numbers)
        self.producers = max(self._numbers, default=0) + 1
        """How many producers there are."""
        self._turn = 0

    def producer_of(self, key: str) -> int:
        """Return the number of the producer for the records of a key."""
        return self._numbers[partition_of(key, len(self._numbers))] if self._numbers else 0

    def next_producer(self) -> int:
        """Return the number of the producer for the records without a key of one call: each in its turn."""
        self._turn += 1
        return self._turn % self.producers


@lru_cache(maxsize=4096)
def partition_of(key: str, count: int) -> int:
    """Return the partition of a key among *count*, as Java clients and librdkafka's `murmur2` choose it."""
    return (_murmur2(key.encode()) & 0x7FFFFFFF) % count


def _murmur2(data: bytes) -> int:
    """Return the hash of *data*. Source: org.apache.kafka.common.utils.Utils.murmur2."""
    length = len(data)
    found = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        part = (int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER) & _MASK
        part = ((part ^ (part >> 24)) * _MULTIPLIER) & _MASK
        found = ((found * _MULTIPLIER) & _MASK) ^ part
    if whole < length:
        found = ((found ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER) & _MASK
    found = ((found ^ (found >> 13)) * _MULTIPLIER) & _MASK
    return found ^ (found >> 15)
