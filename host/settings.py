"""
The configuration of the host: app settings and host.json.

1. An app setting comes from the environment, then from `Values` in local.settings.json, as with `func start`.
2. host.json is validated: a wrong type or an out-of-range number is a ConfigError. Keys that this host does not use
   (logging, bundles, other extensions) are accepted, as the real host accepts them.
3. Defaults are those of the real host: ServiceBusOptions and EventHubOptions in azure-sdk-for-net, sdk/servicebus
   and sdk/eventhub, Microsoft.Azure.WebJobs.Extensions.*/src/Config.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.retry import UNLIMITED, RetryPolicy
from shared.durations import parse_timespan
from shared.ends.namespace import Namespace
from shared.errors import ConfigError, Problem

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLACEHOLDER = re.compile(r"%([^%]+)%")
# Flex Consumption, Premium and Dedicated plans; a Consumption plan has five minutes.
DEFAULT_FUNCTION_TIMEOUT = timedelta(minutes=30)
_NO_TIMEOUT = "-1"
_OVERRIDES = "azurefunctionsjobhost"
# Timeout.InfiniteTimeSpan of .NET.
_ENDLESS = ("-00:00:00.001", "-00:00:00.0010000")
_LONGEST_BATCH_WAIT = timedelta(seconds=150)
_LARGEST_QUEUE_BATCH = 32
_FROM_ZERO = ("prefetch_count", "new_batch_threshold")


@dataclass(frozen=True, slots=True)
class ServiceBusOptions:
    """`extensions.serviceBus` of host.json; a renewal of `timedelta.max` never ends."""

    prefetch_count: int = 0
    max_auto_lock_renewal_duration: timedelta = timedelta(minutes=5)
    max_concurrent_calls: int = 16 * (os.cpu_count() or 1)
    max_concurrent_sessions: int = 8
    max_concurrent_calls_per_session: int = 1
    max_message_batch_size: int = 1000
    min_message_batch_size: int = 1
    max_batch_wait_time: timedelta = timedelta(seconds=30)
    session_idle_timeout: timedelta = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class EventHubsOptions:
    """`extensions.eventHubs` of host.json; initial_offset is where a partition without a checkpoint starts."""

    max_event_batch_size: int = 100
    min_event_batch_size: int = 1
    max_wait_time: timedelta = timedelta(seconds=60)
    prefetch_count: int = 300
    batch_checkpoint_frequency: int = 1
    initial_offset: str = "fromStart"
    initial_enqueued_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueuesOptions:
    """`extensions.queues` of host.json, for storage queues."""

    batch_size: int = 16
    new_batch_threshold: int = 8
    max_dequeue_count: int = 5
    max_polling_interval: timedelta = timedelta(minutes=1)
    visibility_timeout: timedelta = timedelta()
    message_encoding: str = "base64"


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The parts of host.json that this host uses."""

    service_bus: ServiceBusOptions = ServiceBusOptions()
    event_hubs: EventHubsOptions = EventHubsOptions()
    queues: QueuesOptions = QueuesOptions()
    route_prefix: str = "api"
    function_timeout: timedelta | None = DEFAULT_FUNCTION_TIMEOUT
    """None for no limit."""
    retry: RetryPolicy | None = None
    """Of every function without a policy of its own, those of Service Bus included (measured)."""
    telemetry_mode: str = ""


