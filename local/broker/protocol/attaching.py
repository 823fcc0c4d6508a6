"""Which kind of link an attach asks for."""

import re
from typing import TYPE_CHECKING

from local.broker import errors
from local.broker.config import Right
from local.broker.core.entity_links import Use
from local.broker.core.namespace import Namespace, path_of
from local.broker.core.session_store import SessionStore
from local.broker.core.store import milliseconds
from local.broker.core.usage import check_can_manage, check_can_receive, check_can_send
from local.broker.errors import Refusal
from local.broker.faults import Fault, Operation
from local.broker.protocol import cbs
from local.broker.protocol.consumer_link import ConsumerLink, SessionConsumerLink
from local.broker.protocol.hub_links import HubPublisherLink, HubReaderLink
from local.broker.protocol.hub_management import hub_node
from local.broker.protocol.link import Link, UnansweredLink
from local.broker.protocol.management import entity_node
from local.broker.protocol.performatives import Attach
from local.broker.protocol.publisher_link import PublisherLink
from local.broker.protocol.request_node import Node, RequestLink, ResponseLink, by_text
from local.broker.protocol.struck import perform
from local.broker.protocol.terminus import SESSION_FILTER, address_of, filters_of

if TYPE_CHECKING:
    from local.broker.protocol.session import Session

_MANAGEMENT = "$management"
_CHECKS = {Use.SEND: check_can_send, Use.RECEIVE: check_can_receive, Use.MANAGE: check_can_manage}
_RIGHTS = {
    Use.SEND: frozenset((Right.SEND,)),
    Use.RECEIVE: frozenset((Right.LISTEN,)),
    # Which of them an operation asks for is seen when it comes.
    Use.MANAGE: frozenset(Right),
}
_HUB_RECEIVER = re.compile(r"(?P<hub>.+)/consumergroups/(?P<group>[^/]+)/partitions/(?P<partition>[^/]+)")
_HUB_SENDER = re.compile(r"(?P<hub>.+?)(?:/partitions/(?P<partition>[^/]+))?")


def create_link(session: "Session", attach: Attach) -> Link:
    """Return the link that an attach asks for, not yet open; a Refusal if there cannot be one."""
    namespace = session.connection.namespace
    address = address_of(attach.source if attach.role else attach.target)
    if address is None:
        raise Refusal(errors.INVALID_FIELD, "the link has no address, expected that of an entity")
    path = path_of(address)
    if path == cbs.ADDRESS:
        return _node_link(session, attach, cbs.token_node(session.connection.claims))
    if path == _MANAGEMENT:
        session.connection.claims.check_any()
        return _node_link(session, attach, hub_node(namespace))
    if path.endswith(f"/{_MANAGEMENT}"):
        node = entity_node(namespace, path.removesuffix(f"/{_MANAGEMENT}"), session.connection.claims)
        return _used(_node_link(session, attach, node), path.removesuffix(f"/{_MANAGEMENT}"), Use.MANAGE)
    if namespace.faults.is_set:
        fault = namespace.faults.strike(Operation.ATTACH, path)
        if fault is not None:
            return _struck(fault, session, attach, path)
    return _entity_link(session, attach, path)


def _struck(fault: Fault, session: "Session", attach: Attach, path: str) -> Link:
    def refuse(refusal: Refusal) -> Link:
        raise refusal

    link = perform(fault, session.connection, path, lambda: _entity_link(session, attach, path), refuse)
    return UnansweredLink(session, attach) if link is None else link


def _entity_link(session: "Session", attach: Attach, path: str) -> Link:
    link = _receiver(session, attach, path) if attach.role else _sender(session, attach, path)
    return _used(link, path, Use.RECEIVE if attach.role else Use.SEND)


def _node_link(session: "Session", attach: Attach, node: Node) -> Link:
    return ResponseLink(session, attach, node) if attach.role else RequestLink(session, attach, node)


def _used(link: Link, path: str, use: Use) -> Link:
    """Return a link to the entity at *path*, noted there; a Refusal if the entity may not be used so, or not by it."""
    namespace = link.session.connection.namespace
    link.path = path
    link.rights = _RIGHTS[use]
    link.session.connection.claims.check(path, link.rights)
    if not isinstance(link, HubReaderLink | HubPublisherLink):
        entity = namespace.entity_of(path)
        _CHECKS[use](entity.path, entity.config.status)
        entity.times.accessed_at = milliseconds(namespace.clock)
        if use is Use.RECEIVE:
            _check_has_room(namespace, entity.path.lower())
        namespace.links.join(entity.path.lower(), use, link)
    return link


def _check_has_room(namespace: Namespace, path: str) -> None:
    """Raise a Refusal where the entity, or the topic it belongs to, has as many receivers as it may."""
    limit = namespace.config.max_receivers
    if limit is None:
        return
    owner = path.partition("/subscriptions/")[0]
    if namespace.links.count(owner, Use.RECEIVE) >= limit:
        raise Refusal(errors.RESOURCE_LIMIT_EXCEEDED, f"{owner} has {limit} receivers, expected no more")


def _receiver(session: "Session", attach: Attach, path: str) -> Link:
    namespace = session.connection.namespace
    hub = _HUB_RECEIVER.fullmatch(path)
    if hub is not None:
        return HubReaderLink(session, attach, namespace.hub(hub["hub"]), hub["group"], hub["partition"])
    store = namespace.store(path)
    filters = filters_of(attach.source)
    if SESSION_FILTER not in filters:
        return ConsumerLink(session, attach, store)
    if not isinstance(store, SessionStore):
        raise Refusal(
            errors.NOT_ALLOWED, f"{store.path}: it does not require sessions, expected a receiver without one"
        )
    properties = {} if attach.properties is None else by_text(attach.properties)
    timeout = properties.get("com.microsoft:timeout")
    milliseconds = timeout.payload if timeout is not None and isinstance(timeout.payload, int) else None
    session_id = filters[SESSION_FILTER].payload
    return SessionConsumerLink(
        session, attach, store, session_id if isinstance(session_id, str) else None, milliseconds
    )


def _sender(session: "Session", attach: Attach, path: str) -> Link:
    namespace = session.connection.namespace
    hub = _HUB_SENDER.fullmatch(path)
    if hub is not None and hub["hub"] in namespace.hubs:
        return HubPublisherLink(session, attach, namespace.hub(hub["hub"]), hub["partition"])
    entity = namespace.target(path)
    return PublisherLink(session, attach, entity, namespace.max_message_size(entity))
