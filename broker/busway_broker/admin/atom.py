"""
The ATOM API of a namespace: requests in, documents out, no sockets.

1. Paths: `<queue or topic>`, `<topic>/Subscriptions/<name>`, and for a rule `…/Rules/<name>` below that.
2. PUT creates an entity; with If-Match it updates an existing one. Lists take $skip and $top, 100 at most, 25 of rules.
3. The answer to a refused request is an Error document whose Code is the status.

Source: Microsoft Learn, "Service Bus REST API"; the administration clients of azure-servicebus and @azure/service-bus.
"""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

from busway_broker import errors
from busway_broker.admin import descriptions, rules
from busway_broker.admin.feed import Entry, Page, write_entry, write_error, write_feed
from busway_broker.admin.xml import BadXml, Element, read_xml
from busway_broker.config import QueueConfig, SubscriptionConfig
from busway_broker.core.administration import Administration
from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.namespace import Namespace
from busway_broker.core.rule_book import RuleDefinition
from busway_broker.core.times import milliseconds
from busway_broker.entity_fields import iso_time
from busway_broker.errors import Refusal
from shared.amqp.errors import NOT_ALLOWED, UNAUTHORIZED_ACCESS

MAX_PAGE = 100
_MAX_RULES_PAGE = 25
"""Whatever $top asks for: Azure/azure-service-bus issue 330."""

_PATH = re.compile(
    r"(?P<entity>.+?)(?P<subscriptions>/subscriptions(?:/(?P<subscription>[^/]+)(?P<rules>/rules(?:/(?P<rule>[^/]+))?)?)?)?",
    re.IGNORECASE,
)
_LISTS = {"$resources/queues": "queues", "$resources/topics": "topics"}
_FIREWALL = 40111
_STATUS = {
    errors.NOT_FOUND: HTTPStatus.NOT_FOUND,
    errors.ENTITY_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    UNAUTHORIZED_ACCESS: HTTPStatus.UNAUTHORIZED,
    errors.AUTH_FAILED: HTTPStatus.UNAUTHORIZED,
    errors.RESOURCE_LIMIT_EXCEEDED: HTTPStatus.FORBIDDEN,
}


@dataclass(frozen=True, slots=True)
class AtomRequest:
    """
    A request that passed the access checks.

    Shape:  path is decoded, without slashes at its ends; base is the address that the client uses for the namespace.
    """

    method: str
    path: str
    query: Mapping[str, str]
    is_update: bool
    base: str
    body: bytes
    may_forward: Callable[[str], bool] = lambda _: True
    """Whether the client has the right to send to an entity that is to get what this one forwards."""

    @property
    def host(self) -> str:
        """Return the host and port that the client uses."""
        return self.base.partition("://")[2]


@dataclass(frozen=True, slots=True)
class AtomResponse:
    """A status and a document."""

    status: int
    body: str = ""


def refused(refusal: Refusal, now: int) -> AtomResponse:
    """Return the answer to a refused request."""
    status = _STATUS.get(refusal.condition, HTTPStatus.BAD_REQUEST)
    code = _FIREWALL if "Ip has been prevented" in refusal.description else status.value * 100
    detail = (
        f"SubCode={code}. {refusal.description} "
        f"TrackingId:{uuid.uuid4()}, SystemTracker:busway, Timestamp:{iso_time(now)}"
    )
    return AtomResponse(status, write_error(status, detail))


