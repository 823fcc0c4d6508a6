"""The kind of link that an attach asks for."""

import re
from datetime import timedelta

from busway_broker import errors
from busway_broker.config import Right
from busway_broker.core.entities import Topic
from busway_broker.core.namespace import Entity, Namespace, path_of, top_level
from busway_broker.core.on_demand import create_missing
from busway_broker.core.session_store import SessionStore
from busway_broker.core.usage import Use, check_can
from busway_broker.errors import Refusal
from busway_broker.faults import Operation
from busway_broker.protocol.consumer_link import ConsumerLink, SessionConsumerLink
from busway_broker.protocol.coordinator_link import CoordinatorLink
from busway_broker.protocol.fault_effects import under_faults
from busway_broker.protocol.hub_links import HubPublisherLink, HubReaderLink, hub_node
from busway_broker.protocol.link import Link, UnansweredLink
from busway_broker.protocol.link_session import LinkSession
from busway_broker.protocol.management import entity_node
from busway_broker.protocol.publisher_link import PublisherLink, TransferLink
from busway_broker.protocol.request_links import TOKENS, RequestLink, ResponseLink, token_node
from busway_broker.protocol.requests import Node, by_text
from busway_broker.protocol.terminus import SESSION_FILTER, address_of, filters_of, is_coordinator
from shared.amqp.errors import INVALID_FIELD, NOT_ALLOWED
from shared.amqp.performatives import Attach

_MANAGEMENT = "$management"
# Of a sender that sends via the entity it is attached to.
_DESTINATION = "com.microsoft:transfer-destination-address"
_RIGHTS = {
    Use.SEND: frozenset((Right.SEND,)),
    Use.RECEIVE: frozenset((Right.LISTEN,)),
    # Each operation checks the right that it needs.
    Use.MANAGE: frozenset(Right),
}
_HUB_RECEIVER = re.compile(r"(?P<hub>.+)/consumergroups/(?P<group>[^/]+)/partitions/(?P<partition>[^/]+)")
_HUB_SENDER = re.compile(r"(?P<hub>.+?)(?:/partitions/(?P<partition>[^/]+))?")


def create_link(session: LinkSession, attach: Attach) -> Link:
    """Return the link that an attach asks for, not open yet; a Refusal if it is not possible."""
    namespace = session.connection.namespace
    if not attach.role and is_coordinator(attach.target):
        return CoordinatorLink(session, attach)
    address = address_of(attach.source if attach.role else attach.target)
    if address is None:
        raise Refusal(INVALID_FIELD, "the link has no address, expected the address of an entity")
    path = path_of(address)
    if path == TOKENS:
        if attach.role and any(link.node_path == TOKENS for link in session.connection.response_links):
            # Azure/azure-event-hubs-node issue 186
            raise Refusal(NOT_ALLOWED, "A link to the connection's $cbs node has already been opened.")
        return _node_link(session, attach, token_node(session.connection.claims))
    if path == _MANAGEMENT:
        return _node_link(session, attach, hub_node(namespace, session.connection.claims))
    if namespace.config.on_demand is not None:
        _create_missing(session, attach, address)
    if path.endswith(f"/{_MANAGEMENT}"):
        return _management_link(session, attach, path.removesuffix(f"/{_MANAGEMENT}"))
    link = under_faults(
        Operation.ATTACH, session.connection, path, lambda: _entity_link(session, attach, path), _refuse
    )
    return UnansweredLink(session, attach) if link is None else link


def _refuse(refusal: Refusal) -> Link:
    raise refusal


def _management_link(session: LinkSession, attach: Attach, path: str) -> Link:
    try:
        node = entity_node(session.connection, path)
    except Refusal as refusal:
        if refusal.condition == errors.NOT_FOUND and "/subscriptions/" in path:
            # Clients wait in vain for a subscription that is missing (azure-sdk-for-net 43492).
            return UnansweredLink(session, attach)
        raise
    return _registered(_node_link(session, attach, node), path, Use.MANAGE)


def _create_missing(session: LinkSession, attach: Attach, address: str) -> None:
    """Create the entity of an attach, if the peer has the right to use it."""
    connection = session.connection
    is_request = path_of(address).endswith(f"/{_MANAGEMENT}")
    use = Use.MANAGE if is_request else Use.RECEIVE if attach.role else Use.SEND
    connection.claims.check(path_of(address), _RIGHTS[use])
    requires_session = use is Use.RECEIVE and SESSION_FILTER in filters_of(attach.source)
    create_missing(connection.namespace, address, requires_session=requires_session)


