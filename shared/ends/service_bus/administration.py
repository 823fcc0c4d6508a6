"""
The administration client of azure-servicebus: how it is opened, what its errors mean, and the request that it lacks.

An emulator listens for administration on another port than for messages, over http. By the convention of Microsoft's
emulators, which the local broker follows, that is port 5300 for the namespace on port 5672, 5301 for 5673 and so on.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient, TopicProperties

from shared.ends.look_error import DoesNotExist
from shared.ends.namespace import ADMINISTRATION_SUFFIX, NAMESPACE_SUFFIX, Namespace
from shared.errors import BuswayError, ConfigError, Problem, TargetRefused, TargetUnavailable
from shared.printable import printable

EMULATOR_PORT, EMULATOR_ADMINISTRATION_PORT = 5672, 5300
LONGEST_DUPLICATE_WINDOW = timedelta(days=7)
"""Of Service Bus."""

_SERVICE_BUS = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
_ATOM = "{http://www.w3.org/2005/Atom}"
_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
_ENDPOINT = re.compile(r"(?i)(^|;)\s*Endpoint\s*=\s*([^;]+)")
_EMULATOR = re.compile(r"(?i)(^|;)\s*UseDevelopmentEmulator\s*=\s*true")
_SUB_CODE = re.compile(r"SubCode=(\d{5})")
_DETAIL = re.compile(r"<Detail>(.*?)</Detail>", re.DOTALL)
_LONGEST_DETAIL = 300
_RETRIES = 3
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_CONNECT_SECONDS, _ANSWER_SECONDS = 5, 20
_ROLE = "give the identity the role Azure Service Bus Data Owner, or use a key with the right Manage"
_REMEDIES = {
    40111: ("is closed by its firewall", "admit this address or its subnet in the networking of the namespace"),
    40112: ("is closed by its firewall", "admit this address or its subnet in the networking of the namespace"),
    40300: ("has as many as its quota allows", "delete what is not needed, or take another tier"),
    40301: ("does not allow this now", "wait until it is active, and run the command again"),
    40501: ("has as many SQL filters as a topic may have", "use correlation filters, or another topic"),
    40502: ("has as many correlation filters as a topic may have", "use another topic"),
    40503: ("has as many subscriptions as a topic may have", "use another topic"),
    41000: ("is gone", "run the command again"),
}
"""What an answer means, and what to do, by its sub-code: ManagementClientConstants of azure-service-bus-dotnet."""
_FIREWALL, _QUOTA = 40111, 40300
_IN_PROGRESS = 40901


class IsBeingChanged(TargetUnavailable):
    """Somebody else changes the entity at this moment: the same request may pass a little later."""


class _PlainTransport(RequestsTransport):  # type: ignore[misc]  # azure-core imports it lazily, without a type
    """Requests over http: the client itself always asks for https."""

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


class _PlainAioTransport(AioHttpTransport):  # type: ignore[misc]  # as above
    """The same for the asynchronous client."""

    async def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **options)


def administration_client(setting: str, settings: Mapping[str, str]) -> ServiceBusAdministrationClient:
    """
    Return a client for the namespace that an app setting names; raises ConfigError.

    With ADMINISTRATION_SUFFIX behind its name, a setting has another address, such as http://localhost:5300.
    SSL_CERT_FILE names the certificate that an https address of this machine is trusted by, as for messages.
    """
    namespace = Namespace.of(setting, settings)
    options: dict[str, Any] = {
        "retry_total": _RETRIES,
        # Somebody waits: a namespace that accepts a connection and is silent is reported.
        "retry_connect": 1,
        "retry_read": 0,
        "connection_timeout": _CONNECT_SECONDS,
        "read_timeout": _ANSWER_SECONDS,
    }
    authority = settings.get("SSL_CERT_FILE")
    if authority:
        options["connection_verify"] = authority
    text = namespace.connection_string
    if text is None:
        return namespace.open(ServiceBusAdministrationClient, **options)
    address = settings.get(setting + ADMINISTRATION_SUFFIX) or _emulator_address(text)
    if address is not None:
        text, is_plain = _at(address, text)
        if is_plain:
            options["transport"] = _PlainTransport(**options)
    return Namespace(setting, text).open(ServiceBusAdministrationClient, **options)


def administration_opener(setting: str, settings: Mapping[str, str]) -> Callable[[], AsyncAdministrationClient] | None:
    """Return what opens an asynchronous client; None for an emulator if its address is unknown. Raises ConfigError."""
    namespace = Namespace.of(setting, settings)
    connection_string = namespace.connection_string
    address = settings.get(setting + ADMINISTRATION_SUFFIX)
    if connection_string and _EMULATOR.search(connection_string) and not address:
        return None

    def open_client() -> AsyncAdministrationClient:
        if connection_string:
            text, is_plain = _at(address, connection_string) if address else (connection_string, False)
            options: dict[str, Any] = {"transport": _PlainAioTransport()} if is_plain else {}
            return Namespace(setting, text).open(AsyncAdministrationClient, retry_total=0, **options)
        return namespace.open(AsyncAdministrationClient, retry_total=0)

    return open_client


def _at(address: str, connection_string: str) -> tuple[str, bool]:
    """Return the connection string for an address, and whether requests go over http."""
    place = urlsplit(address)
    if place.scheme not in {"http", "https"} or not place.netloc:
        raise ConfigError([Problem(address, "is no address, expected one like http://localhost:5300")])
    is_plain = place.scheme == "http"
    if is_plain and place.hostname not in {"localhost", "127.0.0.1", "::1"}:
        raise ConfigError([Problem(f"http://{place.netloc}", "is not on this machine, expected https")])
    return _ENDPOINT.sub(lambda match: f"{match[1]}Endpoint=sb://{place.netloc}", connection_string), is_plain


def host_of(setting: str, settings: Mapping[str, str]) -> str:
    """Return the host that an app setting names, for people; empty if it is missing or invalid."""
    match = _ENDPOINT.search(settings.get(setting, ""))
    if match is None:
        return settings.get(setting + NAMESPACE_SUFFIX, "")
    return urlsplit(match[2].strip()).netloc


def _emulator_address(connection_string: str) -> str | None:
    """Return where an emulator listens for administration, None for a namespace in Azure."""
    if not _EMULATOR.search(connection_string):
        return None
    match = _ENDPOINT.search(connection_string)
    place = urlsplit(match[2].strip() if match else "")
    port = EMULATOR_ADMINISTRATION_PORT + (place.port or EMULATOR_PORT) - EMULATOR_PORT
    return f"http://{place.hostname}:{port}"


def queue_or_topic(client: ServiceBusAdministrationClient, name: str) -> QueueProperties | TopicProperties:
    """Return what has this name; raises the SDK's errors, ResourceNotFoundError if nothing has."""
    try:
        return client.get_queue(name)
    except (ResourceNotFoundError, AttributeError):  # the SDK fails on the description of a topic
        return client.get_topic(name)


