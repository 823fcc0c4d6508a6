"""Consumers of Kafka for commands: one reads what a topic has, the other takes it for a consumer group."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from operator import methodcaller
from typing import Any

import confluent_kafka
from azure.core.exceptions import AzureError

from cli.places import line_of, required_setting
from shared.access.identity import credential
from shared.ends.kafka.answers import LASTING, reaction_to
from shared.ends.kafka.endpoint import SETTING_FORM, Tokens, client_options, kafka_endpoint_of
from shared.ends.kafka.message import TakenRecord
from shared.ends.kafka.record import Header
from shared.errors import ConfigError, Problem, TargetRefused, TargetUnavailable
from shared.printable import printable

_METADATA_SECONDS = 10.0
_LONGEST_POLL = 0.2
_COMMIT_SECONDS = 5.0
_REPORT_SECONDS = 60.0
_OLD_TOKEN_SECONDS = 10.0
_SAME_OUTAGE_SECONDS = 1.0
# In milliseconds. Then another member takes over the partitions of one that was killed. With 10,000 Event Hubs
# ends the members while they join, again and again (azure-event-hubs-for-kafka 72; its CONFIGURATION.md: 30,000).
_SESSION, _EVENT_HUBS_SESSION = 10_000, 30_000
_END = "_PARTITION_EOF"
_NO_SUCH_OFFSET = "_AUTO_OFFSET_RESET"
# For a name that is not UTF-8, confluent-kafka returns a list without the name and also raises. A call in Python's code
# may go on with that list, and crash the process; a call from C is checked, and raises SystemError.
_read_headers = methodcaller("headers")


def headers_of(message: Any) -> Sequence[Header] | None:  # noqa: ANN401 - of confluent-kafka
    """Return the headers of a record, None if the name of one is not UTF-8; call it once for each record."""
    try:
        return _read_headers(message) or ()
    except SystemError:
        return None


def taken_record(message: Any) -> TakenRecord:  # noqa: ANN401 - of confluent-kafka
    """Return a record as it was received; call it once for each."""
    _, time_ = message.timestamp()
    return TakenRecord(
        message.partition(), message.offset(), time_, message.key(), message.value(), headers_of(message)
    )


@dataclass
class TopicReader:
    """Reads the records of a topic from all partitions, and commits nothing; every method waits, raises ConfigError."""

    where: str
    """Its name in errors."""
    setting: str | None
    """The app setting of the cluster."""
    settings: Mapping[str, str]
    topic: str
    _errors: list[str] = field(default_factory=list)
    _consumer: Any = None

    def start(self, *, at_end: bool = False) -> None:
        """Read all partitions from their beginning, or only what comes from now on."""
        options, _ = _client_options(self.where, self.setting, self.settings)
        own = {"group.id": "busway-reader", "error_cb": lambda error: self._errors.append(error.str())}
        self._consumer = confluent_kafka.Consumer({**options, **own})
        try:
            found = self._consumer.list_topics(self.topic, timeout=_METADATA_SECONDS).topics[self.topic]
            places = [confluent_kafka.TopicPartition(self.topic, partition, 0) for partition in found.partitions]
            if at_end:
                for place in places:
                    _, place.offset = self._consumer.get_watermark_offsets(place, timeout=_METADATA_SECONDS)
        except confluent_kafka.KafkaException as error:
            raise self._problem(error.args[0]) from error
        if found.error is not None:
            raise self._problem(found.error)
        self._consumer.assign(places)

    def read(self, seconds: float) -> Sequence[Any]:
        """Return the records that come within a time, as soon as there is one; none at its end."""
        found = []
        for message in self._consumer.consume(num_messages=500, timeout=seconds):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.name() != _END:
                raise self._problem(error)
        return found

    def close(self) -> None:
        """Close the connections, also without a start."""
        if self._consumer is not None:
            self._consumer.close()

    def _problem(self, error: Any) -> ConfigError:  # noqa: ANN401 - of confluent-kafka
        reason = (self._errors or [error.str()])[-1]
        return ConfigError([Problem(self.where, f"cannot be read: {printable(reason)}")])


@dataclass
class GroupReader:
    """
    Takes the records of a topic for a consumer group; every method waits, and raises ConfigError.

    The brokers share the partitions among the members of the group. One that was taken away is in `lost`, also if it
    has come back: what was read of it since the last commit comes again, to the member that has it.
    """

    where: str
    """Its name in errors."""
    setting: str | None
    """The app setting of the cluster."""
    settings: Mapping[str, str]
    topic: str
    group: str
    _: KW_ONLY
    report: Callable[[str], None]
    """Gets what it waits for, in lines, at most one a minute."""
    lost: set[int] = field(default_factory=set)
    """The partitions that were taken away since the last `take`."""
    _assigned: set[int] | None = None
    """Its partitions, of which there may be none; None while the brokers share them out."""
    _unread: set[int] = field(default_factory=set)
    """The partitions whose end it has not seen."""
    _positions: dict[int, int] = field(default_factory=dict)
    """Where the partitions go on; one that goes on where the group is, is not in it."""
    _unplaced: set[int] = field(default_factory=set)
    """The partitions that cannot go on: the group has no offset, or the topic does not have that offset."""
    _ends: dict[int, int] = field(default_factory=dict)
    """Up to where a partition has been read: beyond its last record there may be markers of transactions."""
    _committed: dict[int, int] = field(default_factory=dict)
    _waiting: list[Any] = field(default_factory=list)
    _refusal: Any = None
    _reported: float = -math.inf
    _last_error: str = ""
    _error_time: float = -math.inf
    _outage_time: float = -math.inf
    _without_token: float = -math.inf

    def __post_init__(self) -> None:
        options, self._tokens = _client_options(self.where, self.setting, self.settings)
        self.is_event_hub = self.setting is not None and kafka_endpoint_of(self.setting, self.settings).is_event_hubs
        own = {
            "group.id": self.group,
            "auto.offset.reset": "error",  # with "earliest", nobody would learn that records were deleted unread
            "session.timeout.ms": _EVENT_HUBS_SESSION if self.is_event_hub else _SESSION,
            "allow.auto.create.topics": False,
            "topic.metadata.propagation.max.ms": 1_000,
            "error_cb": self._note,
        }
        self._consumer = confluent_kafka.Consumer({**options, **own})
        self._consumer.subscribe([self.topic], on_assign=self._join, on_revoke=self._lose, on_lost=self._lose)

    @property
    def has_seen_the_end(self) -> bool:
        """Whether it has its share of the partitions, which may be none, and has come to their ends."""
        return self._assigned is not None and not self._unread

    def take(self, count: int, seconds: float) -> Sequence[Any]:
        """Return the records that come within a time, at most *count*."""
        found, self._waiting = self._waiting, []
        if not found:
            found = self._records(self._consumer.consume(num_messages=count, timeout=seconds))
        self.lost.clear()
        # Not those that were lost: a partition may have come back meanwhile, and these records would not come again.
        return [each for each in found if each.partition() in (self._assigned or ())]

    def wait(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Stay in the group for a time, or until *is_over*, without new records."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not is_over():
            assigned = self._consumer.assignment()
            if assigned:
                self._consumer.pause(assigned)
            # A partition that has just come may have sent some already.
            message = self._consumer.poll(min(left, _LONGEST_POLL))
            self._waiting += self._records([message] if message is not None else [])
        assigned = self._consumer.assignment()
        if assigned:
            self._consumer.resume(assigned)

    def commit(self, next_offsets: Mapping[int, int]) -> TargetUnavailable | None:
        """Commit where the partitions go on, a lost one excepted; return why the group may not have it."""
        waiting = {each.partition() for each in self._waiting}
        places = [
            confluent_kafka.TopicPartition(
                self.topic, partition, offset if partition in waiting else max(offset, self._ends.get(partition, 0))
            )
            for partition, offset in next_offsets.items()
            if partition not in self.lost
        ]
        if not places:
            return None
        try:
            # A commit that waits for its answer has no time limit: without a broker it may take minutes.
            self._consumer.commit(offsets=places, asynchronous=True)
            found = self._consumer.committed(places, timeout=_COMMIT_SECONDS)
        except confluent_kafka.KafkaException as error:
            if reaction_to(error.args[0].name()).error is TargetRefused:
                raise self._problem(error.args[0]) from error
            return TargetUnavailable(f"{self.where}: cannot commit: {error.args[0].str()}")
        if {each.partition: each.offset for each in found} == {place.partition: place.offset for place in places}:
            self._committed |= {place.partition: place.offset for place in places}
            return None
        return TargetUnavailable(f"{self.where}: cannot commit: the group has not taken the offsets")

    def passed(self) -> dict[int, int]:
        """Return the ends of the partitions that the group does not have yet; all before them has been taken."""
        if self._waiting:
            return {}
        return {each: end for each, end in self._ends.items() if end > self._committed.get(each, 0)}

    def is_behind(self) -> bool:
        """
        Return whether the brokers know of records of its partitions that it has not read, False if they do not answer.

        One that throttles answers for a while without records and without an error (Event Hubs for Kafka).
        """
        try:
            ends = {
                each: self._consumer.get_watermark_offsets(self._at(each), _COMMIT_SECONDS)[1]
                for each in self._assigned or ()
            }
        except confluent_kafka.KafkaException:
            return False
        return any(end > max(self._positions.get(each, 0), self._ends.get(each, 0)) for each, end in ends.items())

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _records(self, messages: Sequence[Any]) -> list[Any]:
        found = []
        for message in messages:
            error = message.error()
            if error is None:
                found.append(message)
                self._positions[message.partition()] = message.offset() + 1
            elif error.name() == _END:
                self._unread.discard(message.partition())
                self._ends[message.partition()] = message.offset()
            elif error.name() == _NO_SUCH_OFFSET:
                self._unplaced.add(message.partition())
            elif reaction_to(error.name()).error is TargetRefused:
                raise self._problem(error)
            else:
                self._report_wait(error.str())
        if self._refusal is not None:
            raise self._problem(self._refusal)
        if self._unplaced:
            self._place()
        return found

    def _place(self) -> None:
        """Read from their beginning the partitions that cannot go on where the group is; report what was deleted."""
        assigned = self._assigned or set()
        # At the first start that is each of them, and together they need one assignment.
        new = (assigned - self._positions.keys()) | self._unplaced
        try:
            committed = self._consumer.committed([self._at(each) for each in new], _COMMIT_SECONDS)
            offsets = {each.partition: self._positions.get(each.partition, each.offset) for each in committed}
            ends = {
                each: self._consumer.get_watermark_offsets(self._at(each), _COMMIT_SECONDS)
                for each in sorted(self._unplaced)
                if offsets[each] >= 0
            }
        except confluent_kafka.KafkaException:
            return  # the next call tries again
        self._positions |= {each: confluent_kafka.OFFSET_BEGINNING for each, offset in offsets.items() if offset < 0}
        for partition, (low, high) in ends.items():
            offset, self._positions[partition] = offsets[partition], low
            deleted = f"offsets {offset} to {low - 1} were deleted before they were read"
            beyond = f"the group is at offset {offset} and the topic ends at {high}; it reads again from offset {low}"
            self.report(f"{self.where}: partition {partition}: {deleted if offset < low else beyond}")
        self._unplaced.clear()
        self._consumer.assign([self._at(each) for each in sorted(assigned)])

    def _at(self, partition: int) -> Any:  # noqa: ANN401 - of confluent-kafka
        """Return where a partition goes on: after what was read of it, or else where the group is."""
        offset = self._positions.get(partition, confluent_kafka.OFFSET_STORED)
        return confluent_kafka.TopicPartition(self.topic, partition, offset)

    def _join(self, _consumer: object, partitions: Sequence[Any]) -> None:
        self._assigned = {partition.partition for partition in partitions}
        self._unread = set(self._assigned)
        self._positions.clear()
        self._unplaced.clear()
        self._ends.clear()
        self._committed.clear()

    def _lose(self, _consumer: object, partitions: Sequence[Any]) -> None:
        self.lost.update(partition.partition for partition in partitions)
        self._assigned = None
        self._waiting.clear()
        self._ends.clear()
        # A partition would still be paused when it comes back.
        self._consumer.resume(partitions)

    def _note(self, error: Any) -> None:  # noqa: ANN401 - of confluent-kafka
        name, now = error.name(), time.monotonic()
        if self._tokens is not None and self._tokens.error is not None:
            self._without_token = now
            self._report_wait(f"the identity has no token: {self._tokens.error}")
        elif name in LASTING:
            # A connection may still have been opened with the last token.
            if now - self._without_token > _OLD_TOKEN_SECONDS:
                self._refusal = error
        else:
            # That all brokers are down comes before or after the reason, which is an error of one of them.
            if name == "_ALL_BROKERS_DOWN":
                self._outage_time = now
            else:
                self._error_time, self._last_error = now, error.str()
            if abs(self._outage_time - self._error_time) < _SAME_OUTAGE_SECONDS:
                self._report_wait(f"no broker can be reached: {self._last_error}")

    def _report_wait(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self.report(printable(f"{self.where}: waits: {reason}"))

    def _problem(self, error: Any) -> ConfigError:  # noqa: ANN401 - of confluent-kafka
        return ConfigError([Problem(self.where, f"cannot be read: {printable(error.str())}")])


def _client_options(
    where: str, setting: str | None, settings: Mapping[str, str]
) -> tuple[dict[str, object], Tokens | None]:
    """Return the options of a consumer of the cluster in an app setting, and the tokens if it has no password."""
    setting = required_setting(setting, where)
    problem = SETTING_FORM.problem(setting, settings)
    if problem is not None:
        raise ConfigError([problem])
    options, tokens = client_options(kafka_endpoint_of(setting, settings), credential)
    if tokens is not None:
        try:
            # The consumer would wait for it, and say less about what is wrong.
            tokens.request()
        except AzureError as error:
            raise ConfigError([Problem(where, line_of(error))]) from error
    return {**options, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}, tokens
