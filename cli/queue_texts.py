"""The lines that `busway receive` prints of a queue of a storage account."""

import contextlib
import os
import time
from collections.abc import Iterator

from azure.storage.queue import QueueClient, QueueMessage

from cli.places import Place, required_setting
from shared.codecs.envelope import envelope_in, open_envelope
from shared.ends.storage_queue.clients import synchronous_service
from shared.printable import printable

_POLL_SECONDS = 0.2
_QUIET_SECONDS = 1.0
_INVISIBLE_SECONDS = 60
MOST_PEEKED = 32
"""What the service shows or gives at once."""


def peeked_texts(place: Place) -> Iterator[str]:
    """Yield one line for each message that a peek shows, MOST_PEEKED at most."""
    with _client(place) as queue:
        yield from map(_line, queue.peek_messages(MOST_PEEKED))


def text_lines(place: Place, wait: float) -> Iterator[str]:
    """Yield one line for each message, which is then deleted."""
    with _client(place) as queue:
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            messages = list(queue.receive_messages(max_messages=MOST_PEEKED, visibility_timeout=_INVISIBLE_SECONDS))
            for message in messages:
                yield _line(message)
                queue.delete_message(message)
            if messages:
                deadline = time.monotonic() + _QUIET_SECONDS
            else:
                time.sleep(_POLL_SECONDS)


def _line(message: QueueMessage) -> str:
    text = str(message.content)
    envelope = envelope_in(text.encode())
    if envelope is not None:
        events = open_envelope(envelope)
        text = "an envelope: " + ", ".join(f"{event.id} from {event.source}" for event in events)
    return printable(f"{text}  id={message.id}")


@contextlib.contextmanager
def _client(place: Place) -> Iterator[QueueClient]:
    setting = required_setting(place.connection.setting, str(place))
    with synchronous_service(setting, os.environ) as service:
        yield service.get_queue_client(place.path)
