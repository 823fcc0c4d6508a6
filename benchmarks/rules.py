"""A rule of five comparisons, evaluated for a new message and for one whose properties have been read before."""

import time
from collections.abc import Callable

from benchmarks.measurement import Measurement, report
from benchmarks.worker_cost import message
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.rules.rule import parse_filter

ROUNDS, CALLS = 200, 500
RULE = "amount > 100 AND amount < 50000 AND [order] = '4711' AND weight >= 1.5 AND sys.Label = 'order placed'"


def main() -> None:
    """Measure and report."""
    rule = parse_filter(RULE)
    arrived = Message.received(message(1, round(time.time() * 1000), 5), Origin("west", "source"))
    seen = RuleProperties(arrived)
    report(
        [
            Measurement("rule of five comparisons", _cost(lambda: rule.matches(seen)), "µs", 3),
            Measurement(
                "same, with looking for its properties", _cost(lambda: rule.matches(RuleProperties(arrived))), "µs"
            ),
        ]
    )


def _cost(call: Callable[[], bool]) -> float:
    """Return the processor time of a call in microseconds, the best of all rounds; the rule must match."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time_ns()
        holds = all(call() for _ in range(CALLS))
        best = min(best, (time.process_time_ns() - started) / CALLS / 1000)
        if not holds:
            raise SystemExit("the rule does not hold for the message, expected it to")
    return best


if __name__ == "__main__":
    main()
