"""What an evacuation takes: its duration from here, and what the service bills for it."""

import math
from dataclasses import dataclass

from cli.evacuation.survey import Share, Survey
from shared.resend.run import AT_ONCE
from shared.status.verdict import duration

# Requests for each batch of messages, by what they are: receive, send, settle; and for those that are set aside at the
# target, receive and settle there.
_REQUESTS = {Share.ACTIVE: 3, Share.SCHEDULED: 3, Share.DEAD: 5, Share.DEFERRED: 5}
_SESSION_REQUESTS = 8
_CONNECTION_REQUESTS = 8
# Encoding, and the ledger on disk.
_MESSAGE_SECONDS = 0.002
_USD_PER_MILLION = 0.8
"""List price of operations on the Standard tier, beyond the first 13 million of a month; each has up to 64 KB."""
_SOON_SECONDS = 10.0


@dataclass
class Estimate:
    """The messages and requests of surveys, and the time that the surveys themselves took."""

    messages: int = 0
    operations: int = 0
    requests: int = 0
    surveyed_seconds: float = 0.0
    surveyed_requests: int = 0

    def add(self, found: Survey, seconds: float) -> None:
        """Add what a survey has found in a number of *seconds*."""
        for share, wanted in found.shares.items():
            self.messages += len(wanted)
            self.operations += len(wanted) * _REQUESTS[share]
            self.requests += math.ceil(len(wanted) / AT_ONCE) * _REQUESTS[share]
        self.requests += len(found.sessions) * _SESSION_REQUESTS + 2 * _CONNECTION_REQUESTS
        self.operations += len(found.sessions) * _SESSION_REQUESTS
        self.surveyed_seconds += seconds
        self.surveyed_requests += _CONNECTION_REQUESTS + math.ceil(found.count / AT_ONCE)

    def seconds(self, rate: float | None) -> float:
        """Return how long it takes, at most *rate* messages a second."""
        round_trip = self.surveyed_seconds / max(self.surveyed_requests, 1)
        return max(
            self.requests * round_trip + self.messages * _MESSAGE_SECONDS, 0 if rate is None else self.messages / rate
        )

    def text(self, rate: float | None) -> str:
        """Return a sentence for a person."""
        seconds = self.seconds(rate)
        time = "some seconds" if seconds < _SOON_SECONDS else f"about {duration(seconds)}"
        usd = self.operations / 1e6 * _USD_PER_MILLION
        price = "less than 0.01" if usd < 0.01 else f"about {usd:,.2f}"  # noqa: PLR2004 - a cent
        noun = "message" if self.messages == 1 else "messages"
        return (
            f"In all {self.messages:,} {noun}: {time} from here, and {self.operations:,} operations, {price} USD on "
            "Standard, none on Premium"
        )
