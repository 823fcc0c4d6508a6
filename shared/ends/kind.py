"""
What the rest needs to know about a kind of end.

The folder of a kind has one record, `KIND` in its `kind.py`, which imports an SDK only when an end is opened.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from shared.access.setting_form import Fault, SettingForm
from shared.codecs.envelope import EVENT, MESSAGE, Form
from shared.message.message import Message
from shared.protocols import Output

type Fit = Callable[[Message], None]
type HeaderForm = Literal["text", "amqp"]

NOTHING: frozenset[str] = frozenset()


class Holds(Enum):
    """What the entities of a kind hold."""

    MESSAGES = auto()
    """Messages with all sections, in queues and subscriptions."""
    EVENTS = auto()
    """Events in partitions, which stay there."""
    RECORDS = auto()
    """Records of Kafka."""
    TEXTS = auto()
    NOTHING = auto()
    """It pushes what it gets."""


class OutputPlace(NamedTuple):
    """What an output is opened with."""

    site: str
    """The name of the namespace or broker in errors."""
    setting: str
    settings: Mapping[str, str]
    """The app settings, or the secret of the name *setting* and its value."""
    capabilities: Mapping[str, str] = MappingProxyType({})
    """`queue` or `topic` by the name of the entity."""
    headers: HeaderForm = "text"


class SourceOptions(Protocol):
    """The options of a task's source in which kinds differ."""

    @property
    def sessions(self) -> bool:
        """Whether the source requires sessions."""
        ...

    @property
    def dead_letter(self) -> object:
        """Whether messages are taken from the dead-letter queue."""
        ...

    @property
    def form(self) -> str:
        """`envelope` if each message holds others."""
        ...

    @property
    def encoding(self) -> str | None:
        """How other producers encode their texts."""
        ...


class TaskFault(NamedTuple):
    """What a task asks of an end that its kind cannot do: where in the task, what, and how to fix it."""

    path: str
    problem: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Texts:
    """A kind whose messages are texts, which come one by one and have no order."""

    most_bytes: int
    """Of the largest text, as it is sent."""
    one_by_one: str
    """Why messages come one by one, in errors."""
    faults: Callable[[SourceOptions, bool], Iterator[TaskFault]]
    """Yields what a task cannot ask of a source; the flag says whether its editors need an order."""
    is_event: bool = False
    """Whether a text must be a CloudEvent, in structured mode."""
    is_xml: bool = False
    """Whether the service writes the text into XML, which does not have all characters."""
    has_encoding: bool = False
    """Whether a task may name an encoding."""
    has_poison_queue: bool = False
    """Whether the host moves what it has delivered too often into a poison queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of end."""

    name: str
    """The `kind` of a connection."""
    rank: int
    """Its place where all kinds are listed."""
    noun: str
    """An entity of it, in sentences: `a storage queue`."""
    holds: Holds
    setting: SettingForm
    output: Callable[[OutputPlace], Output]
    """Opens what sends to it; raises as the output says."""

    sources: frozenset[str] = NOTHING
    """The keys with which a task names an entity to take from: queue, topic, hub, webhook; none if it is no source."""
    targets: frozenset[str] = NOTHING
    """Likewise to send to: queue, topic, hub, address."""
    source_hint: str = ""
    """What to do with an entity of a kind that is no source."""
    has_trigger: bool = True
    """Whether the host opens the source, and so needs an app setting."""
    has_headers: bool = False
    """Whether a connection may choose the form of headers."""
    is_namespace: bool = False
    """Whether it is a namespace of Azure whose entities Busway plans, looks into and numbers, with output bindings."""
    has_dead_letters: bool = False
    """Whether its queues can be peeked and locked, and have dead-letter queues: what dead, evacuate and pause need."""
    has_broker_replacement: bool = False
    """Whether a namespace of the local broker can take its place."""

    arrives_as: Form = MESSAGE
    """The form of its messages when a task takes them."""
    fit_message: Fit | None = None
    """Makes a message of Service Bus fit as a target, None if it fits unchanged."""
    fit_event: Fit | None = None
    """Likewise an event."""
    restore: Callable[[SourceOptions], Fit | None] = lambda _: None
    """Returns what a task does with each message as it arrives."""
    texts: Texts | None = None
    name_fault: Callable[[str, bool], str | None] = lambda _name, _is_source: None
    """Returns what a queue's name should be, or None if this one is valid; the flag says whether it is a source."""
    sends_at_once: bool = False
    """Whether messages of a task without an order may be sent before earlier ones are accepted."""
    settles_singly: bool = False
    """Whether the host can settle single messages of a batch."""

    unreached: Fault | None = None
    """Why commands do not send to it and receive from it, and what to do."""
    system: str
    """The `messaging.system` of its measurements."""
    open_site: Callable[[str, str, Mapping[str, str], int | None], Any] | None = None
    """
    Opens a look into its entities by the site's name, its app setting, the settings and the most messages to peek. It
    has `waiting`, `topic_dead_letters` and `partitions`, as far as its entities have them. None if the service shows
    nothing.
    """

    @property
    def has_hubs(self) -> bool:
        """Whether its entities are event hubs, which keep events and number partitions."""
        return self.holds is Holds.EVENTS

    def fit(self, form: Form) -> Fit | None:
        """Return what makes a message of *form* fit as a target, None if it fits unchanged."""
        return self.fit_event if form == EVENT else self.fit_message

    def __str__(self) -> str:
        """Return the name."""
        return self.name
