"""What the demo sends: real bodies, under new ids, each with every property type."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

from cli.dry_run.messages import written
from cli.message_file import Line, read_messages_in
from cli.property_types import EXAMPLES
from shared.amqp.codec import encode
from shared.amqp.values import Value, string
from shared.errors import ConfigError, MessageRejected, Problem
from shared.message.arrival import Origin
from shared.message.message import Message

WEST = "west"
EAST = "east"
PAIR = {WEST: EAST, EAST: WEST}

MAX_IDENTIFIER_CHARACTERS = 128

TYPED = "typed-"
"""The beginning of the names of the properties that the demo adds, one for each type."""

# Of 20 messages, 14 are events, 3 payments, 3 jobs.
_CYCLE = 20
_EVENTS = 14
_PAYMENTS = 17
# On how many sites a job fails, in turn.
_JOB_FAILURES = (0, 1, 1, 1, 2)
# One in this many messages is one that the Python SDK could not have sent.
_FOREIGN = 10
_LIFE_SECONDS = (None, None, 600, 3000)


class Pattern(StrEnum):
    """The replication patterns of the demo; the value is the entity that applications know."""

    ALL_ACTIVE = "events"
    ACTIVE_PASSIVE = "payments"
    SPILLOVER = "jobs"


@dataclass(frozen=True)
class Template:
    """The parts of a message that come from real input."""

    body: bytes
    session_id: str
    properties: Mapping[str, Value] = field(default_factory=dict)
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    to: str | None = None
    reply_to: str | None = None


@dataclass(frozen=True)
class Sample:
    """
    A message as it is sent: where, with what, and on how many sites its consumer fails.

    Units: time_to_live in milliseconds. The number counts the messages of one site and pattern in their order.
    """

    pattern: Pattern
    site: str
    number: int
    message_id: str
    template: Template
    properties: Mapping[str, Value]
    time_to_live: int | None
    failures: int = 0

    @property
    def session_id(self) -> str | None:
        """The session; jobs and payments have none."""
        return self.template.session_id if self.pattern is Pattern.ALL_ACTIVE else None

    @property
    def partition_key(self) -> str | None:
        """The partition key, which must equal the session id if there is one."""
        return self.template.session_id if self.pattern is not Pattern.SPILLOVER else None

    @property
    def is_foreign(self) -> bool:
        """Whether it has a property that the Python SDK cannot encode."""
        return any(value.kind == "char" for value in self.properties.values())


def samples(templates: Sequence[Template], count: int) -> list[Sample]:
    """Return *count* messages: the templates in turn, spread over patterns and sites."""
    numbers: dict[tuple[Pattern, str], int] = {}
    made = []
    for index in range(count):
        place = index % _CYCLE
        pattern = (
            Pattern.ALL_ACTIVE
            if place < _EVENTS
            else Pattern.ACTIVE_PASSIVE
            if place < _PAYMENTS
            else Pattern.SPILLOVER
        )
        turn = sum(number for (known, _), number in numbers.items() if known is pattern)
        site = WEST if pattern is Pattern.ACTIVE_PASSIVE or turn % 2 == 0 else EAST
        number = numbers[pattern, site] = numbers.get((pattern, site), 0) + 1
        template = templates[index % len(templates)]
        typed = {f"{TYPED}{name}": examples[index % len(examples)] for name, examples in EXAMPLES.items()}
        if index % _FOREIGN != 0:
            del typed[f"{TYPED}char"]
        life = _LIFE_SECONDS[index % len(_LIFE_SECONDS)]
        made.append(
            Sample(
                pattern,
                site,
                number,
                f"{pattern}-{number}-{uuid4().hex}",
                template,
                {**typed, **template.properties},
                None if life is None else life * 1000,
                _JOB_FAILURES[turn // 2 % len(_JOB_FAILURES)] if pattern is Pattern.SPILLOVER else 0,
            )
        )
    return made


def webhook_templates(file: Path) -> list[Template]:
    """Return the recorded webhooks of @octokit/webhooks-examples; raises ConfigError if they are missing."""
    try:
        events = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError([Problem(str(file), "is missing", "npm ci --ignore-scripts, as `make demo` does")]) from error
    return [_webhook(event["name"], example) for event in events for example in event["examples"]]


def _webhook(name: str, example: Mapping[str, Any]) -> Template:
    action = example.get("action")
    # A session for each repository, organization or sender.
    owners = ((example.get("repository") or {}).get("full_name"), (example.get("organization") or {}).get("login"))
    session_id = str(next(filter(None, (*owners, (example.get("sender") or {}).get("login"))), name))
    return Template(
        body=json.dumps(example, separators=(",", ":"), ensure_ascii=False).encode(),
        session_id=session_id[:MAX_IDENTIFIER_CHARACTERS],
        properties={"event": string(name), **({"action": string(action)} if isinstance(action, str) else {})},
        subject=f"{name}.{action}" if action else name,
        content_type="application/json",
        correlation_id=str(uuid4()),
        to="applications",
        reply_to=f"replies/{name}",
    )


# A message of the Standard tier has at most 256 KB, 64 KB of them headers and properties; the stamps need some of it.
_MAX_BODY_BYTES = 180 * 1024
_MAX_PROPERTY_BYTES = 32 * 1024
# The demo adds these to every message, or Busway, a rule or the service would change them.
_TAKEN = frozenset(("replication", "rulename", "deadletterreason", "deadlettererrordescription"))


def read_templates(file: Path) -> list[Template]:
    """Return the messages in *file*; raises ConfigError with the number of each invalid line."""
    now = datetime.now(UTC)
    return read_messages_in(file, lambda line, number: _template(line, written(line, number, now).content))


def _template(line: Line, content: bytes) -> Template:
    """Return what the demo sends of a message; raises ValueError."""
    try:
        message = Message.received(content, Origin("", ""))
        body, session_id, identity = message.body, message.session_id, message.correlation_id
        texts = {key: getattr(message, key) for key in ("subject", "content_type", "to", "reply_to")}
        found = dict(message.application_properties())
    except MessageRejected as error:
        raise ValueError("raw: expected an encoded message in Base64") from error
    if body is None or not {"raw", "body", "body_base64"} & line.keys():
        raise ValueError("expected one of body and body_base64, or a raw message with data")
    # The reason of a dead letter and the stamps of Busway belong to the way that an exported message has taken.
    kept = {name: value for name, value in found.items() if not _is_taken(name)}
    if "raw" not in line and len(kept) < len(found):
        raise ValueError(f"properties: the name {next(filter(_is_taken, found))!r} is taken, expected another")
    if session_id is not None and len(session_id) > MAX_IDENTIFIER_CHARACTERS:
        raise ValueError(f"session_id: expected text of 1 to {MAX_IDENTIFIER_CHARACTERS} characters")
    if len(body) > _MAX_BODY_BYTES:
        raise ValueError(f"body: has {len(body)} bytes, expected at most {_MAX_BODY_BYTES}")
    size = sum(len(name.encode()) + len(encode(value)) for name, value in kept.items())
    if size > _MAX_PROPERTY_BYTES:
        raise ValueError(f"properties: have {size} bytes, expected at most {_MAX_PROPERTY_BYTES}")
    texts["correlation_id"] = identity.payload if identity is not None and isinstance(identity.payload, str) else None
    return Template(body, session_id or "default", kept, **texts)


def _is_taken(name: str) -> bool:
    return not name or name.lower() in _TAKEN or name.lower().startswith((TYPED, "repl-"))