class Settings:
    """The app settings by name; names are compared without regard to case, as the real host does."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """Use the merged settings."""
        self.values = dict(values)
        self._folded = {name.casefold(): value for name, value in values.items()}

    @classmethod
    def load(cls, app_folder: Path, environment: Mapping[str, str] | None = None) -> "Settings":
        """Return the settings of an app folder; a ConfigError for an invalid local.settings.json."""
        values = _local_settings(app_folder / "local.settings.json")
        return cls({**values, **(os.environ if environment is None else environment)})

    def get(self, name: str) -> str | None:
        """Return a setting's value, None if it is not set."""
        return self._folded.get(name.casefold())

    def resolve(self, text: str, path: str) -> str:
        """Return a binding property with every %NAME% replaced; a ConfigError for an app setting that is missing."""

        def value_of(match: re.Match[str]) -> str:
            value = self.get(match[1])
            if value is None:
                raise ConfigError(
                    [Problem(path, f"app setting {match[1]} is not set", "name it in local.settings.json")]
                )
            return value

        return _PLACEHOLDER.sub(value_of, text)

    def connection(self, name: str, path: str) -> Namespace:
        """Return the connection of a binding; a ConfigError if neither form of it is set."""
        if value := self.get(name):
            return Namespace(name, connection_string=value)
        if namespace := self.get(f"{name}__fullyQualifiedNamespace"):
            return Namespace(name, fully_qualified_namespace=namespace)
        hint = f"set {name} to a connection string, or {name}__fullyQualifiedNamespace to a namespace"
        raise ConfigError([Problem(path, f"app setting {name} is not set", hint)])


def load_host_options(app_folder: Path, settings: Mapping[str, str] | None = None) -> HostOptions:
    """
    Return the options in host.json, the defaults without one; a ConfigError with all problems.

    *settings* may replace its values: `AzureFunctionsJobHost__functionTimeout`, and so on with `__` between the keys.
    """
    file = app_folder / "host.json"
    content = _read_json(file) if file.exists() else {}
    for name, value in (settings or {}).items():
        prefix, *keys = name.split("__")
        if prefix.casefold() == _OVERRIDES and keys and isinstance(content, dict):
            _override(content, keys, value)
    document = _Section(content, "host.json", [])
    extensions = document.section("extensions")
    options = HostOptions(
        _service_bus(extensions.section("serviceBus")),
        _event_hubs(extensions.section("eventHubs")),
        _queues(extensions.section("queues")),
        extensions.section("http").text("routePrefix", "api").strip("/"),
        _function_timeout(document),
        _retry(document.section("retry")),
        document.text("telemetryMode", ""),
    )
    if document.problems:
        raise ConfigError(document.problems)
    return options


def _service_bus(section: "_Section") -> ServiceBusOptions:
    is_endless = section.text("maxAutoLockRenewalDuration", "") in _ENDLESS
    options = section.options(ServiceBusOptions, max_auto_lock_renewal_duration=timedelta.max if is_endless else None)
    if options.min_message_batch_size > options.max_message_batch_size:
        section.complain("minMessageBatchSize", options.min_message_batch_size, "at most maxMessageBatchSize")
    if options.max_batch_wait_time > _LONGEST_BATCH_WAIT:
        section.complain("maxBatchWaitTime", str(options.max_batch_wait_time), "at most 00:02:30, half of a lock")
    return options


def _event_hubs(section: "_Section") -> EventHubsOptions:
    offset = section.section("initialOffsetOptions")
    options = section.options(
        EventHubsOptions,
        initial_offset=offset.choice("type", "fromStart", ("fromStart", "fromEnd", "fromEnqueuedTime")),
        initial_enqueued_time=offset.moment("enqueuedTimeUtc"),
    )
    if options.initial_offset == "fromEnqueuedTime" and options.initial_enqueued_time is None:
        offset.complain("enqueuedTimeUtc", None, "a time, as type is fromEnqueuedTime")
    if options.min_event_batch_size > options.max_event_batch_size:
        section.complain("minEventBatchSize", options.min_event_batch_size, "at most maxEventBatchSize")
    return options


