"""The endpoint document in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_changes
from datetime import UTC, datetime
from pathlib import Path

from busway_clients.endpoints.document import EndpointDocument, read_document, write_document
from busway_clients.endpoints.endpoint import NAMESPACES, EndpointUnresolved
from busway_clients.endpoints.signature import is_signed, public_key_of, signed, verified
from cli.failover.register import FailoverRefused, Standing
from cli.failover.replacing import content_of, locked, replace
from shared.clock import Clock


class EndpointFile:
    """The register in a document; with a private key it is checked, and signed anew when it is changed."""

    def __init__(
        self,
        path: Path,
        roles: Sequence[str],
        clock: Clock,
        *,
        private_key: bytes | None = None,
        key: str = "",
        domains: Sequence[str] = NAMESPACES,
    ) -> None:
        """Use the document in *path* for *roles*; *private_key* is PEM, *key* the id of its public one."""
        self._path = path
        self._roles = roles
        self._clock = clock
        self._private_key = private_key
        self._key = key
        self._domains = domains

    @property
    def where(self) -> str:
        """The file."""
        return str(self._path)

    @property
    def loading(self) -> str | None:
        """Nothing: who reads the file has the change."""
        return None

    def read(self) -> Standing:
        """Return what the file says; raises FailoverRefused for what cannot be understood."""
        return self._standing(self._document())

    def changes(self, roles: Mapping[str, str], standing: Standing) -> Sequence[str]:
        """Return the members before and after, the serial last; raises FailoverRefused for what cannot be."""
        document = self._document()
        for site in roles.values():
            if site not in document.sites:
                raise FailoverRefused(f"{self._path}: has no endpoints of {site}, got {', '.join(document.sites)}")
        lines = [
            f"active.{role}: {standing.active[role]} -> {site}"
            for role, site in roles.items()
            if standing.active[role] != site
        ]
        return [*lines, f"serial: {document.serial} -> {document.serial + 1}"] if lines else []

    def write(self, roles: Mapping[str, str], standing: Standing) -> Standing:
        """Point *roles* to their sites and raise the serial, if the file is as it was; raises FailoverRefused."""
        with locked(self._path):
            document = self._document()
            if str(document.serial) != standing.version:
                told = f"somebody has changed it meanwhile, expected serial {standing.version}"
                raise FailoverRefused(f"{self._path}: {told}")
            if not self.changes(roles, standing):
                return standing
            changed = with_changes(document, serial=document.serial + 1, active={**document.active, **roles})
            content = write_document(changed)
            replace(self._path, content if self._private_key is None else signed(content, self._private_key, self._key))
        return self.read()

    def _document(self) -> EndpointDocument:
        content = content_of(self._path)
        where = str(self._path)
        try:
            if self._private_key is not None:
                content = verified(content, {self._key: public_key_of(self._private_key)}, where)
            elif is_signed(content, where):
                raise FailoverRefused(f"{where}: is signed, expected key_setting and key_id in failover.yaml")
            return read_document(content, where, self._clock.now(), domains=self._domains)
        except EndpointUnresolved as error:
            raise FailoverRefused(str(error)) from error

    def _standing(self, document: EndpointDocument) -> Standing:
        for role in self._roles:
            if role not in document.active:
                raise FailoverRefused(f"{self._path}: active has no {role!r}, expected a site for it")
        changed = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
        active = {role: document.active[role] for role in self._roles}
        return Standing(active, document.ttl_seconds, str(document.serial), changed)