def duplicate_window(setting: str, settings: Mapping[str, str], place: str, entity: str) -> timedelta | None:
    """
    Return how long a queue or topic of the namespace in an app setting remembers ids, None if it detects no duplicates.

    Raises BuswayError about *place*.
    """
    with translating(place), administration_client(setting, settings) as client:
        found = queue_or_topic(client, entity)
    if not found.requires_duplicate_detection:
        return None
    window = found.duplicate_detection_history_time_window
    return window if isinstance(window, timedelta) else LONGEST_DUPLICATE_WINDOW


def create_subscription_with_rule(
    client: ServiceBusAdministrationClient,
    topic: str,
    subscription: str,
    settings: Mapping[str, str],
    *,
    rule: str,
    sql_filter: str,
    action: str | None,
) -> None:
    """
    Create a subscription whose only rule, from its first message on, is the given one.

    Shape:   *settings* by the elements of the description, as text.
    Raises:  the SDK's errors, as its own methods do.
    Source:  AdministrationClient of Azure.Messaging.ServiceBus, which sends DefaultRuleDescription in this place. The
             Python client cannot, and Azure ignores an element that is out of order (azure-sdk-for-java, 40328).
    """
    entry = ET.Element(f"{_ATOM}entry")
    content = ET.SubElement(entry, f"{_ATOM}content", {"type": "application/xml"})
    description = ET.SubElement(content, f"{_SERVICE_BUS}SubscriptionDescription")
    for name in _BEFORE_THE_RULE:
        if name in settings:
            ET.SubElement(description, _SERVICE_BUS + name).text = settings[name]
    first = ET.SubElement(description, f"{_SERVICE_BUS}DefaultRuleDescription")
    _sql(ET.SubElement(first, f"{_SERVICE_BUS}Filter", {_TYPE: "SqlFilter"}), sql_filter)
    if action is None:
        ET.SubElement(first, f"{_SERVICE_BUS}Action", {_TYPE: "EmptyRuleAction"})
    else:
        _sql(ET.SubElement(first, f"{_SERVICE_BUS}Action", {_TYPE: "SqlRuleAction"}), action)
    ET.SubElement(first, f"{_SERVICE_BUS}Name").text = rule
    for name in _AFTER_THE_RULE:
        if name in settings:
            ET.SubElement(description, _SERVICE_BUS + name).text = settings[name]
    unknown = settings.keys() - {*_BEFORE_THE_RULE, *_AFTER_THE_RULE}
    if unknown:
        raise ValueError(f"unknown elements of a subscription: {', '.join(sorted(unknown))}")
    client._impl.subscription.put(topic, subscription, entry)  # type: ignore[arg-type]


