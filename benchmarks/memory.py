"""The memory of broker and host while 100,000 messages pass through both, in ten waves."""

import asyncio

from benchmarks.measurement import Measurement, report
from benchmarks.stack import empty, fill, resident_megabytes, running_broker, running_host

WAVES = 10
WAVE = 10_000
# Two waves fill the caches: accepted sends, objects, the arenas of the allocators.
WARM_UP = 2


async def main() -> None:
    """Compare the memory after the last wave with that after the warm-up."""
    async with running_broker() as stack, running_host(stack) as host:
        broker_sizes, host_sizes = [], []
        for _ in range(WAVES):
            await asyncio.gather(fill(stack.west, WAVE), empty(stack.east, WAVE))
            broker_sizes.append(resident_megabytes(stack.broker))
            host_sizes.append(resident_megabytes(host))
    measurements = []
    for name, sizes in (("broker", broker_sizes), ("host", host_sizes)):
        measurements += [
            Measurement(f"memory of the {name} after {WAVES * WAVE:,} messages", sizes[-1], "MB"),
            Measurement(
                f"memory of the {name}: growth since message {WARM_UP * WAVE:,}",
                (sizes[-1] / sizes[WARM_UP - 1] - 1) * 100,
                "%",
                10,
            ),
        ]
    report(measurements)


if __name__ == "__main__":
    asyncio.run(main())
