"""
A port that the host's gRPC server may open later.

The worker is started with the address in its arguments, and only the functions that it then finds show whether the host
needs the server, whose import costs time and memory.
"""

import socket


class ReservedPort:
    """A free port of this machine; nothing listens on it until it is released."""

    def __init__(self) -> None:
        """Reserve a port."""
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Let the port go, for a server that is about to open it, or at the end."""
        self._socket.close()
