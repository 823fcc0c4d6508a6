"""An application at one end, with Microsoft's SDK of either kind and the classes of busway_clients that go with it."""

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from typing import Any, Self

import azure.servicebus
import azure.servicebus.aio

import busway_clients
import busway_clients.aio

# Of scripts that import the package in processes of their own.
ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2] / "clients")}


def connection_string(server: socket.socket) -> str:
    """Return a connection string of what listens on this machine."""
    port = server.getsockname()[1]
    return f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"


class Answering:
    """A peer that sends *answer* on each connection and closes it; its context returns its connection string."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> str:
        self._thread.start()
        return connection_string(self._server)

    def __exit__(self, *_: object) -> None:
        # What waits in accept() is not woken by a close alone.
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(self._answer)
                    connection.recv(1000)


class Application:
    """Senders and receivers at *places* (connection strings by name), closed with its context."""

    def __init__(self, kind: str, places: Any) -> None:
        self.kind = kind
        self.classes = busway_clients if kind == "sync" else busway_clients.aio
        self.places = places
        self._loop = asyncio.new_event_loop() if kind == "aio" else None
        self._opened: list[Any] = []
        self._clients: dict[Any, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in reversed(self._opened):
            self.call(each.close())
        if self._loop is not None:
            self._loop.close()

    def call(self, answer: Any) -> Any:
        """Return what a call has answered, or its coroutine will."""
        if self._loop is None:
            return answer
        return self._loop.run_until_complete(answer) if asyncio.iscoroutine(answer) else answer

    def event(self) -> Any:
        return (threading if self.kind == "sync" else asyncio).Event()

    def set(self, event: Any) -> None:
        """Set an event from any thread."""
        event.set() if self._loop is None else self._loop.call_soon_threadsafe(event.set)

    def function(self, act: Any) -> Any:
        """Return a plain function as this kind of application calls one."""

        async def awaited(*arguments: Any) -> Any:
            return act(*arguments)

        return act if self.kind == "sync" else awaited

    def client(self, name: str, **options: Any) -> Any:
        if name not in self._clients:
            module = azure.servicebus if self.kind == "sync" else azure.servicebus.aio
            make = module.ServiceBusClient.from_connection_string
            self._clients[name] = self._in_loop(make, self.places[name], **({"retry_total": 0} | options))
        return self._clients[name]

    def senders(self, entity: str, **options: Any) -> dict[Any, Any]:
        return {name: self._in_loop(self.client(name, **options).get_queue_sender, entity) for name in self.places}

    def receivers(self, entity: str, **options: Any) -> dict[Any, Any]:
        return {name: self._in_loop(self.client(name).get_queue_receiver, entity, **options) for name in self.places}

    def active(self, entity: str, **options: Any) -> Any:
        return self.classes.ActiveSender(self.senders(entity), **options)

    def passive(self, entity: str, **options: Any) -> Any:
        return self.classes.PassiveSender(self.senders(entity), **options)

    def _in_loop(self, make: Any, *arguments: Any, **options: Any) -> Any:
        """Make something of the SDK; the asynchronous one wants a running loop for it."""

        async def made() -> Any:
            return make(*arguments, **options)

        opened = make(*arguments, **options) if self._loop is None else self._loop.run_until_complete(made())
        self._opened.append(opened)
        return opened
