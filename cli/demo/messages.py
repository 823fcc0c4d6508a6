"""What the demo sends: real bodies, under new ids, each with every property type."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from cli.property_types import EXAMPLES
from shared.amqp.values import Value, string
from shared.errors import ConfigError, Problem

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


def _webhook(name: str, example: Mapping[str, object]) -> Template:
    action = example.get("action")
    session_id = next(_owners(example), name)
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


def _owners(example: Mapping[str, object]) -> Iterator[str]:
    """Yield the possible session ids of a webhook: its repository, its organization, its sender."""
    for owner, name in (("repository", "full_name"), ("organization", "login"), ("sender", "login")):
        about = example.get(owner)
        if isinstance(about, Mapping) and isinstance(about.get(name), str):
            yield about[name]
