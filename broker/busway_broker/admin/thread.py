"""The administration of a broker that runs in a thread of its own, for tests."""

from pathlib import Path
from typing import Self

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context
from busway_broker.admin.server import AdminServer
from busway_broker.connection_string import connection_string
from busway_broker.server import BrokerServer
from busway_broker.thread import RunningBroker


class RunningAdmin:
    """
    Serves the administration of a running broker on free ports while its context is open.

    With a folder it uses https, which the SDKs require; `authority` is the certificate for them to trust.
    """

    def __init__(self, broker: RunningBroker, tls_folder: Path | None = None) -> None:
        self._broker = broker
        self._tls_folder = tls_folder
        self._server: AdminServer | None = None

    def __enter__(self) -> Self:
        """Start listening."""
        tls = None if self._tls_folder is None else server_context(self._tls_folder)

        async def start(broker: BrokerServer) -> AdminServer:
            return await AdminServer(broker, tls=tls).__aenter__()

        self._server = self._broker.run(start)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        server = self._running
        self._broker.run(lambda _: server.stop())

    @property
    def authority(self) -> Path:
        """Return the file with the certificate of the authority."""
        if self._tls_folder is None:
            raise RuntimeError("the administration uses http, which has no authority")
        return self._tls_folder / AUTHORITY_FILE

    @property
    def _running(self) -> AdminServer:
        if self._server is None:
            raise RuntimeError("the administration is not running; use it inside its context")
        return self._server

    def address(self, name: str) -> str:
        """Return the administration address of a namespace."""
        return self._running.address(name)

    def connection_string(self, name: str) -> str:
        """Return the connection string to give to an administration client."""
        port = self._running.port(name)
        return self._broker.call(lambda broker: connection_string("localhost", port, broker.namespaces[name].config))