class Atom:
    """The ATOM API of one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._administration = Administration(namespace)

    def answer(self, request: AtomRequest) -> AtomResponse:
        """Return the answer to a request, an error for one that fails."""
        try:
            return self._answer(request)
        except BadXml as error:
            return self._refused(Refusal(errors.ARGUMENT_ERROR, str(error)))
        except Refusal as refusal:
            return self._refused(refusal)

    def _refused(self, refusal: Refusal) -> AtomResponse:
        return refused(refusal, milliseconds(self._namespace.clock))

    def _answer(self, request: AtomRequest) -> AtomResponse:
        path = request.path.lower()
        if path == "$namespaceinfo" or path in _LISTS:
            _expect(request, "GET")
            return self._namespace_info(request) if path == "$namespaceinfo" else self._list(request, _LISTS[path])
        match = _PATH.fullmatch(request.path)
        if match is None or match["entity"].startswith("$"):
            raise Refusal(errors.NOT_FOUND, f"there is nothing at '{request.path}'")
        if match["rules"]:
            return self._rules(request, match["entity"], match["subscription"], match["rule"])
        if match["subscriptions"]:
            return self._subscriptions(request, match["entity"], match["subscription"])
        return self._entity(request, match["entity"])

    # Namespace

    def _namespace_info(self, request: AtomRequest) -> AtomResponse:
        namespace = self._namespace
        content = descriptions.describe_namespace(namespace)
        entry = Entry("$namespaceinfo", namespace.name, content, namespace.created_at, namespace.created_at)
        return self._entry(request, entry)

    def _list(self, request: AtomRequest, kind: str) -> AtomResponse:
        entities: list[Queue | Topic] = sorted(
            self._namespace.queues.values() if kind == "queues" else self._namespace.topics.values(), key=_path
        )
        return self._feed(request, [self._described(request, entity) for entity in entities])

    # Queues and topics

    def _entity(self, request: AtomRequest, name: str) -> AtomResponse:
        match request.method:
            case "GET":
                return self._entry(request, self._described(request, self._queue_or_topic(name)))
            case "DELETE":
                self._queue_or_topic(name)
                self._administration.delete(name)
                return AtomResponse(HTTPStatus.OK)
            case "PUT":
                description = _content(request)
                _check_version(request, description)
                if description.name == "QueueDescription":
                    return self._put_queue(request, name, description)
                if description.name == "TopicDescription":
                    return self._put_topic(request, name, description)
                raise Refusal(
                    errors.ARGUMENT_ERROR,
                    f"the content is a {description.name}, expected a QueueDescription or TopicDescription",
                )
            case _:
                raise _not_allowed(request)

    def _put_queue(self, request: AtomRequest, name: str, description: Element) -> AtomResponse:
        present = self._namespace.queue(name) if request.is_update else None
        config = descriptions.read_queue(name, description, None if present is None else present.config)
        _check_forwarding(request, config)
        if present is None:
            return self._created(request, self._described(request, self._administration.create_queue(config)))
        self._administration.update(present, config)
        return self._entry(request, self._described(request, present))

    def _put_topic(self, request: AtomRequest, name: str, description: Element) -> AtomResponse:
        present = self._namespace.topic(name) if request.is_update else None
        config = descriptions.read_topic(name, description, None if present is None else present.config)
        if present is None:
            return self._created(request, self._described(request, self._administration.create_topic(config)))
        self._administration.update(present, replace(config, subscriptions=present.config.subscriptions))
        return self._entry(request, self._described(request, present))

    def _queue_or_topic(self, name: str) -> Queue | Topic:
        entity = self._namespace.entity(name)
        if isinstance(entity, Subscription):
            raise Refusal(errors.NOT_FOUND, f"queue or topic '{name}' does not exist")
        return entity

    def _described(self, request: AtomRequest, entity: Queue | Topic) -> Entry:
        namespace, version = self._namespace, _version(request)
        if isinstance(entity, Queue):
            content = descriptions.describe_queue(namespace, entity, request.host, version)
        else:
            content = descriptions.describe_topic(namespace, entity, request.host, version)
        return Entry(entity.path, entity.path, content, entity.times.created_at, entity.times.updated_at)

    # Subscriptions

    def _subscriptions(self, request: AtomRequest, topic: str, name: str | None) -> AtomResponse:
        if name is None:
            _expect(request, "GET")
            subscriptions = sorted(self._namespace.topic(topic).subscriptions.values(), key=_path)
            return self._feed(request, [self._subscribed(request, subscription) for subscription in subscriptions])
        match request.method:
            case "GET":
                return self._entry(request, self._subscribed(request, self._namespace.subscription(topic, name)))
            case "DELETE":
                self._administration.delete_subscription(topic, name)
                return AtomResponse(HTTPStatus.OK)
            case "PUT":
                return self._put_subscription(request, topic, name)
            case _:
                raise _not_allowed(request)

    def _put_subscription(self, request: AtomRequest, topic: str, name: str) -> AtomResponse:
        description = _content(request, "SubscriptionDescription")
        present = self._namespace.subscription(topic, name) if request.is_update else None
        config = descriptions.read_subscription(name, description, None if present is None else present.config)
        _check_forwarding(request, config)
        if present is not None:
            self._administration.update(present, replace(config, rules=present.config.rules))
            return self._entry(request, self._subscribed(request, present))
        first_rule = description.child("DefaultRuleDescription")
        definition = None
        if first_rule is not None:
            definition = rules.read_rule(first_rule.child_text("Name") or "$Default", first_rule)
            config = replace(config, rules=())
        subscription = self._administration.create_subscription(topic, config)
        if definition is not None:
            subscription.rule_book.add(definition)
        return self._created(request, self._subscribed(request, subscription))

    def _subscribed(self, request: AtomRequest, subscription: Subscription) -> Entry:
        content = descriptions.describe_subscription(self._namespace, subscription, request.host)
        times = subscription.times
        return Entry(subscription.path, subscription.name, content, times.created_at, times.updated_at)

    # Rules

    def _rules(self, request: AtomRequest, topic: str, subscription_name: str, name: str | None) -> AtomResponse:
        subscription = self._namespace.subscription(topic, subscription_name)
        book = subscription.rule_book
        if name is None:
            _expect(request, "GET")
            found = [_ruled(subscription, definition) for definition in book.definitions]
            return self._feed(request, found, _MAX_RULES_PAGE)
        match request.method:
            case "GET":
                return self._entry(request, _ruled(subscription, book.find(name)))
            case "DELETE":
                book.remove(name)
                return AtomResponse(HTTPStatus.OK)
            case "PUT" if request.is_update:
                present = book.find(name)
                definition = rules.read_rule(present.rule.name, _content(request, "RuleDescription"))
                return self._entry(request, _ruled(subscription, book.replace(definition)))
            case "PUT":
                definition = self._administration.create_rule(
                    subscription, rules.read_rule(name, _content(request, "RuleDescription"))
                )
                return self._created(request, _ruled(subscription, definition))
            case _:
                raise _not_allowed(request)

    # Documents

    def _entry(self, request: AtomRequest, entry: Entry) -> AtomResponse:
        return AtomResponse(HTTPStatus.OK, write_entry(entry, request.base, self._namespace.name))

    def _created(self, request: AtomRequest, entry: Entry) -> AtomResponse:
        return replace(self._entry(request, entry), status=HTTPStatus.CREATED)

    def _feed(self, request: AtomRequest, entries: list[Entry], most: int = MAX_PAGE) -> AtomResponse:
        page = Page(_number(request, "$skip", 0), max(1, min(_number(request, "$top", most), most)))
        namespace = self._namespace
        now = milliseconds(namespace.clock)
        document = write_feed(request.path, entries, page, base=request.base, author=namespace.name, now=now)
        return AtomResponse(HTTPStatus.OK, document)


def _ruled(subscription: Subscription, definition: RuleDefinition) -> Entry:
    name = definition.rule.name
    content = rules.describe_rule(definition)
    return Entry(f"{subscription.path}/Rules/{name}", name, content, definition.created_at, definition.created_at)


def _content(request: AtomRequest, expected: str | None = None) -> Element:
    entry = read_xml(request.body)
    content = entry.child("content") if entry.name == "entry" else None
    if content is None or len(content.children) != 1:
        raise Refusal(errors.ARGUMENT_ERROR, "the body is not an ATOM entry with one description as its content")
    description = content.children[0]
    if expected is not None and description.name != expected:
        raise Refusal(errors.ARGUMENT_ERROR, f"the content is a {description.name}, expected a {expected}")
    return description


def _version(request: AtomRequest) -> str:
    return request.query.get("api-version", descriptions.LATEST_VERSION)


def _check_version(request: AtomRequest, description: Element) -> None:
    """Raise a Refusal if the description has what the version of the request does not have."""
    since = descriptions.MESSAGE_SIZE_SINCE
    if _version(request) < since and description.child("MaxMessageSizeInKilobytes") is not None:
        raise Refusal(
            errors.ARGUMENT_ERROR,
            f"MaxMessageSizeInKilobytes: api-version {_version(request)} does not have it, expected {since} or later",
        )


def _check_forwarding(request: AtomRequest, config: QueueConfig | SubscriptionConfig) -> None:
    """
    Raise a Refusal if the client may not send to an entity that is to get messages.

    Source: Microsoft Learn, "Autoforwarding: permissions"; the SDKs add a token for the target of each kind.
    """
    for target in (config.forward_to, config.forward_dead_lettered_messages_to):
        if target is not None and not request.may_forward(target):
            text = f"Unauthorized access. 'Send' claim(s) are required for '{target}', the target of the forwarding."
            raise Refusal(UNAUTHORIZED_ACCESS, text)


def _number(request: AtomRequest, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refusal(errors.ARGUMENT_ERROR, f"{name} is '{text}', expected a whole number")
    return int(text)


def _expect(request: AtomRequest, method: str) -> None:
    if request.method != method:
        raise _not_allowed(request)


def _not_allowed(request: AtomRequest) -> Refusal:
    return Refusal(NOT_ALLOWED, f"'{request.path}' does not support {request.method}")


def _path(entity: Queue | Topic | Subscription) -> str:
    return entity.path.lower()
