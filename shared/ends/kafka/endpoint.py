"""
The address of Kafka brokers: a URL such as `kafkas://user:password@broker:9093`, or a namespace of Event Hubs.

Event Hubs has an endpoint for Kafka clients at port 9093, with a connection string as the password or a token of the
app's identity.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from shared.access.setting_form import Fault, SettingForm
from shared.ends.loopback import is_loopback
from shared.ends.namespace import NAMESPACE_SUFFIX, connection_string_fault

_ENCRYPTED = {"kafkas": True, "kafka": False}
_PORTS = {"kafkas": 9093, "kafka": 9092}
_EVENT_HUBS_PORT = 9093
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKENS = "OAUTHBEARER"
"""The SASL mechanism of the app's identity."""
_EMULATOR = "UseDevelopmentEmulator=true"
EXPECTED = (
    "expected kafkas://USER:PASSWORD@HOST:PORT,HOST:PORT with % and two digits for each special character of the"
    " password, or a connection string of Event Hubs"
)


@dataclass(frozen=True, slots=True)
class KafkaEndpoint:
    """Where brokers are and who connects; no repr, error or log line contains the password."""

    servers: str
    is_encrypted: bool
    mechanism: str | None = None
    """The SASL mechanism, None without authentication; OAUTHBEARER for the app's identity."""
    user: str | None = None
    password: str = field(default="", repr=False)
    is_event_hubs: bool = False

    @property
    def namespace(self) -> str:
        """The host of Event Hubs for which a token is requested."""
        return self.servers.rpartition(":")[0]

    def options(self) -> dict[str, object]:
        """Return the options of librdkafka, which contain the password."""
        protocol = ("SASL_" if self.mechanism else "") + ("SSL" if self.is_encrypted else "PLAINTEXT")
        options: dict[str, object] = {"bootstrap.servers": self.servers, "security.protocol": protocol}
        if self.is_encrypted:
            options["ssl.ca.location"] = _authorities()
        if self.mechanism:
            options["sasl.mechanism"] = self.mechanism
        if self.user is not None:
            options |= {"sasl.username": self.user, "sasl.password": self.password}
        return options


def kafka_fault(text: str) -> Fault | None:
    """Return the problem of an address and how to fix it; quotes nothing of it but its hosts."""
    found = _parse(text)
    return found if isinstance(found, tuple) else None


def kafka_endpoint(text: str) -> KafkaEndpoint:
    """Return the endpoint of an address; raises ValueError with the problem."""
    found = _parse(text)
    if isinstance(found, tuple):
        raise ValueError("; ".join(found))  # noqa: TRY004 - the tuple is a fault
    return found


def kafka_endpoint_of(setting: str, settings: Mapping[str, str]) -> KafkaEndpoint:
    """Return the endpoint that an app setting names; raises ValueError with the problem."""
    text = settings.get(setting)
    if text:
        return kafka_endpoint(text)
    namespace = settings[setting + NAMESPACE_SUFFIX]
    return KafkaEndpoint(f"{namespace}:{_EVENT_HUBS_PORT}", is_encrypted=True, mechanism=TOKENS, is_event_hubs=True)


SETTING_FORM = SettingForm(lambda text, _: kafka_fault(text), EXPECTED, NAMESPACE_SUFFIX)


def _parse(text: str) -> KafkaEndpoint | Fault:
    text = text.strip()
    scheme, separator, rest = text.partition("://")
    if scheme.lower().startswith("endpoint="):
        return _event_hubs(text)
    if scheme not in _ENCRYPTED or not separator:
        return "is not a URL of Kafka brokers", EXPECTED
    address, _, query = rest.partition("?")
    credentials, at, hosts = address.rstrip("/").rpartition("@")
    servers = [_server(each, _PORTS[scheme]) for each in hosts.split(",")]
    if not hosts or None in servers or "#" in rest:
        return "is not a URL of Kafka brokers", EXPECTED
    user, colon, password = credentials.partition(":")
    if at and not (user and colon):
        return "has only one of user and password", EXPECTED
    options = dict(parse_qsl(query, keep_blank_values=True))
    mechanism = options.pop("mechanism", "PLAIN")
    if options or mechanism not in _MECHANISMS:
        return "has an unknown option after the ?", f"expected mechanism={' or '.join(_MECHANISMS)}"
    known = ",".join(server for server in servers if server is not None)
    if not _ENCRYPTED[scheme] and not all(is_loopback(each.rpartition(":")[0]) for each in known.split(",")):
        return f"would send messages to {known} unencrypted", "expected kafkas://; kafka:// only for this machine"
    if not at:
        return KafkaEndpoint(known, _ENCRYPTED[scheme])
    return KafkaEndpoint(known, _ENCRYPTED[scheme], mechanism, unquote(user), unquote(password))


def _event_hubs(text: str) -> KafkaEndpoint | Fault:
    fault = connection_string_fault(text)
    if fault is not None:
        return fault
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    endpoint = next(value for name, value in parts.items() if name.lower() == "endpoint")
    host = endpoint.partition("://")[2].rstrip("/").partition(":")[0]
    is_emulator = _EMULATOR.lower() in text.lower()
    if is_emulator and not is_loopback(host):
        problem = f"would send the key and messages to {host} unencrypted"
        return problem, f"remove {_EMULATOR}, which is only for this machine"
    port = _PORTS["kafka"] if is_emulator else _EVENT_HUBS_PORT
    return KafkaEndpoint(f"{host}:{port}", not is_emulator, "PLAIN", "$ConnectionString", text, True)


def _server(text: str, port: int) -> str | None:
    """Return HOST:PORT, None for what is not a host."""
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, number = text, str(port)
    is_host = bool(host) and not any(each in host for each in "/?@ ") and (":" not in host or host.startswith("["))
    return f"{host}:{number}" if is_host and number.isdecimal() and 0 < int(number) < 2**16 else None


def _authorities() -> str:
    """Return the file with the certificates of authorities: that of SSL_CERT_FILE or the system, else certifi's."""
    import certifi  # noqa: PLC0415 - only apps that send to Kafka need it

    return ssl.get_default_verify_paths().cafile or certifi.where()


_LONGEST_TEXT = 200


class Tokens:
    """The callback of librdkafka that requests tokens for a namespace; it is called in a thread of librdkafka."""

    def __init__(self, namespace: str, open_identity: Callable[[], Any]) -> None:
        """Request tokens for *namespace*, a host name."""
        self.error: str | None = None
        """Why there was no token, in the identity's words."""
        self._scope = f"https://{namespace}/.default"
        self._identity = open_identity()

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return a token and its end, to librdkafka."""
        return self.request()

    def request(self) -> tuple[str, float]:
        """Return a token and its end; raises what the identity raises."""
        try:
            found = self._identity.get_token(self._scope)
        except Exception as error:
            self.error = str(error).partition("\n")[0][:_LONGEST_TEXT]
            raise
        self.error = None
        return found.token, float(found.expires_on)


def client_options(endpoint: KafkaEndpoint, identity: Callable[[], Any]) -> tuple[dict[str, object], Tokens | None]:
    """Return the options of librdkafka for an endpoint, and the tokens with which it signs in if it has no password."""
    options = endpoint.options()
    if endpoint.mechanism != TOKENS:
        return options, None
    tokens = Tokens(endpoint.namespace, identity)
    return options | {"oauth_cb": tokens}, tokens
