"""The endpoint document in a file."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from dataclasses import replace as with_changes
from datetime import UTC, datetime, timedelta
from pathlib import Path

from busway_clients.endpoints.document import EndpointDocument, read_document, write_document
from busway_clients.endpoints.endpoint import NAMESPACES, EndpointUnresolved
from busway_clients.endpoints.signature import is_signed, public_key_of, sign, verify
from cli.failover.atomic_file import lock, read_file, replace_file
from cli.failover.register import FailoverRefused, Register, RegisterState
from shared.clock import Clock


@dataclass
class EndpointFile(Register[EndpointDocument]):
    """
    The register in a JSON document; with a private key it verifies the signature, and signs each change.

    With a validity each change lets the document expire that much later. A signed one that has expired is changed only
    if it has the renewed serial: who can write the file could put back an old one, to have it signed again.
    """

    path: Path
    roles: Sequence[str]
    clock: Clock
    _: KW_ONLY
    private_key: bytes | None = None
    """In PEM."""
    key: str = ""
    """The id of the public one."""
    validity: timedelta | None = None
    renewed_serial: int | None = None

    def __post_init__(self) -> None:
        self.where = str(self.path)

    def _turn(self) -> AbstractContextManager[None]:
        return lock(self.path)

    def _changes(self, content: EndpointDocument, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        for site in roles.values():
            if site not in content.sites:
                raise FailoverRefused(f"{self.path}: has no endpoints of {site}, got {', '.join(content.sites)}")
        lines = [
            f"active.{role}: {state.active[role]} -> {site}"
            for role, site in roles.items()
            if state.active[role] != site
        ]
        # A switch to the active site renews it, once less than half of the validity is left.
        renewal = None if self.validity is None else self.clock.now() + self.validity / 2
        if renewal is not None and (content.expires is None or content.expires < renewal):
            lines.append(f"expires: {_text(content.expires)} -> {_text(self._expires(content))}")
        return [*lines, f"serial: {content.serial} -> {content.serial + 1}"] if lines else []

    def _point(self, content: EndpointDocument, roles: Mapping[str, str]) -> None:
        changed = with_changes(
            content, serial=content.serial + 1, active={**content.active, **roles}, expires=self._expires(content)
        )
        written = write_document(changed)
        replace_file(self.path, written if self.private_key is None else sign(written, self.private_key, self.key))

    def _expires(self, document: EndpointDocument) -> datetime | None:
        if self.validity is None:
            return document.expires
        return (self.clock.now() + self.validity).replace(microsecond=0)

    def _content(self) -> EndpointDocument:
        content, where = read_file(self.path), self.where
        try:
            if self.private_key is not None:
                content = verify(content, {self.key: public_key_of(self.private_key)}, where)
            elif is_signed(content, where):
                raise FailoverRefused(f"{where}: is signed, expected key_setting and key_id in failover.yaml")
            # With a validity, an expired document is one to renew, in the middle of an outage perhaps.
            now = self.clock.now() if self.validity is None else datetime.min.replace(tzinfo=UTC)
            document = read_document(content, where, now, domains=NAMESPACES)
        except EndpointUnresolved as error:
            raise FailoverRefused(str(error)) from error
        has_expired = document.expires is not None and document.expires <= self.clock.now()
        if has_expired and self.private_key is not None and document.serial != self.renewed_serial:
            text = f"has expired at {_text(document.expires)}, and an old copy looks the same"
            hint = f"if {document.serial} is its last serial, renew it with `busway failover switch` and --renew-serial"
            raise FailoverRefused(f"{where}: {text}; {hint} {document.serial}")
        return document

    def _state(self, content: EndpointDocument) -> RegisterState:
        for role in self.roles:
            if role not in content.active:
                raise FailoverRefused(f"{self.path}: active has no {role!r}, expected a site for it")
        changed = datetime.fromtimestamp(self.path.stat().st_mtime, UTC)
        active = {role: content.active[role] for role in self.roles}
        return RegisterState(active, content.ttl_seconds, str(content.serial), changed)


def _text(time: datetime | None) -> str:
    return "never" if time is None else time.astimezone(UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
