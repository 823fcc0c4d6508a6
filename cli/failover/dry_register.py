"""A register for dry runs: it notes the changes, and the real one stays as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cli.failover.register import Register, RegisterState
from shared.clock import Clock


class DryRegister:
    """Answers as a register that has been changed would; see `cli.failover.register.Register`."""

    def __init__(self, register: Register, clock: Clock) -> None:
        """Read from *register*."""
        self.noted: list[str] = []
        """A line for each change that was not made."""
        self._register = register
        self._clock = clock

    @property
    def where(self) -> str:
        """Its name in messages."""
        return self._register.where

    @property
    def reload_command(self) -> str | None:
        """What an operator must do after a change."""
        return self._register.reload_command

    def read(self) -> RegisterState:
        """Return the content of the real register."""
        return self._register.read()

    def changes(self, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        """Return a line for each change that `write` would make."""
        return self._register.changes(roles, state)

    def write(self, roles: Mapping[str, str], state: RegisterState) -> RegisterState:
        """Note the changes, and return the state that they would lead to."""
        self.noted += self._register.changes(roles, state)
        changed = None if state.changed is None else self._clock.now()
        return replace(state, active={**state.active, **roles}, changed=changed)
