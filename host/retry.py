"""
The retry policy of a function, or of host.json for all functions without one.

The exponential delay was measured with the real host.
"""

from dataclasses import dataclass
from datetime import timedelta

UNLIMITED = -1
_MAX_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to retry, and after which delay; without a delay it grows exponentially between the two bounds."""

    max_retry_count: int
    delay: timedelta | None
    minimum_interval: timedelta
    maximum_interval: timedelta


def delay(policy: RetryPolicy, retry_count: int, jitter: float) -> timedelta:
    """
    Return the pause before a retry (the first is 1); *jitter* lies between 0 and 1.

    The first is the minimum. Before each further one the minimum grows by a part that doubles, up to the maximum.
    """
    if policy.delay is not None:
        return policy.delay
    minimum = policy.minimum_interval
    if retry_count <= 1:
        return min(minimum, policy.maximum_interval)
    growth = (0.8 + 0.4 * jitter) * 2 ** min(retry_count - 2, _MAX_DOUBLINGS)
    return min(timedelta(seconds=minimum.total_seconds() * (1 + growth)), policy.maximum_interval)
