"""
The worker process: runs the functions of an app for the host that started it.

It ends when the host does. It ignores SIGINT, which a terminal sends to the host as well. SIGTERM ends it unless the
app handles the signal; no atexit function and no cancellation of the app ever runs.
"""

import asyncio
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from typing import Any

from host.worker import EmbeddedWorker
from host.worker_channel import Answer, Call, Logged, Start, Started
from shared.errors import ConfigError


class _Channel:
    """The worker's end of the socket pair; any thread may send."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._turn = threading.Lock()

    def send(self, message: object) -> None:
        with self._turn:
            self._connection.send(message)

    def receive_into(self, loop: asyncio.AbstractEventLoop, requests: "asyncio.Queue[Start | Call]") -> None:
        """Pass on the messages of the host; end the process when the host has ended, whatever the app does."""
        while True:
            try:
                request = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            loop.call_soon_threadsafe(requests.put_nowait, request)


class _ForwardingHandler(QueueHandler):
    """Sends log records to the host, formatted."""

    def __init__(self, channel: _Channel) -> None:
        super().__init__(queue.SimpleQueue())  # unused: a record leaves at once
        self._channel = channel

    def enqueue(self, record: logging.LogRecord) -> None:
        self._channel.send(Logged(record))


async def _serve(channel: _Channel) -> None:
    requests: asyncio.Queue[Start | Call] = asyncio.Queue()
    receiving = (asyncio.get_running_loop(), requests)
    threading.Thread(target=channel.receive_into, args=receiving, name="host", daemon=True).start()
    start = await requests.get()
    if not isinstance(start, Start):
        raise TypeError(f"{type(start).__name__}, expected Start first")
    _log_like(start.log_levels, channel)
    worker = EmbeddedWorker()
    try:
        functions = await worker.start(start.folder)
    except ConfigError as error:
        channel.send(Started(problems=error.problems))
        return
    channel.send(Started(functions))
    running: set[asyncio.Task[None]] = set()
    while True:
        call = await requests.get()
        if isinstance(call, Call):
            task = asyncio.create_task(_answer(worker, call, channel))
            running.add(task)
            task.add_done_callback(running.discard)


def _log_like(levels: Mapping[str, int], channel: _Channel) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().addHandler(_ForwardingHandler(channel))


async def _answer(worker: EmbeddedWorker, call: Call, channel: _Channel) -> None:
    channel.send(Answer(call.number, await worker.invoke(call.attempt)))


def main() -> None:
    """Serve the host at the socket whose file descriptor is the first argument; the app sees the others only."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(_Channel(Connection(int(sys.argv.pop(1))))))


if __name__ == "__main__":
    main()
