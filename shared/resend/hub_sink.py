"""The journal of a command in an event hub, written with the SDK: a command has no output binding."""

import os
import socket
import time
from collections.abc import Mapping

from shared.amqp.sections import Sections, data
from shared.journal.event_hub import events
from shared.journal.sink import Stream
from shared.protocols import Outgoing, Output
from shared.tasks.files import Configuration

_SEND_SECONDS = 10.0


class HubSink:
    """Sends each flush to an event hub."""

    def __init__(self, output: Output, hub: str) -> None:
        """Write to *hub* as an instance of its own."""
        self.instance = f"{socket.gethostname()}{os.getpid()}-{time.time_ns() // 1_000_000}"
        self._output = output
        self._hub = hub

    async def append(self, stream: Stream, member: bytes) -> None:  # noqa: ARG002 - each line names its task
        """Send *member*; raises TargetUnavailable or TargetRefused unless the hub accepts it."""
        found = events([member])
        bodies = [found] if isinstance(found, bytes) else [each.encode() for each in found]
        messages = [Outgoing(Sections(body=data(body)).encode(), None, None, None) for body in bodies]
        for error in await self._output.send(self._hub, messages, timeout_seconds=_SEND_SECONDS):
            if error is not None:
                raise error

    async def close(self) -> None:
        """Do nothing: the caller closes the output."""


def sink_of(configuration: Configuration, outputs: Mapping[str, Output]) -> HubSink | None:
    """Return the sink for the event hub of a configuration's journal, or None if the journal is not in an event hub."""
    journal = configuration.journal
    if journal is None or journal.event_hub is None:
        return None
    return HubSink(outputs[journal.event_hub.connection], journal.event_hub.hub)
