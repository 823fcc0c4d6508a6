"""The links of one connection, which the service closes when it has had none for a while."""

from collections.abc import Callable
from datetime import timedelta

from busway_broker import errors
from busway_broker.core.namespace import Namespace
from busway_broker.core.times import milliseconds
from busway_broker.errors import Refusal

_NEVER_HAD_A_LINK = 5  # a connection that never had a link is closed after a fifth of the time


class OpenLinks:
    """Whether a connection is in use, that is, has links; source: SR38, azure-sdk-for-python 36677."""

    def __init__(self, namespace: Namespace, are_any: Callable[[], bool], close: Callable[[Refusal], None]) -> None:
        """Call *close* after the namespace's time without links."""
        self._namespace = namespace
        self._are_any = are_any
        self._close = close
        self._limit: timedelta | None = None
        self._closes_at: int | None = None
        self._wait = 0

    def start(self) -> None:
        """Wait for the first link: the connection is open."""
        self._limit = self._namespace.config.links.connection_idle
        self._await_link(_NEVER_HAD_A_LINK)

    def one_ended(self) -> None:
        """Wait for another link if the one that has ended was the last."""
        if self._limit is not None and not self._are_any():
            self._await_link(1)

    def end(self) -> None:
        """Stop waiting: the connection has ended."""
        self._limit = self._closes_at = None
        self._namespace.timers.forget(self)

    def _await_link(self, fraction: int) -> None:
        if self._limit is not None:
            self._wait = self._limit // timedelta(milliseconds=fraction)
            self._closes_at = milliseconds(self._namespace.clock) + self._wait
            self._namespace.timers.set(self, self._closes_at)

    def advance(self, now: int) -> int | None:
        """Close the connection if it is due; see `Timed`."""
        if self._are_any():
            self._closes_at = None
        if self._closes_at is not None and self._closes_at <= now:
            what = f"did not have any active links in the past {self._wait} milliseconds"
            text = f"The connection was closed by container 'LinkTracker' because it {what}."
            self._close(Refusal(errors.CONNECTION_FORCED, text))
        return self._closes_at
