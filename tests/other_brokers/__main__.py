"""
ActiveMQ and RabbitMQ 4 for the example queue-to-brokers (docs/amqp.md), fetched by tools/other-brokers.

    python -m tests.other_brokers                     # starts both until Ctrl-C, empty
    python -m tests.other_brokers ACTIVEMQ orders     # prints and removes the messages of a queue of one of them

The app settings with their URLs are in build/other-brokers/settings.
"""

import asyncio
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path

from shared.message.message import Message
from shared.printable import printable
from shared.private_file import write_private
from tests.messages import ORIGIN
from tests.other_brokers.activemq import ActiveMQ
from tests.other_brokers.processes import OtherBroker
from tests.other_brokers.rabbitmq import RabbitMQ4
from tests.other_brokers.reading import read_all

KINDS: dict[str, type[ActiveMQ | RabbitMQ4]] = {"ACTIVEMQ": ActiveMQ, "RABBITMQ": RabbitMQ4}
"""The brokers, by the app setting with the URL."""
SETTINGS = Path("build/other-brokers/settings")
_SECONDS = 30.0


def _run() -> None:
    """Run both brokers until Ctrl-C or SIGTERM."""
    missing = [reason for kind in KINDS.values() if (reason := kind.missing())]
    if missing:
        raise SystemExit("\n".join(missing))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    brokers: dict[str, OtherBroker] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for setting, kind in KINDS.items():
                own = Path(folder) / setting
                own.mkdir()
                brokers[setting] = kind(own)
                brokers[setting].start()
            SETTINGS.parent.mkdir(parents=True, exist_ok=True)
            lines = [f"export {setting}={shlex.quote(broker.url)}\n" for setting, broker in brokers.items()]
            write_private(SETTINGS, "".join(lines))
            sys.stdout.write(f"ActiveMQ and RabbitMQ run until Ctrl-C; in other terminals: . {SETTINGS}\n")
            sys.stdout.flush()
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            for broker in brokers.values():
                broker.kill()


async def _read(url: str, address: str) -> list[bytes]:
    found: list[bytes] = []
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        more = await read_all(url, address)
        found += more
        if found and not more:
            break
    return found


def _line(content: bytes) -> str:
    message = Message.received(content, ORIGIN)
    identity = message.message_id.payload if message.message_id is not None else None
    properties = sorted((name, str(value.payload)) for name, value in message.application_properties())
    fields = {"message_id": str(identity), "session_id": message.session_id, **dict(properties)}
    body = (message.body or b"").decode(errors="replace")
    return printable(f"{body}  " + " ".join(f"{name}={value}" for name, value in fields.items()))


def main() -> None:
    """Start the brokers, or read from one."""
    if not sys.argv[1:]:
        _run()
        return
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    setting, address = sys.argv[1:]
    if setting not in os.environ:
        raise SystemExit(f"{setting}: not set: . {SETTINGS}")
    try:
        found = asyncio.run(_read(os.environ[setting], address))
    except OSError as error:
        raise SystemExit(f"{setting}: {error}") from error
    for content in found:
        sys.stdout.write(f"{_line(content)}\n")


if __name__ == "__main__":
    main()
