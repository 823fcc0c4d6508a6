"""The endpoint document in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_changes
from datetime import UTC, datetime, timedelta
from pathlib import Path

from busway_clients.endpoints.document import EndpointDocument, read_document, write_document
from busway_clients.endpoints.endpoint import NAMESPACES, EndpointUnresolved
from busway_clients.endpoints.signature import is_signed, public_key_of, sign, verify
from cli.failover.atomic_file import lock, read_file, replace_file
from cli.failover.register import FailoverRefused, RegisterState
from shared.clock import Clock


class EndpointFile:
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
    ) -> None:
        """
        Use the document in *path* for *roles*; *private_key* is PEM, *key* the id of its public one.

        With a *validity* each change lets the document expire that much later, and one that has expired can be changed.
        """
        self._path = path
        self._roles = roles
        self._clock = clock
        self._private_key = private_key
        self._key = key
        self._validity = validity

    @property
    def where(self) -> str:
        """The file."""
        return str(self._path)

    @property
    def reload_command(self) -> str | None:
        """Nothing: a change is visible to all readers of the file."""
        return None

    def read(self) -> RegisterState:
        """Return the content of the file; raises FailoverRefused if it is invalid."""
        return self._state(self._document())

    def changes(self, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        """Return the old and new values, the serial last; raises FailoverRefused for an unknown site."""
        document = self._document()
        for site in roles.values():
            if site not in document.sites:
                raise FailoverRefused(f"{self._path}: has no endpoints of {site}, got {', '.join(document.sites)}")
        lines = [
            f"active.{role}: {state.active[role]} -> {site}"
            for role, site in roles.items()
            if state.active[role] != site
        ]
        if self._needs_renewal(document):
            lines.append(f"expires: {_text(document.expires)} -> {_text(self._expires(document))}")
        return [*lines, f"serial: {document.serial} -> {document.serial + 1}"] if lines else []

    def write(self, roles: Mapping[str, str], state: RegisterState) -> RegisterState:
        """Point *roles* to their sites and raise the serial, if the file is unchanged; raises FailoverRefused."""
        with lock(self._path):
            document = self._document()
            if str(document.serial) != state.version:
                text = f"someone else has changed it, expected serial {state.version}"
                raise FailoverRefused(f"{self._path}: {text}")
            if not self.changes(roles, state):
                return state
            changed = with_changes(
                document,
                serial=document.serial + 1,
                active={**document.active, **roles},
                expires=self._expires(document),
            )
            content = write_document(changed)
            replace_file(
                self._path, content if self._private_key is None else sign(content, self._private_key, self._key)
            )
        return self.read()

    def _expires(self, document: EndpointDocument) -> datetime | None:
        if self._validity is None:
            return document.expires
        return (self._clock.now() + self._validity).replace(microsecond=0)

    def _needs_renewal(self, document: EndpointDocument) -> bool:
        """Return whether less than half of the validity is left, so that a switch to the active site renews it."""
        if self._validity is None:
            return False
        return document.expires is None or document.expires < self._clock.now() + self._validity / 2

    def _document(self) -> EndpointDocument:
        content = read_file(self._path)
        where = str(self._path)
        try:
            if self._private_key is not None:
                content = verify(content, {self._key: public_key_of(self._private_key)}, where)
            elif is_signed(content, where):
                raise FailoverRefused(f"{where}: is signed, expected key_setting and key_id in failover.yaml")
            # With a validity, an expired document is one to renew, in the middle of an outage perhaps.
            now = self._clock.now() if self._validity is None else datetime.min.replace(tzinfo=UTC)
            return read_document(content, where, now, domains=NAMESPACES)
        except EndpointUnresolved as error:
            raise FailoverRefused(str(error)) from error

    def _state(self, document: EndpointDocument) -> RegisterState:
        for role in self._roles:
            if role not in document.active:
                raise FailoverRefused(f"{self._path}: active has no {role!r}, expected a site for it")
        changed = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
        active = {role: document.active[role] for role in self._roles}
        return RegisterState(active, document.ttl_seconds, str(document.serial), changed)


def _text(time: datetime | None) -> str:
    return "never" if time is None else time.astimezone(UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
