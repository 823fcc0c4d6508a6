"""
What a running function may do with the messages that its host holds for it.

Sources: ServiceBusMessageActions, ServiceBusSessionMessageActions, and the two caches of MessagingProvider as
ServiceBusListener fills them (Azure/azure-sdk-for-net, sdk/servicebus/Microsoft.Azure.WebJobs.Extensions.ServiceBus).
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from host.settlement.failure import ServiceBusFailure
from host.settlement.outcome import Outcome
from host.settlement.receiver import Receiver
from shared.ends.azure_amqp.raw_link import Delivery
from shared.errors import BuswayError


class Actions:
    """The actions of one invocation."""

    def __init__(self, receiver: Receiver) -> None:
        """Act through the receiver that holds the messages."""
        self.receiver = receiver
        self.releases_session = False
        self._settled: set[bytes] = set()
        self._unknown_to_link: set[bytes] = set()

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle a message, which the host then leaves alone; a Failure if that fails."""
        self.receiver.check_session()
        try:
            failures = await self.settle_all([delivery], outcome)
        except BuswayError as error:
            self.receiver.check_session()
            raise ServiceBusFailure(None, str(error)) from error
        if failures:
            self.receiver.check_session()
            raise ServiceBusFailure(failures[delivery.delivery_id])
        self._settled.add(delivery.tag)

    async def settle_all(self, deliveries: Sequence[Delivery], outcome: Outcome) -> dict[int, str]:
        """Settle messages and return the failures: delivery id → condition."""
        # The link forgets a message with the answer, whatever it is, and would wait for a second one in vain.
        known = [delivery for delivery in deliveries if delivery.tag not in self._unknown_to_link]
        unknown = [delivery for delivery in deliveries if delivery.tag in self._unknown_to_link]
        self._unknown_to_link.update(delivery.tag for delivery in known)
        failures = await self.receiver.settle(known, outcome) if known else {}
        return failures | (await self.receiver.settle_without_link(unknown, outcome) if unknown else {})

    def unsettled(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the messages that the function has not settled itself."""
        return [delivery for delivery in deliveries if delivery.tag not in self._settled]


class ActionsCache:
    """
    The actions of all running invocations of the host.

    A session is found by its id alone, whatever its entity: of two with one id the first is found, until the first of
    their invocations ends.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._by_token: dict[str, tuple[Delivery, Actions]] = {}
        self._by_session: dict[str, Actions] = {}

    @contextmanager
    def holding(self, actions: Actions, deliveries: Sequence[Delivery]) -> Iterator[None]:
        """Let the messages and their session be found."""
        tokens = [str(uuid.UUID(bytes_le=delivery.tag)) for delivery in deliveries]
        session_id = actions.receiver.session_id
        for token, delivery in zip(tokens, deliveries, strict=True):
            self._by_token.setdefault(token, (delivery, actions))
        if session_id is not None:
            self._by_session.setdefault(session_id, actions)
        try:
            yield
        finally:
            for token in tokens:
                self._by_token.pop(token, None)
            if session_id is not None:
                self._by_session.pop(session_id, None)

    def of_message(self, token: str) -> tuple[Delivery, Actions] | None:
        """Return a message by the text of its lock token, and its actions."""
        return self._by_token.get(token)

    def of_session(self, session_id: str) -> Actions | None:
        """Return the actions of a session."""
        return self._by_session.get(session_id)
