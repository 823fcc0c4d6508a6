"""The de-duplicating receiver for asyncio."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.receivers.deduplicating import LOOK_SECONDS, Receiving
from busway_clients.receivers.deduplication import PATIENCE, Deduplication, Handled, SdkReceiver, WithoutIdentity
from busway_clients.receivers.identity import Identity, Watermark, by_message_id
from busway_clients.receivers.receive_run import OPEN_SECONDS, ReceiveRun
from busway_clients.receivers.stores.store import Store
from busway_clients.steps import Call, run_async

Application = Callable[[ServiceBusReceivedMessage], Awaitable[object]]


class DeduplicatingReceiver:
    """
    Receives from all namespaces at once, and gives each message to the application once, whichever copy comes first.

    Like `busway_clients.DeduplicatingReceiver`, with the receivers of `azure.servicebus.aio` and an application that is
    a coroutine function. The stores are the same; calls to one that is not in memory run in threads.
    """

    def __init__(
        self,
        receivers: Mapping[str, SdkReceiver],
        store: Store,
        *,
        identity: Identity = by_message_id,
        watermark: Watermark | None = None,
        patience: timedelta = PATIENCE,
        without_identity: WithoutIdentity = "process",
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        """Receive with *receivers*, keyed by namespace name, and remember in *store*, like the synchronous class."""
        deduplication = Deduplication(
            store, identity=identity, watermark=watermark, patience=patience, without_identity=without_identity
        )
        self._receiving = Receiving(receivers, deduplication)
        self._open_seconds = open_seconds

    @property
    def counts(self) -> Mapping[str, Mapping[Handled, int]]:
        """Return the number of messages by outcome, for each namespace."""
        return self._receiving.counts

    @property
    def errors(self) -> Mapping[str, Exception | None]:
        """Return the error that each namespace retries after, None while it receives."""
        return self._receiving.errors

    async def handle(self, name: str, message: ServiceBusReceivedMessage, application: Application) -> Handled:
        """Handle one message that was received from the namespace *name*, like the synchronous class."""
        return await run_async(self._receiving.handle(name, message, application))

    async def run(self, application: Application, stop: asyncio.Event, *, idle: float | None = None) -> None:
        """
        Receive until *stop* is set, or no message has arrived from any namespace for *idle* seconds.

        The application is called in one task per namespace. Raises WrongUse like the synchronous class.
        """
        receive_run = ReceiveRun(self.errors, stop.is_set, idle, self._open_seconds)

        async def receive(name: str) -> None:
            try:
                await run_async(
                    self._receiving.receive(name, application, receive_run, lambda seconds: _pause(stop, seconds))
                )
            finally:
                # If one namespace fails, the others end too; otherwise the run is over anyway.
                receive_run.end()

        tasks = {name: asyncio.create_task(receive(name), name=f"receive from {name}") for name in self.errors}
        try:
            while running := [
                each for name, each in tasks.items() if not each.done() and receive_run.is_waited_for(name)
            ]:
                await asyncio.wait(running, timeout=LOOK_SECONDS)
            ended = [each for each in tasks.values() if each.done()]
        finally:
            receive_run.end()
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        for task in ended:
            task.result()


def _pause(stop: asyncio.Event, seconds: float) -> Call:
    async def paused() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()

    return Call(paused)
