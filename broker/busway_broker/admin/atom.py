"""
The ATOM API of a namespace: requests in, documents out, no sockets.

1. Paths: `<queue or topic>`, `<topic>/Subscriptions/<name>`, and for a rule `…/Rules/<name>` below that.
2. PUT creates an entity; with If-Match it updates an existing one. Lists take $skip and $top, 100 at most, 25 of rules.
3. The answer to a refused request is an Error document whose Code is the status.

Source: Microsoft Learn, "Service Bus REST API"; the administration clients of azure-servicebus and @azure/service-bus.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

from busway_broker import errors
from busway_broker.admin import descriptions, rules
from busway_broker.admin.feed import Entry, write_entry, write_error, write_feed
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
            refusal = Refusal(errors.ARGUMENT_ERROR, str(error))
        except Refusal as error:
            refusal = error
        return refused(refusal, milliseconds(self._namespace.clock))

    def _answer(self, request: AtomRequest) -> AtomResponse:
        path, namespace = request.path.lower(), self._namespace
        if path == "$namespaceinfo":
            _expect(request, "GET")
            content, created = descriptions.describe_namespace(namespace), namespace.created_at
            return self._entry(request, Entry("$namespaceinfo", namespace.name, content, created, created))
        if path in _LISTS:
            entities: Iterable[Queue | Topic] = getattr(namespace, _LISTS[path]).values()
            return self._feed(request, self._all_described(request, entities))
        match = _PATH.fullmatch(request.path)
        if match is None or match["entity"].startswith("$"):
            raise Refusal(errors.NOT_FOUND, f"there is nothing at '{request.path}'")
        if match["rules"]:
            subscription = namespace.subscription(match["entity"], match["subscription"])
            return self._rules(request, subscription, match["rule"])
        if match["subscriptions"]:
            return self._subscriptions(request, match["entity"], match["subscription"])
        name = match["entity"]
        return self._one(
            request,
            lambda: self._described(request, self._queue_or_topic(name)),
            lambda: self._put_entity(request, name),
            lambda: namespace.remove(self._queue_or_topic(name)),
        )

    def _one(
        self, request: AtomRequest, get: Callable[[], Entry], put: Callable[[], Entry], delete: Callable[[], None]
    ) -> AtomResponse:
        """Answer a request for one thing: with it, or after creating, updating or deleting it."""
        match request.method:
            case "GET":
                return self._entry(request, get())
            case "DELETE":
                delete()
                return AtomResponse(HTTPStatus.OK)
            case "PUT":
                entry = put()
                return self._entry(request, entry, HTTPStatus.OK if request.is_update else HTTPStatus.CREATED)
            case _:
                raise _not_allowed(request)

    # Queues and topics

    def _put_entity(self, request: AtomRequest, name: str) -> Entry:
        description = _content(request)
        _check_version(request, description)
        entity: Queue | Topic
        if description.name == "QueueDescription":
            queue = self._namespace.queue(name) if request.is_update else None
            config = descriptions.read_queue(name, description, None if queue is None else queue.config)
            _check_forwarding(request, config)
            if queue is None:
                queue = self._administration.create_queue(config)
            else:
                self._administration.update(queue, config)
            entity = queue
        elif description.name == "TopicDescription":
            topic = self._namespace.topic(name) if request.is_update else None
            described = descriptions.read_topic(name, description, None if topic is None else topic.config)
            if topic is None:
                topic = self._administration.create_topic(described)
            else:
                self._administration.update(topic, replace(described, subscriptions=topic.config.subscriptions))
            entity = topic
        else:
            raise Refusal(
                errors.ARGUMENT_ERROR,
                f"the content is a {description.name}, expected a QueueDescription or TopicDescription",
            )
        return self._described(request, entity)

    def _queue_or_topic(self, name: str) -> Queue | Topic:
        entity = self._namespace.entity(name)
        if isinstance(entity, Subscription):
            raise Refusal(errors.NOT_FOUND, f"queue or topic '{name}' does not exist")
        return entity

    def _described(self, request: AtomRequest, entity: Queue | Topic | Subscription) -> Entry:
        content = descriptions.describe(self._namespace, entity, request.base.partition("://")[2], _version(request))
        title = entity.name if isinstance(entity, Subscription) else entity.path
        return Entry(entity.path, title, content, entity.times.created_at, entity.times.updated_at)

    def _all_described(self, request: AtomRequest, entities: Iterable[Queue | Topic | Subscription]) -> list[Entry]:
        _expect(request, "GET")
        return [self._described(request, each) for each in sorted(entities, key=lambda entity: entity.path.lower())]

    # Subscriptions

    def _subscriptions(self, request: AtomRequest, topic: str, name: str | None) -> AtomResponse:
        namespace = self._namespace
        if name is None:
            return self._feed(request, self._all_described(request, namespace.topic(topic).subscriptions.values()))
        return self._one(
            request,
            lambda: self._described(request, namespace.subscription(topic, name)),
            lambda: self._put_subscription(request, topic, name),
            lambda: namespace.remove(namespace.subscription(topic, name)),
        )

    def _put_subscription(self, request: AtomRequest, topic: str, name: str) -> Entry:
        description = _content(request, "SubscriptionDescription")
        present = self._namespace.subscription(topic, name) if request.is_update else None
        config = descriptions.read_subscription(name, description, None if present is None else present.config)
        _check_forwarding(request, config)
        if present is not None:
            self._administration.update(present, replace(config, rules=present.config.rules))
            return self._described(request, present)
        first_rule = description.child("DefaultRuleDescription")
        definition = None
        if first_rule is not None:
            definition = rules.read_rule(first_rule.child_text("Name") or "$Default", first_rule)
            config = replace(config, rules=())
        subscription = self._administration.create_subscription(topic, config)
        if definition is not None:
            subscription.rule_book.add(definition)
        return self._described(request, subscription)

    # Rules

    def _rules(self, request: AtomRequest, subscription: Subscription, name: str | None) -> AtomResponse:
        book = subscription.rule_book
        if name is None:
            _expect(request, "GET")
            found = [_ruled(subscription, definition) for definition in book.definitions]
            return self._feed(request, found, _MAX_RULES_PAGE)

        def put() -> Entry:
            present = book.find(name) if request.is_update else None
            own_name = name if present is None else present.rule.name
            definition = rules.read_rule(own_name, _content(request, "RuleDescription"))
            if present is None:
                return _ruled(subscription, self._administration.create_rule(subscription, definition))
            return _ruled(subscription, book.replace(definition))

        return self._one(request, lambda: _ruled(subscription, book.find(name)), put, lambda: book.remove(name))

    # Documents

    def _entry(self, request: AtomRequest, entry: Entry, status: int = HTTPStatus.OK) -> AtomResponse:
        return AtomResponse(status, write_entry(entry, request.base, self._namespace.name))

    def _feed(self, request: AtomRequest, entries: list[Entry], most: int = MAX_PAGE) -> AtomResponse:
        skip, top = _number(request, "$skip", 0), max(1, min(_number(request, "$top", most), most))
        namespace = self._namespace
        now = milliseconds(namespace.clock)
        document = write_feed(request.path, entries, skip, top, base=request.base, author=namespace.name, now=now)
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
