"""The properties of a message for rules, read from and written to its bytes."""

from dataclasses import replace

from busway_broker.core.content import Content
from shared.amqp.codec import decode, encode
from shared.amqp.scan import join_list, join_map, list_fields, map_entries
from shared.amqp.sections import Sections, descriptor, split
from shared.amqp.values import FALSE, TRUE, Value, int_, long, string, symbol, timestamp, uint, ulong
from shared.rules.errors import RuleEvaluationError

_FIELDS = {
    "MessageId": 0,
    "To": 2,
    "Subject": 3,
    "ReplyTo": 4,
    "CorrelationId": 5,
    "ContentType": 6,
    "SessionId": 10,
    "ReplyToSessionId": 12,
}
_SYMBOL_FIELDS = frozenset(("ContentType",))
_ANNOTATIONS = {
    "PartitionKey": "x-opt-partition-key",
    "ViaPartitionKey": "x-opt-via-partition-key",
    "ScheduledEnqueueTimeUtc": "x-opt-scheduled-enqueue-time",
}
_PROPERTIES_PREFIX = b"\x00\x53\x73"
_APPLICATION_PROPERTIES_PREFIX = b"\x00\x53\x74"
_NULL = b"\x40"


class RuleProperties:
    """
    The properties of one copy of a message while the rules of a subscription process it.

    `content()` has the changes of actions; the session id and partition key that place the copy in this subscription
    stay the sender's.
    """

    def __init__(self, content: Content, sequence_number: int, enqueued_time: int) -> None:
        """Read *content*; the topic has assigned the number and the time in milliseconds."""
        self._content = content
        self._assigned = {
            "DeliveryCount": int_(0),
            "EnqueuedSequenceNumber": long(sequence_number),
            "EnqueuedTimeUtc": timestamp(enqueued_time),
            "SequenceNumber": long(sequence_number),
            "Size": long(content.size),
            "State": int_(0),
        }
        self._sections: Sections | None = None
        self._fields: list[bytes] | None = None
        self._pairs: list[tuple[str, bytes, bytes]] | None = None
        self._is_changed = False

    # Reading

    def system(self, name: str) -> Value | None:
        """Return a system property by its canonical name, None if it is not set."""
        if name in _FIELDS:
            fields = self._read_fields()
            number = _FIELDS[name]
            return _value(fields[number]) if number < len(fields) else None
        if name in _ANNOTATIONS:
            pair = self._annotations().get(_ANNOTATIONS[name])
            return None if pair is None else _value(pair[1])
        if name == "TimeToLive":
            time_to_live = self._content.time_to_live
            return None if time_to_live is None else (uint if time_to_live < 2**32 else ulong)(time_to_live)
        if name == "ForcePersistence":
            return _value(self._content.header[:1])
        if name == "ExpiresAtUtc" and self._content.time_to_live is not None:
            enqueued = self._assigned["EnqueuedTimeUtc"].payload
            assert isinstance(enqueued, int)  # noqa: S101 - it was made from one above
            return timestamp(enqueued + self._content.time_to_live)
        return self._assigned.get(name)

    def user(self, name: str) -> Value | None:
        """
        Return the application property whose name in lower case is *name*.

        Raises RuleEvaluationError if the message has the name in two spellings.
        """
        found = [value for each, _, value in self._read_pairs() if each == name]
        if len(found) > 1:
            raise RuleEvaluationError(f"property {name} has two spellings that differ in case, expected one")
        return _value(found[0]) if found else None

    # Changing

    def set_system(self, name: str, value: Value) -> None:
        """Set a system property."""
        if name in _FIELDS:
            text = value.payload
            if name in _SYMBOL_FIELDS and isinstance(text, str) and text.isascii():
                value = symbol(text)
            self._set_field(_FIELDS[name], encode(value))
        elif name in _ANNOTATIONS:
            annotations = self._annotations()
            annotations[_ANNOTATIONS[name]] = encode(symbol(_ANNOTATIONS[name])), encode(value)
            self._set_annotations(annotations)
        elif name == "TimeToLive" and isinstance(value.payload, int):
            self._content = replace(self._content, time_to_live=value.payload)
        elif name == "ForcePersistence":
            durable = TRUE if value.payload else FALSE
            self._content = replace(self._content, header=encode(durable) + _priority(self._content.header))

    def remove_system(self, name: str) -> None:
        """Unset a system property."""
        if name in _FIELDS:
            self._set_field(_FIELDS[name], _NULL)
        elif name in _ANNOTATIONS:
            annotations = self._annotations()
            annotations.pop(_ANNOTATIONS[name], None)
            self._set_annotations(annotations)
        elif name == "TimeToLive":
            self._content = replace(self._content, time_to_live=None)
        elif name == "ForcePersistence":
            self._content = replace(self._content, header=_NULL + _priority(self._content.header))

    def set_user(self, name: str, value: Value) -> None:
        """Set an application property, keeping the spelling of one that is there; other spellings are removed."""
        lower = name.lower()
        pairs: list[tuple[str, bytes, bytes]] = []
        is_set = False
        for pair in self._read_pairs():
            if pair[0] != lower:
                pairs.append(pair)
            elif not is_set:
                pairs.append((lower, pair[1], encode(value)))
                is_set = True
        if not is_set:
            pairs.append((lower, encode(string(name)), encode(value)))
        self._write_pairs(pairs)

    def remove_user(self, name: str) -> None:
        """Remove the application properties of this name in any case."""
        pairs = self._read_pairs()
        kept = [pair for pair in pairs if pair[0] != name.lower()]
        if len(kept) < len(pairs):
            self._write_pairs(kept)

    def content(self) -> Content:
        """Return the copy's content; unchanged sections keep the sender's bytes."""
        if not self._is_changed or self._sections is None:
            return self._content
        return replace(self._content, bare=self._sections.encode())

    # Encoding

    def _split(self) -> Sections:
        if self._sections is None:
            self._sections = split(self._content.bare)
        return self._sections

    def _read_fields(self) -> list[bytes]:
        if self._fields is None:
            section = self._split().properties
            self._fields = list_fields(section, descriptor(section, 0)[1], len(section)) if section else []
        return self._fields

    def _set_field(self, number: int, encoded: bytes) -> None:
        fields = self._read_fields()
        fields.extend([_NULL] * (number + 1 - len(fields)))
        fields[number] = encoded
        self._split().properties = join_list(_PROPERTIES_PREFIX, fields)
        self._is_changed = True

    def _read_pairs(self) -> list[tuple[str, bytes, bytes]]:
        """Return the application properties: the name in lower case, the encoded key and value."""
        if self._pairs is None:
            section = self._split().application_properties
            start = descriptor(section, 0)[1] if section else 0
            self._pairs = [
                # Rules cannot name a key that is not text.
                ("" if key is None else key.lower(), section[key_start:value_start], section[value_start:stop])
                for key, key_start, value_start, stop in (map_entries(section, start, len(section)) if section else ())
            ]
        return self._pairs

    def _write_pairs(self, pairs: list[tuple[str, bytes, bytes]]) -> None:
        self._pairs = pairs
        encoded = [key + value for _, key, value in pairs]
        self._split().application_properties = join_map(_APPLICATION_PROPERTIES_PREFIX, encoded, len(encoded))
        self._is_changed = True

    def _annotations(self) -> dict[str | bytes, tuple[bytes, bytes]]:
        content = self._content
        encoded = join_map(b"", [content.annotations], content.annotation_count)
        return {
            (encoded[start:value_start] if key is None else key): (
                encoded[start:value_start],
                encoded[value_start:stop],
            )
            for key, start, value_start, stop in map_entries(encoded, 0, len(encoded))
        }

    def _set_annotations(self, annotations: dict[str | bytes, tuple[bytes, bytes]]) -> None:
        self._content = replace(
            self._content,
            annotations=b"".join([key + value for key, value in annotations.values()]),
            annotation_count=len(annotations),
        )


def _value(encoded: bytes) -> Value | None:
    value, _ = decode(encoded)
    return None if value.payload is None else value


def _priority(header: bytes) -> bytes:
    """Return the second of the two header fields that are kept."""
    return header[decode(header)[1] :]
