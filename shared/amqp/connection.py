"""
One end of a connection, without I/O: protocol headers, frames, output and heartbeats.

1. `receive` takes incoming bytes and `take_output` returns outgoing ones; `wake` is called when output appears between
   calls of `receive`.
2. When the peer violates the protocol, the connection is closed with the condition that the specification names.

Source: OASIS AMQP 1.0, part 2, section 2.4.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, auto

from shared.amqp import performatives
from shared.amqp.dispositions import read_acceptance
from shared.amqp.errors import DECODE_ERROR, FRAMING_ERROR, AmqpError, ConnectionViolation
from shared.amqp.frames import EMPTY_FRAME, MIN_MAX_FRAME_SIZE, SASL, FrameReader, ProtocolHeader
from shared.amqp.session import Session
from shared.amqp.values import Malformed

MAX_FRAME_SIZE = 65_536
IN_SESSION = frozenset(range(performatives.ATTACH, performatives.END))


class Phase(Enum):
    """What comes next."""

    HEADER = auto()
    SASL = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSED = auto()


_WITHOUT_FRAMES = (Phase.HEADER, Phase.CLOSED)


class Connection[S: Session](ABC):
    """One end of a connection with sessions by the channel on which the peer sends."""

    def __init__(self, wake: Callable[[], None], *, max_frame_size: int, tick_interval: float) -> None:
        """Refuse larger frames; `tick` must be called every *tick_interval* seconds."""
        self.sessions: dict[int, S] = {}
        self.is_closed = False  # then the socket has to be closed after the output is written
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.tick_interval = tick_interval
        self._wake = wake
        self._output: list[bytes] = []
        self._is_receiving = False
        self._reader = FrameReader(max_frame_size)
        self._phase = Phase.HEADER
        self._sends_heartbeats = False
        self._is_heard = True
        self._silence = 0.0

    def emit(self, frame: bytes, payload: bytes = b"") -> None:
        """Add a frame to the output."""
        output = self._output
        if not output and not self._is_receiving:
            self._wake()
        output.append(frame)
        if payload:
            output.append(payload)

    def take_output(self) -> bytes:
        """Return and clear the output."""
        data = b"".join(self._output)
        self._output.clear()
        return data

    def receive(self, data: bytes) -> None:
        """Handle bytes that have arrived."""
        self._is_heard = True
        self._is_receiving = True
        try:
            self._reader.feed(data)
            self._handle()
        except ConnectionViolation as violation:
            self.close(violation)
        except Malformed as malformed:
            self.close(ConnectionViolation(DECODE_ERROR, malformed.description))
        finally:
            self._is_receiving = False
            if self.is_closed:
                self._reader.clear()

    def _handle(self) -> None:
        """Handle the headers and frames that have arrived."""
        while not self.is_closed and (self._phase is not Phase.HEADER or self._read_header()):
            for kind, channel, body in self._reader.frames():
                session = self.sessions.get(channel)
                acceptance = None if session is None or kind == SASL else read_acceptance(body)
                if session is not None and acceptance is not None:
                    session.on_acceptance(*acceptance)
                    continue
                self._on_frame(kind, channel, body)
                if self._phase in _WITHOUT_FRAMES:
                    break
            else:
                return

    def _read_header(self) -> bool:
        """Handle the next header; return whether it has arrived."""
        header = self._reader.next_header()
        if header is not None:
            self._on_header(header)
        return header is not None

    def _on_frame(self, kind: int, channel: int, body: bytes) -> None:
        if self._phase is Phase.SASL:
            self._on_sasl(kind, body)
        elif kind == SASL:
            raise ConnectionViolation(FRAMING_ERROR, "a SASL frame after SASL has ended")
        elif body:
            self._on_performative(channel, body)

    @abstractmethod
    def _on_header(self, header: ProtocolHeader) -> None:
        """Handle the protocol header of the peer."""

    @abstractmethod
    def _on_sasl(self, kind: int, body: bytes) -> None:
        """Handle a frame of SASL."""

    @abstractmethod
    def _on_performative(self, channel: int, body: bytes) -> None:
        """Handle a frame that is not empty."""

    @abstractmethod
    def close(self, failure: AmqpError | None = None) -> None:
        """Close the connection, with a reason unless the peer has closed it."""

    def _send_heartbeats(self, idle_time_out: float, longest: float) -> None:
        """Send heartbeats, twice in the seconds after which the peer gives up, at least every *longest* seconds."""
        self.tick_interval = min(longest, idle_time_out / 2)
        self._sends_heartbeats = True

    def _beat(self) -> float:
        """Send a heartbeat if the peer waits for it; return for how many seconds the peer was silent."""
        is_open = self._phase is Phase.OPEN
        if is_open and self._sends_heartbeats:
            self.emit(EMPTY_FRAME)
        self._silence = 0.0 if is_open and self._is_heard else self._silence + self.tick_interval
        self._is_heard = False
        return self._silence
