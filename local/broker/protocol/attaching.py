"""Which kind of link an attach asks for."""

import re
from typing import TYPE_CHECKING

from local.broker import errors
from local.broker.core.namespace import Namespace, path_of
from local.broker.core.session_store import SessionStore
from local.broker.errors import Refusal
from local.broker.protocol import cbs
from local.broker.protocol.consumer_link import ConsumerLink, SessionConsumerLink
from local.broker.protocol.hub_links import HubPublisherLink, HubReaderLink
from local.broker.protocol.hub_management import hub_node
from local.broker.protocol.link import Link
from local.broker.protocol.management import entity_node
from local.broker.protocol.performatives import Attach
from local.broker.protocol.publisher_link import PublisherLink
from local.broker.protocol.request_node import Node, RequestLink, ResponseLink, by_text
from local.broker.protocol.terminus import SESSION_FILTER, address_of, filters_of

if TYPE_CHECKING:
    from local.broker.protocol.session import Session

_MANAGEMENT = "$management"
_HUB_RECEIVER = re.compile(r"(?P<hub>.+)/consumergroups/(?P<group>[^/]+)/partitions/(?P<partition>[^/]+)")
_HUB_SENDER = re.compile(r"(?P<hub>.+?)(?:/partitions/(?P<partition>[^/]+))?")


def create_link(session: "Session", attach: Attach) -> Link:
    """Return the link that an attach asks for, not yet open; a Refusal if there cannot be one."""
    namespace = session.connection.namespace
    address = address_of(attach.source if attach.role else attach.target)
    if address is None:
        raise Refusal(errors.INVALID_FIELD, "the link has no address, expected that of an entity")
    path = path_of(address)
    node = _node(namespace, path)
    if node is not None:
        return ResponseLink(session, attach, node) if attach.role else RequestLink(session, attach, node)
    return _receiver(session, attach, path) if attach.role else _sender(session, attach, path)


def _node(namespace: Namespace, path: str) -> Node | None:
    if path == cbs.ADDRESS:
        return cbs.NODE
    if path == _MANAGEMENT:
        return hub_node(namespace)
    if path.endswith(f"/{_MANAGEMENT}"):
        return entity_node(namespace, path.removesuffix(f"/{_MANAGEMENT}"))
    return None


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