_BEFORE_THE_RULE = (
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
)
_AFTER_THE_RULE = (
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
)


def _sql(element: ET.Element, text: str) -> None:
    ET.SubElement(element, f"{_SERVICE_BUS}SqlExpression").text = text
    ET.SubElement(element, f"{_SERVICE_BUS}CompatibilityLevel").text = "20"


@contextmanager
def translating(place: str) -> Iterator[None]:
    """Raise the errors of the SDK inside the block as `translated` returns them."""
    try:
        yield
    except AzureError as error:
        raise translated(error, place) from error


def translated(error: AzureError, place: str) -> BuswayError:
    """Return the error of the administration of *place* by its remedy: what to do is its last words."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    detail = _detail(error)
    if status is None and isinstance(error, ClientAuthenticationError):
        return TargetRefused(f"{place}: no token: {detail} (sign in with az login, or set a connection string)")
    code = _sub_code(error, detail)
    if code in _REMEDIES:
        what, remedy = _REMEDIES[code]
        return TargetRefused(f"{place}: {what}: {detail} ({remedy})")
    if status == HTTPStatus.UNAUTHORIZED:
        return TargetRefused(f"{place}: does not know this key or identity: {detail} ({_ROLE})")
    if status == HTTPStatus.NOT_FOUND:
        return DoesNotExist(f"{place}: does not exist: {detail} (check the name, or run the command again)")
    if status == HTTPStatus.CONFLICT:
        kind = IsBeingChanged if code == _IN_PROGRESS else TargetUnavailable
        return kind(f"{place}: is being changed by someone else, or exists meanwhile: {detail} (run the command again)")
    if status == HTTPStatus.BAD_REQUEST:
        return TargetRefused(f"{place}: is refused: {detail} (change it in the task or in topology.yaml)")
    if status is not None and status not in _PASSING and status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return TargetRefused(f"{place}: answered {status}: {detail} (the quota or the tier may not allow it)")
    return TargetUnavailable(f"{place}: cannot be reached: {detail} (check the address and the network, then repeat)")


def _sub_code(error: AzureError, detail: str) -> int | None:
    """
    Return the sub-code of an answer, which says more than its status, None without one.

    A 401 may be the firewall, and a 403 is a quota or a state, never a missing right.
    """
    match = _SUB_CODE.search(detail) or _SUB_CODE.search(_document(error))
    if "Ip has been prevented" in detail:
        return _FIREWALL
    if match is None and isinstance(error, HttpResponseError) and error.status_code == HTTPStatus.FORBIDDEN:
        return _QUOTA
    return None if match is None else int(match[1])


def _document(error: AzureError) -> str:
    # The client drops the document of some answers from its own text.
    response = error.response if isinstance(error, HttpResponseError) else None
    return "" if response is None else response.text()


def _detail(error: AzureError) -> str:
    """Return what the service says, in one line, without the document around it."""
    message = str(error.message)
    match = _DETAIL.search(_document(error)) or _DETAIL.search(message)
    text = match[1] if match else message.splitlines()[0] if message else type(error).__name__
    text = printable(" ".join(text.split())).rstrip(".")
    return text if len(text) <= _LONGEST_DETAIL else text[:_LONGEST_DETAIL] + "…"
