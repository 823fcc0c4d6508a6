"""The endpoint document in a file."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace as with_changes
from datetime import UTC, datetime, timedelta
from pathlib import Path

from busway_clients.endpoints.document import EndpointDocument, read_document, write_document
from busway_clients.endpoints.endpoint import NAMESPACES, EndpointUnresolved
from busway_clients.endpoints.signature import is_signed, public_key_of, sign, verify
from cli.failover.atomic_file import lock, read_file, replace_file
from cli.failover.register import FailoverRefused, Register, RegisterState
from shared.clock import Clock


class EndpointFile(Register[EndpointDocument]):
    """The register in a JSON document; with a private key it verifies the signature, and signs each change."""

    def __init__(
        self,
        path: Path,
        roles: Sequence[str],
        clock: Clock,
        *,
        private_key: bytes | None = None,
        key: str = "",
        validity: timedelta | None = None,
        renewed_serial: int | None = None,
    ) -> None:
        """
        Use the document in *path* for *roles*; *private_key* is PEM, *key* the id of its public one.

        With a *validity* each change lets the document expire that much later. A signed one that has expired is changed
        only if it has the *renewed_serial*: who can write the file could put back an old one, to have it signed again.
        """
        self._path = path
        self.where = str(path)
        self._roles = roles
        self._clock = clock
        self._private_key = private_key
        self._key = key
        self._validity = validity
        self._renewed_serial = renewed_serial

    def _turn(self) -> AbstractContextManager[None]:
        return lock(self._path)

    def _changes(self, content: EndpointDocument, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        for site in roles.values():
            if site not in content.sites:
                raise FailoverRefused(f"{self._path}: has no endpoints of {site}, got {', '.join(content.sites)}")
        lines = [
            f"active.{role}: {state.active[role]} -> {site}"
            for role, site in roles.items()
            if state.active[role] != site
        ]
        if self._needs_renewal(content):
            lines.append(f"expires: {_text(content.expires)} -> {_text(self._expires(content))}")
        return [*lines, f"serial: {content.serial} -> {content.serial + 1}"] if lines else []

    def _point(self, content: EndpointDocument, roles: Mapping[str, str]) -> None:
        changed = with_changes(
            content, serial=content.serial + 1, active={**content.active, **roles}, expires=self._expires(content)
        )
        written = write_document(changed)
        replace_file(self._path, written if self._private_key is None else sign(written, self._private_key, self._key))

    def _expires(self, document: EndpointDocument) -> datetime | None:
        if self._validity is None:
            return document.expires
        return (self._clock.now() + self._validity).replace(microsecond=0)

    def _needs_renewal(self, document: EndpointDocument) -> bool:
        """Return whether less than half of the validity is left, so that a switch to the active site renews it."""
        if self._validity is None:
            return False
        return document.expires is None or document.expires < self._clock.now() + self._validity / 2

    def _content(self) -> EndpointDocument:
        content, where = read_file(self._path), self.where
        try:
            if self._private_key is not None:
                content = verify(content, {self._key: public_key_of(self._private_key)}, where)
            elif is_signed(content, where):
                raise FailoverRefused(f"{where}: is signed, expected key_setting and key_id in failover.yaml")
            # With a validity, an expired document is one to renew, in the middle of an outage perhaps.
            now = self._clock.now() if self._validity is None else datetime.min.replace(tzinfo=UTC)
            document = read_document(content, where, now, domains=NAMESPACES)
        except EndpointUnresolved as error:
            raise FailoverRefused(str(error)) from error
        has_expired = document.expires is not None and document.expires <= self._clock.now()
        if has_expired and self._private_key is not None and document.serial != self._renewed_serial:
            text = f"has expired at {_text(document.expires)}, and an old copy looks the same"
            hint = f"if {document.serial} is its last serial, renew it with `busway failover switch` and --renew-serial"
            raise FailoverRefused(f"{where}: {text}; {hint} {document.serial}")
        return document

    def _state(self, content: EndpointDocument) -> RegisterState:
        for role in self._roles:
            if role not in content.active:
                raise FailoverRefused(f"{self._path}: active has no {role!r}, expected a site for it")
        changed = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
        active = {role: content.active[role] for role in self._roles}
        return RegisterState(active, content.ttl_seconds, str(content.serial), changed)


def _text(time: datetime | None) -> str:
    return "never" if time is None else time.astimezone(UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