def _entity_link(session: LinkSession, attach: Attach, path: str) -> Link:
    link = _receiver(session, attach, path) if attach.role else _sender(session, attach, path)
    return _registered(link, path, Use.RECEIVE if attach.role else Use.SEND)


def _node_link(session: LinkSession, attach: Attach, node: Node) -> Link:
    return ResponseLink(session, attach, node) if attach.role else RequestLink(session, attach, node)


def _registered(link: Link, path: str, use: Use) -> Link:
    """Return a link, registered at its entity; a Refusal if the entity does not allow this use, or not to this peer."""
    namespace = link.session.connection.namespace
    limits = namespace.config.links
    link.path = path
    link.rights = _RIGHTS[use]
    link.session.connection.claims.check(path, link.rights)
    if isinstance(link, HubReaderLink | HubPublisherLink):
        check_can(use, link.hub.path, link.hub.config.status)
        if use is Use.SEND and limits.publisher_idle is not None:
            link.idle_limit = limits.publisher_idle // timedelta(milliseconds=1)
        namespace.links.join(link.hub.key, use, link)
    else:
        entity = namespace.entity_of(path)
        check_can(use, entity.path, entity.config.status)
        link.times = entity.times
        if use is not Use.MANAGE and limits.link_idle is not None:
            link.idle_limit = limits.link_idle // timedelta(milliseconds=1)
        if use is Use.RECEIVE:
            _check_forwarding(entity, path)
            _check_has_room(namespace, entity.path.lower())
        # What leaves a $management node counts as received: clients that peek get the refusal.
        link.top_level = link.session.transaction_scope.add(top_level(path), receives=link.peer.role)
        namespace.links.join(entity.path.lower(), use, link)
    return link


def _check_forwarding(entity: Entity, path: str) -> None:
    """Raise a Refusal for a receiver of an entity, or of its dead letters, that forwards them."""
    if isinstance(entity, Topic):
        return
    config, is_whole = entity.config, path.strip("/").lower() == entity.path.lower()
    if (config.forward_to if is_whole else config.forward_dead_lettered_messages_to) is not None:
        raise Refusal(NOT_ALLOWED, "Cannot create a message receiver on an entity with auto-forwarding enabled.")


def _check_has_room(namespace: Namespace, path: str) -> None:
    """Raise a Refusal if the entity, or the topic it belongs to, has its maximum of receivers."""
    limit = namespace.config.max_receivers
    if limit is None:
        return
    owner = path.partition("/subscriptions/")[0]
    if namespace.links.count(owner, Use.RECEIVE) >= limit:
        raise Refusal(errors.RESOURCE_LIMIT_EXCEEDED, f"{owner} has {limit} receivers already, which is its limit")


def _receiver(session: LinkSession, attach: Attach, path: str) -> Link:
    namespace = session.connection.namespace
    hub = _HUB_RECEIVER.fullmatch(path)
    if hub is not None:
        return HubReaderLink(session, attach, namespace.hub(hub["hub"]), hub["group"], hub["partition"])
    store = namespace.store(path)
    filters = filters_of(attach.source)
    if SESSION_FILTER not in filters:
        return ConsumerLink(session, attach, store)
    if not isinstance(store, SessionStore):
        raise Refusal(NOT_ALLOWED, f"{store.path}: it does not require sessions, expected a receiver without a session")
    properties = {} if attach.properties is None else by_text(attach.properties)
    timeout = properties.get("com.microsoft:timeout")
    milliseconds = timeout.payload if timeout is not None and isinstance(timeout.payload, int) else None
    session_id = filters[SESSION_FILTER].payload
    return SessionConsumerLink(
        session, attach, store, session_id if isinstance(session_id, str) else None, milliseconds
    )


def _sender(session: LinkSession, attach: Attach, path: str) -> Link:
    namespace = session.connection.namespace
    hub = _HUB_SENDER.fullmatch(path)
    if hub is not None and hub["hub"] in namespace.hubs:
        return HubPublisherLink(session, attach, namespace.hub(hub["hub"]), hub["partition"])
    entity = namespace.target(path)
    properties = {} if attach.properties is None else by_text(attach.properties)
    destination = properties.get(_DESTINATION)
    if destination is None or not isinstance(destination.payload, str):
        return PublisherLink(session, attach, entity, namespace.max_message_size(entity))
    target = namespace.target(path_of(destination.payload))
    session.connection.claims.check(target.path.lower(), _RIGHTS[Use.SEND])
    return TransferLink(session, attach, entity, namespace.max_message_size(target), target.path)
