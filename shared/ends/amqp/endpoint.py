"""The address of an AMQP 1.0 broker, from a URL such as `amqps://user:password@broker:5671`."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from shared.access.setting_form import Fault, SettingForm
from shared.ends.loopback import is_loopback

_PORTS = {"amqps": 5671, "amqp": 5672}
EXPECTED = "expected amqps://USER:PASSWORD@HOST:PORT, with % and two digits for each special character of the password"


@dataclass(frozen=True, slots=True)
class AmqpEndpoint:
    """Where a broker is and who connects; no repr, error or log line contains the password."""

    host: str
    port: int
    is_encrypted: bool
    user: str | None
    virtual_host: str | None
    """The virtual host of RabbitMQ, None for that of its user."""
    _password: str = field(repr=False)

    @property
    def mechanism(self) -> str:
        """The SASL mechanism."""
        return "ANONYMOUS" if self.user is None else "PLAIN"

    @property
    def host_name(self) -> str:
        """What the open frame names as the host."""
        return self.host if self.virtual_host is None else f"vhost:{self.virtual_host}"

    def initial_response(self) -> bytes:
        """Return the initial response of the SASL mechanism, which contains the password."""
        return b"" if self.user is None else f"\0{self.user}\0{self._password}".encode()


def amqp_url_fault(text: str) -> Fault | None:
    """Return the problem of a broker's URL and how to fix it; quotes nothing of it but the scheme and the host."""
    found = _parse(text)
    return found if isinstance(found, tuple) else None


def amqp_endpoint(text: str) -> AmqpEndpoint:
    """Return the endpoint of a URL; raises ValueError with the problem."""
    found = _parse(text)
    if isinstance(found, tuple):
        raise ValueError("; ".join(found))  # noqa: TRY004 - the tuple is a fault
    return found


SETTING_FORM = SettingForm(lambda text, _: amqp_url_fault(text), EXPECTED)


def _parse(text: str) -> AmqpEndpoint | Fault:
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname, url.port
        # Not UTF-8, it would be replaced, and the broker would refuse another password.
        user, password, path = (unquote(part or "", errors="strict") for part in (url.username, url.password, url.path))
    except ValueError:
        # The error's text quotes parts of the URL.
        return "is not a URL", EXPECTED
    if url.scheme not in _PORTS or not host:
        return "is not a URL of an AMQP broker", EXPECTED
    if port == 0:
        return "is not a URL", EXPECTED
    if url.query or url.fragment or "@" in url.path:
        # A password with / and no % ends the host there, and the real one is in the path.
        return "has a ?, # or @ after the host", EXPECTED
    if not _is_host(host):
        return "has a host that is not valid", EXPECTED
    if url.scheme == "amqp" and not is_loopback(host):
        return f"would send the password to {host} unencrypted", "expected amqps://; amqp:// only for this machine"
    if (url.username is None) != (url.password is None) or url.username == "":
        return "has only one of user and password", EXPECTED
    virtual_host = path.removeprefix("/") or None
    return AmqpEndpoint(host, port or _PORTS[url.scheme], url.scheme == "amqps", user or None, virtual_host, password)


def _is_host(host: str) -> bool:
    """Return whether the resolver of names accepts a host; it raises other errors than for an unknown one."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return host.isprintable() and " " not in host
