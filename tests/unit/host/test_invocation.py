from datetime import timedelta

from host.retry import RetryPolicy, delay
from host.triggers.http import route_pattern
from host.triggers.service_bus_single import renewal_delay


def seconds(number: int) -> timedelta:
    return timedelta(seconds=number)


def test_fixed_delay_is_the_same_for_every_retry() -> None:
    policy = RetryPolicy(3, seconds(5), seconds(0), timedelta.max)
    assert [delay(policy, count, 0.5) for count in (1, 2, 3)] == [seconds(5)] * 3


def test_exponential_delay_grows_between_its_bounds() -> None:
    policy = RetryPolicy(-1, None, seconds(5), seconds(300))
    delays = [delay(policy, count, 0.5) for count in range(1, 9)]
    assert delays == [seconds(number) for number in (5, 10, 15, 25, 45, 85, 165, 300)]
    assert delay(policy, 10**6, 1.0) == seconds(300)


def test_jitter_moves_only_the_growth_of_the_delay() -> None:
    policy = RetryPolicy(-1, None, seconds(10), seconds(300))
    assert [delay(policy, 1, jitter) for jitter in (0.0, 1.0)] == [seconds(10)] * 2
    assert [delay(policy, 3, jitter) for jitter in (0.0, 1.0)] == [seconds(26), seconds(34)]


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
