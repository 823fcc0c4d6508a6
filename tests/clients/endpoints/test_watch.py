"""The watch: callbacks, faults of any kind, threads, and the same for asyncio."""

import asyncio
import threading
from typing import Any

import pytest

from busway_clients import EndpointWatch
from busway_clients.aio.endpoints.watch import EndpointWatch as AsyncWatch
from busway_clients.endpoints.cache import EndpointCache
from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, Offer
from tests.clients.endpoints.refreshing import endpoints_after_refresh

WEST, EAST = Endpoint("west.servicebus.windows.net"), Endpoint("east.servicebus.windows.net")


def answer_of(endpoint: Any, ttl: float = 10.0) -> Answer:
    return Answer(endpoint.namespace, (Offer(endpoint),), ttl)


class Script:
    """A source with prepared answers and errors; the last one repeats."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.reads = 0

    def read(self) -> Any:
        self.reads += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_failures_are_retried_with_growing_pauses() -> None:
    seconds = [0.0]
    source = Script(answer_of(WEST), EndpointUnresolved("away"))
    watch = EndpointWatch(source, monotonic=lambda: seconds[0])
    watch.endpoints()
    asked = []
    while seconds[0] < 400:
        before = source.reads
        assert endpoints_after_refresh(watch) == (WEST,)
        if source.reads > before:
            asked.append(seconds[0])
        seconds[0] += 1
    assert asked == [10, 15, 25, 45, 85, 165, 325]


def test_times_to_live_are_kept_within_bounds() -> None:
    cache = EndpointCache(shortest_seconds=5, longest_seconds=300)
    cache.update(answer_of(WEST, 0), 0)
    assert cache.due_in(0) == 5
    cache.update(answer_of(WEST, 86_400), 0)
    assert cache.due_in(0) == 300


def test_before_the_first_answer_initial_endpoints_or_an_error() -> None:
    away = EndpointUnresolved("away")
    with pytest.raises(EndpointUnresolved, match="away"):
        EndpointWatch(Script(away)).endpoints()
    watch = EndpointWatch(Script(away), cache=EndpointCache(initial=(WEST,)))
    assert endpoints_after_refresh(watch) == (WEST,)
    assert watch.state.error is away


def test_any_error_of_a_source_keeps_the_endpoint() -> None:
    seconds = [0.0]
    watch = EndpointWatch(Script(answer_of(WEST), ZeroDivisionError("a mistake")), monotonic=lambda: seconds[0])
    watch.endpoints()
    seconds[0] = 11
    assert endpoints_after_refresh(watch) == (WEST,)
    assert "Script failed, ZeroDivisionError: a mistake" in str(watch.state.error)


def test_one_read_serves_all_callers_within_a_second() -> None:
    seconds = [0.0]
    source = Script(answer_of(WEST))
    watch = EndpointWatch(source, monotonic=lambda: seconds[0])
    for _ in range(5):
        watch.consult()
    assert source.reads == 1
    seconds[0] = 1.0
    watch.consult()
    assert source.reads == 2


def test_failing_callback_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError

    watch = EndpointWatch(Script(answer_of(WEST)), on_change=fail)
    assert watch.endpoints() == (WEST,)
    assert "callback of the endpoint watch failed" in caplog.text


def test_callback_may_use_the_watch_and_events_come_in_order() -> None:
    seconds = [0.0]
    events = []

    def note(change: Any) -> None:
        events.append(("begins", change.site))
        seconds[0] += 100
        assert watch.consult() == watch.endpoints() == (EAST,)
        events.append(("ends", change.site))

    watch = EndpointWatch(Script(answer_of(WEST), answer_of(EAST)), on_change=note, monotonic=lambda: seconds[0])
    asking = threading.Thread(target=watch.endpoints, daemon=True)
    asking.start()
    asking.join(10)
    assert not asking.is_alive()
    assert events == [(what, endpoint.namespace) for endpoint in (WEST, EAST) for what in ("begins", "ends")]


def test_repeated_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    seconds = [0.0]
    lines = [answer_of(WEST), *[EndpointUnresolved("away")] * 3, EndpointUnresolved("a login page"), answer_of(WEST)]
    watch = EndpointWatch(Script(*lines), monotonic=lambda: seconds[0])
    for _ in range(8):
        endpoints_after_refresh(watch)
        seconds[0] += 400
    logged = [record.message for record in caplog.records if record.levelname == "ERROR"]
    prefix = f"the endpoint source cannot be read, endpoints in use: {WEST}"
    assert logged == [f"{prefix}: away", f"{prefix}: a login page"]


def test_background_thread_reads_the_source_and_calls_back() -> None:
    changed = threading.Event()
    source = Script(answer_of(WEST, 0), answer_of(EAST, 0))
    changes = []

    def note(change: Any) -> None:
        changes.append(change.after)
        if len(changes) == 2:
            changed.set()

    with EndpointWatch(source, on_change=note, cache=EndpointCache(shortest_seconds=0.01)) as watch:
        assert changed.wait(10)
        assert watch.endpoints() == (EAST,)
    assert changes == [(WEST,), (EAST,)]


def test_a_client_with_an_endpoint_does_not_wait_for_a_slow_source() -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow:
        reads = 0

        def read(self) -> Any:
            self.reads += 1
            if self.reads > 1:
                asked.set()
                assert go_on.wait(10)
            return answer_of(WEST)

    seconds = [0.0]
    watch = EndpointWatch(Slow(), monotonic=lambda: seconds[0])
    watch.endpoints()
    seconds[0] = 11
    thread = threading.Thread(target=watch.endpoints)
    thread.start()
    assert asked.wait(10)
    assert watch.endpoints() == (WEST,)
    go_on.set()
    thread.join()


def test_asyncio_behaves_the_same() -> None:
    async def main() -> None:
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        changes = []

        def note(change: Any) -> None:
            changes.append(change.after)
            if len(changes) == 2:
                loop.call_soon(changed.set)

        source = Script(answer_of(WEST, 0), EndpointUnresolved("away"), answer_of(EAST, 0))
        cache = EndpointCache(shortest_seconds=0.01, retry_seconds=0.01)
        async with AsyncWatch(source, on_change=note, cache=cache) as watch:
            async with asyncio.timeout(10):
                await changed.wait()
            assert await watch.endpoints() == (EAST,)
            assert await watch.consult() == (EAST,)
        assert changes == [(WEST,), (EAST,)]
        with pytest.raises(EndpointUnresolved, match="away"):
            await AsyncWatch(Script(EndpointUnresolved("away"))).endpoints()

    asyncio.run(main())
