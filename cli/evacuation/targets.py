"""Receivers of the target, which set messages aside there and hold sessions while they are moved."""

import asyncio
from collections.abc import Mapping

from shared.clock import Clock
from shared.resend.places import Place
from shared.resend.receiver import Receiver, unavailable
from shared.resend.source import SessionUnavailable

TIMEOUT_SECONDS = 30.0
# The shortest lock of a session is five seconds.
_RENEWAL_SECONDS = 2.0


class TargetReceivers:
    """One receiver at a time: of the target, or of one of its sessions."""

    def __init__(self, place: Place, settings: Mapping[str, str], clock: Clock | None = None) -> None:
        """Receive from *place*."""
        self._clock = clock
        self._place = place
        self._settings = settings
        self._receiver: Receiver | None = None
        self._renewed = 0.0

    async def of(self, session_id: str | None) -> Receiver:
        """Return the receiver of the entity, or of a session, which it locks; raises SessionUnavailable."""
        if self._receiver is None or self._receiver.session_id != session_id:
            await self.close()
            opened = Receiver(self._place, self._settings, session_id, clock=self._clock)
            try:
                await opened.__aenter__()
            except SessionUnavailable as error:
                raise SessionUnavailable(f"its session is locked by a receiver of {self._place}") from error
            self._receiver, self._renewed = opened, asyncio.get_running_loop().time()
        return self._receiver

    async def keep(self) -> None:
        """Renew the lock of the session; raises TargetUnavailable if it was lost."""
        receiver, now = self._receiver, asyncio.get_running_loop().time()
        if receiver is None or receiver.session_id is None or now < self._renewed + _RENEWAL_SECONDS:
            return
        with unavailable(self._place):
            await receiver.management.renew_session_lock(receiver.session_id, TIMEOUT_SECONDS)
        self._renewed = now

    async def close(self) -> None:
        """Close the receiver; a session is free again."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.__aexit__(None, None, None)
