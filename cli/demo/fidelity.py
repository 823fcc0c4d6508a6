"""
The comparison of one message with what was sent.

Differences have names and types, never contents: the report may be about other people's messages.
"""

import re
from collections.abc import Iterator, Mapping

from cli.demo.messages import PAIR, Pattern, Sample
from shared.amqp import sections
from shared.amqp.values import Described, Value, long, string
from shared.message.message import Message
from shared.message.metadata import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE,
    ENQUEUE_TIME,
    PATH,
    SEPARATOR,
    SEQUENCE,
)

PAYMENT_LIFE = 120_000
"""Time to live of a payment's copy in milliseconds, which config/tasks/payments.yaml sets."""

_EXHAUSTED = "MaxDeliveryCountExceeded"
_ISO_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_DIGITS = r"\d+"
_DEAD_LETTERS = "jobs"

type _Expected = Value | re.Pattern[str]


def changes(sample: Sample, message: Message, *, is_copy: bool) -> Iterator[str]:
    """Yield each difference from *sample*, except the documented stamps of a copy."""
    yield from _broker_property_changes(sample, message, is_copy=is_copy)
    kinds = {number for number, _ in sections.body_parts(message.sections.body)}
    # An empty body may be an empty data section or none at all.
    if not kinds <= {sections.DATA} or (message.body or b"") != sample.template.body:
        yield "the body differs"
    properties = dict(message.application_properties())
    for name, sent in sample.properties.items():
        arrived = properties.pop(name, None)
        if arrived is None:
            yield f"property {name} ({_kind(sent)}) is missing"
        elif content(arrived) != content(sent):
            problem = "has another value" if _kind(arrived) == _kind(sent) else f"is {_kind(arrived)}"
            yield f"property {name} {problem}, sent as {_kind(sent)}"
    if is_copy:
        # Service Bus adds it to the copy that a rule with an action makes.
        properties.pop("RuleName", None)
        for name, expected in _stamps(sample).items():
            stamp = properties.pop(name, None)
            if stamp is None or not _is_as_expected(stamp, expected):
                problem = "is missing" if stamp is None else f"is {_kind(stamp)} {stamp.payload!r}"
                text = (
                    f"a string like {expected.pattern}"
                    if isinstance(expected, re.Pattern)
                    else f"{expected.kind} {expected.payload!r}"
                )
                yield f"stamp {name} {problem}, expected {text}"
    yield from (f"property {name} ({_kind(value)}) was not sent" for name, value in properties.items())


def content(value: Value) -> object:
    """Return type and value in a comparable form, without the width of the encoding, which hosts may change."""
    payload = value.payload
    if isinstance(payload, Described):
        return (value.kind, content(payload.descriptor), content(payload.value))
    # 0.0 and -0.0 compare equal, but their repr differs.
    return (value.kind, repr(payload) if isinstance(payload, float) else payload)


def _broker_property_changes(sample: Sample, message: Message, *, is_copy: bool) -> Iterator[str]:
    template = sample.template
    correlation_id = message.correlation_id
    fields = {
        "session id": (message.session_id, sample.session_id),
        "partition key": (message.partition_key, sample.partition_key),
        "subject": (message.subject, template.subject),
        "content type": (message.content_type, template.content_type),
        "correlation id": (None if correlation_id is None else correlation_id.payload, template.correlation_id),
        "to": (message.to, template.to),
        "reply-to": (message.reply_to, template.reply_to),
    }
    yield from (f"the {name} differs" for name, (arrived, sent) in fields.items() if arrived != sent)
    is_stamped = is_copy and sample.pattern is Pattern.ACTIVE_PASSIVE
    life = PAYMENT_LIFE if is_stamped else sample.time_to_live
    # A message without a time to live may arrive with the entity's default.
    if life is not None and message.time_to_live != life:
        yield f"the time to live is {message.time_to_live} ms, expected {life} ms"


def _stamps(sample: Sample) -> Mapping[str, _Expected]:
    """Return the properties that Busway adds to a copy."""
    if sample.pattern is not Pattern.SPILLOVER:
        return {
            "replication": long(1),
            PATH: string(sample.site),
            ENQUEUE_TIME: re.compile(_ISO_TIME),
            SEQUENCE: re.compile(_DIGITS),
        }
    hops = sample.failures

    def each_hop(pattern: str) -> re.Pattern[str]:
        return re.compile(SEPARATOR.join([pattern] * hops))

    return {
        PATH: string(SEPARATOR.join([sample.site, PAIR[sample.site]][:hops])),
        ENQUEUE_TIME: each_hop(_ISO_TIME),
        SEQUENCE: each_hop(_DIGITS),
        DEAD_LETTER_REASON: each_hop(_EXHAUSTED),
        DEAD_LETTER_DESCRIPTION: re.compile(r".+"),
        DEAD_LETTER_SOURCE: each_hop(_DEAD_LETTERS),
    }


def _is_as_expected(stamp: Value, expected: _Expected) -> bool:
    if isinstance(expected, re.Pattern):
        return stamp.kind == "string" and expected.fullmatch(str(stamp.payload)) is not None
    return content(stamp) == content(expected)


def _kind(value: Value) -> str:
    if isinstance(value.payload, Described):
        return f"{value.payload.descriptor.payload!r} as {_kind(value.payload.value)}"
    return value.kind
