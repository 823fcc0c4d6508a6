from datetime import timedelta

from local.host.invocation import delay
from local.host.triggers.http import route_pattern
from local.host.triggers.service_bus_single import renewal_delay
from local.host.worker import RetryPolicy


def seconds(number: int) -> timedelta:
    return timedelta(seconds=number)


def test_fixed_delay_is_the_same_for_every_retry() -> None:
    policy = RetryPolicy(3, seconds(5), seconds(0), timedelta.max)
    assert [delay(policy, count, 0.5) for count in (1, 2, 3)] == [seconds(5)] * 3


def test_exponential_delay_grows_between_its_bounds() -> None:
    policy = RetryPolicy(-1, None, seconds(5), seconds(300))
    assert [delay(policy, count, 0.5) for count in (1, 2, 3, 100)] == [
        seconds(6),
        seconds(8),
        seconds(12),
        seconds(300),
    ]


def test_lock_is_renewed_ten_seconds_before_its_end_or_halfway() -> None:
    assert renewal_delay(seconds(60)) == seconds(50)
    assert renewal_delay(seconds(4)) == seconds(2)
    assert renewal_delay(seconds(-1)) == seconds(0)


def parameters(route: str, prefix: str, path: str) -> dict[str, str] | None:
    match = route_pattern(route, prefix).fullmatch(path)
    return None if match is None else match.groupdict()


def test_routes() -> None:
    orders = "orders/{id:int}/{rest?}"
    assert parameters(orders, "api", "/api/orders/12") == {"id": "12", "rest": None}
    assert parameters(orders, "api", "/API/orders/12/x/") == {"id": "12", "rest": "x"}
    assert parameters(orders, "api", "/api/orders/twelve") is None
    assert parameters("{*path}", "", "/a/b") == {"path": "a/b"}
