"""The route editor: copies values of the body to properties, for the rules of the routes."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from shared.amqp import map_section
from shared.amqp.values import Value, boolean, double, long, string, timestamp
from shared.codecs.json import ExactJson, is_number, read_exact
from shared.editors.content.body import content_of
from shared.editors.options import ExpressionText, MessageStep, Strict
from shared.editors.ordering import FreeName
from shared.errors import MessageRejected
from shared.message.message import Message

type Kind = Literal["string", "long", "double", "boolean", "timestamp"]

_LONGS = range(-(2**63), 2**63)
_LARGEST_DOUBLE = Decimal("1.7976931348623157e308")
# The limit of Service Bus for one property.
_LONGEST = 32 * 1024


class Lifted(Strict):
    """A value of the body that becomes an application property."""

    value: ExpressionText
    """JMESPath expression over the JSON body, such as `customer.address.country`."""
    type: Kind = "string"
    """Type of the property, which the value must fit; a timestamp is a text such as 2030-03-17T17:46:40Z."""
    missing: Literal["reject", "unset"] = "reject"
    """What happens if the value is null or missing: `unset` removes the property."""


class RouteStep(MessageStep):
    """Copies values of the JSON body to application properties, for `when` in the routes; the body stays."""

    keeps_properties: ClassVar[bool] = True
    lifted: Annotated[dict[FreeName, Lifted], Field(min_length=1)] = Field(alias="route")
    """Values by the name of the property, which replaces an existing one."""

    @field_validator("lifted")
    @classmethod
    def _differs(cls, lifted: dict[str, Lifted]) -> dict[str, Lifted]:
        names = [name.lower() for name in lifted]
        twice = [name for name in lifted if names.count(name.lower()) > 1]
        if twice:
            raise ValueError(f"sets {' and '.join(twice)}, expected names that differ in more than case")
        return lifted

    def may_set(self) -> frozenset[str]:
        """Return the properties that are set."""
        return frozenset(map(str.lower, self.lifted))

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message with the properties, which replace those of the sender; raises MessageRejected."""
        body = read_exact(content_of(message))
        values = [(name, _value(name, each, each.value.of(body, message))) for name, each in self.lifted.items()]
        present = map_section.Names(message.sections.application_properties)
        message.set_properties({(present.spellings(name.lower()) or [name])[0]: value for name, value in values})
        return (message,)


def _value(name: str, lifted: Lifted, found: ExactJson) -> Value | None:
    if found is None and lifted.missing == "unset":
        return None
    if found is None:
        raise MessageRejected("ValueMissing", f"there is no value for {name}, expected a {lifted.type}")
    value = _READERS[lifted.type](found)
    if value is None:
        raise MessageRejected("WrongType", f"the value for {name} is not a {lifted.type}, or is out of range")
    return value


def _string(found: ExactJson) -> Value | None:
    if not isinstance(found, str):
        return None
    try:
        return string(found) if len(found.encode()) <= _LONGEST else None
    except UnicodeEncodeError:  # half a character, which JSON can express
        return None


def _long(found: ExactJson) -> Value | None:
    if not is_number(found) or not _LONGS.start <= found < _LONGS.stop or found != int(found):
        return None
    return long(int(found))


def _double(found: ExactJson) -> Value | None:
    return double(float(found)) if is_number(found) and -_LARGEST_DOUBLE <= found <= _LARGEST_DOUBLE else None


def _boolean(found: ExactJson) -> Value | None:
    return boolean(found) if isinstance(found, bool) else None


def _timestamp(found: ExactJson) -> Value | None:
    if not isinstance(found, str):
        return None
    try:
        time = datetime.fromisoformat(found)
        if time.tzinfo is None:
            return None
        since = time.astimezone(UTC) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return timestamp(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_READERS: Mapping[Kind, Callable[[ExactJson], Value | None]] = {
    "string": _string,
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "timestamp": _timestamp,
}