def _queues(section: "_Section") -> QueuesOptions:
    encoding = section.choice("messageEncoding", "base64", ("base64", "none"))
    options = section.options(QueuesOptions, message_encoding=encoding)
    if options.batch_size > _LARGEST_QUEUE_BATCH:
        section.complain("batchSize", options.batch_size, f"at most {_LARGEST_QUEUE_BATCH}")
    threshold = section.integer("newBatchThreshold", options.batch_size // 2, 0)
    return replace(options, new_batch_threshold=threshold)


def _override(document: dict[str, Any], keys: list[str], value: str) -> None:
    """Replace the value at *keys*, whose case does not matter."""
    key = next((name for name in document if name.casefold() == keys[0].casefold()), keys[0])
    if len(keys) > 1:
        inner = document.get(key)
        document[key] = inner if isinstance(inner, dict) else {}
        _override(document[key], keys[1:], value)
    else:
        document[key] = int(value) if re.fullmatch(r"-?\d+", value) and key != "functionTimeout" else value


def _function_timeout(document: "_Section") -> timedelta | None:
    is_unlimited = document.text("functionTimeout", "") == _NO_TIMEOUT
    return None if is_unlimited else document.duration("functionTimeout", DEFAULT_FUNCTION_TIMEOUT)


def _retry(section: "_Section") -> RetryPolicy | None:
    if not section.content:
        return None
    strategy = section.choice("strategy", "", ("fixedDelay", "exponentialBackoff"))
    count = section.integer("maxRetryCount", UNLIMITED, UNLIMITED)
    if strategy == "exponentialBackoff":
        minimum = section.duration("minimumInterval", timedelta(seconds=5))
        return RetryPolicy(count, None, minimum, section.duration("maximumInterval", timedelta(minutes=5)))
    return RetryPolicy(count, section.duration("delayInterval", timedelta()), timedelta(), timedelta.max)


@dataclass(slots=True)
class _Section:
    """One object of host.json: reads typed values and collects problems; keys ignore case."""

    content: object
    path: str
    problems: list[Problem]

    def section(self, key: str) -> "_Section":
        value = self._get(key)
        if value is not None and not isinstance(value, dict):
            self.complain(key, value, "an object")
            value = None
        return _Section(value or {}, f"{self.path}.{key}", self.problems)

    def options[T: DataclassInstance](self, kind: type[T], **read: Any) -> T:
        """Return the numbers and durations that *kind* has fields for, and what is *read* already."""
        values = {name: value for name, value in read.items() if value is not None}
        for field in fields(kind):
            first, *others = field.name.split("_")
            key = first + "".join(map(str.title, others))
            if field.name not in values and isinstance(field.default, int):
                values[field.name] = self.integer(key, field.default, 0 if field.name in _FROM_ZERO else 1)
            elif field.name not in values and isinstance(field.default, timedelta):
                values[field.name] = self.duration(key, field.default)
        return kind(**values)

    def integer(self, key: str, default: int, minimum: int) -> int:
        value = self._get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            return self.complain(key, value, f"a whole number of at least {minimum}", default)
        return value

    def text(self, key: str, default: str) -> str:
        value = self._get(key)
        if value is None:
            return default
        return value if isinstance(value, str) else self.complain(key, value, "text", default)

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(key, default)
        for choice in choices:
            if choice.casefold() == value.casefold():
                return choice
        return self.complain(key, value, " or ".join(choices), default)

    def duration(self, key: str, default: timedelta) -> timedelta:
        value = self.text(key, "")
        if not value:
            return default
        try:
            duration = parse_timespan(value)
        except ValueError:
            duration = timedelta(-1)
        if duration < timedelta():
            return self.complain(key, value, "a time span such as 00:05:00", default)
        return duration

    def moment(self, key: str) -> datetime | None:
        value = self.text(key, "")
        try:
            return datetime.fromisoformat(value) if value else None
        except ValueError:
            return self.complain(key, value, "a time such as 2026-01-31T12:00:00Z", None)

    def _get(self, key: str) -> Any:
        if not isinstance(self.content, dict):
            return None
        return next((value for name, value in self.content.items() if name.casefold() == key.casefold()), None)

    def complain[T](self, key: str, value: object, expected: str, default: T = None) -> T:  # type: ignore[assignment] # None if the caller discards the value
        self.problems.append(Problem(f"{self.path}.{key}", f"{value!r}, expected {expected}"))
        return default


def _read_json(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ConfigError([Problem(str(file), f"not JSON: {error}")]) from error


def _local_settings(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    document = _read_json(file)
    values = document.get("Values", {}) if isinstance(document, dict) else None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ConfigError([Problem(f"{file}.Values", "expected an object with text values")])
    if isinstance(document, dict) and document.get("IsEncrypted"):
        raise ConfigError(
            [Problem(f"{file}.IsEncrypted", "this host cannot decrypt settings", "func settings decrypt")]
        )
    return values
