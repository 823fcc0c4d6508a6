"""Sources and targets: the address, and the filters of a source."""

from shared.amqp.codec import items_of, pairs_of
from shared.amqp.fields import fields_of
from shared.amqp.values import Described, Value, described, list_, map_, string

SESSION_FILTER = "com.microsoft:session-filter"
SELECTOR_FILTER = "apache.org:selector-filter:string"
_COORDINATOR = 0x30
_FILTER = 7


def address_of(terminus: Value | None) -> str | None:
    """Return the address of a source or target, None without one."""
    if terminus is None:
        return None
    return fields_of(terminus, "terminus")[1].text(0)


def is_coordinator(target: Value | None) -> bool:
    """Return whether a target is the coordinator of transactions (part 4, section 4.5.1)."""
    return target is not None and fields_of(target, "target")[0] == _COORDINATOR


def filters_of(source: Value | None) -> dict[str, Value]:
    """Return the filters of a source by name, without their descriptors."""
    if source is None:
        return {}
    _, fields = fields_of(source, "source")
    filters = fields.value(_FILTER)
    if filters is None or filters.kind != "map":
        return {}
    return {key.payload: _bare(value) for key, value in pairs_of(filters) if isinstance(key.payload, str)}


def with_session_id(source: Value | None, session_id: str) -> Value:
    """Return a source whose session filter names the accepted session."""
    assert source is not None  # noqa: S101 - its filter asked for a session
    assert isinstance(source.payload, Described)  # noqa: S101 - filters_of has read it as one
    items = list(items_of(source.payload.value))
    pairs = [
        (key, _naming(value, session_id) if key.payload == SESSION_FILTER else value)
        for key, value in pairs_of(items[_FILTER])
    ]
    items[_FILTER] = map_(pairs)
    return described(source.payload.descriptor, list_(items))


def _naming(peers: Value, session_id: str) -> Value:
    # As the peer has written it: .NET reads a plain string, Go only a described one.
    if isinstance(peers.payload, Described):
        return described(peers.payload.descriptor, string(session_id))
    return string(session_id)


def _bare(value: Value) -> Value:
    while isinstance(value.payload, Described):
        value = value.payload.value
    return value
