import json
from datetime import timedelta
from pathlib import Path

import pytest

from host.retry import RetryPolicy
from host.settings import HostOptions, Settings, load_host_options
from shared.durations import parse_timespan
from shared.errors import ConfigError


def write(folder: Path, name: str, document: object) -> None:
    (folder / name).write_text(json.dumps(document))


def test_environment_comes_before_local_settings(tmp_path: Path) -> None:
    write(tmp_path, "local.settings.json", {"Values": {"A": "file", "B": "file"}})
    settings = Settings.load(tmp_path, {"A": "environment"})
    assert (settings.get("A"), settings.get("b"), settings.get("C")) == ("environment", "file", None)


@pytest.mark.parametrize("document", [{"Values": {"A": 1}}, {"Values": []}, [], {"IsEncrypted": True, "Values": {}}])
def test_unusable_local_settings_are_refused(tmp_path: Path, document: object) -> None:
    write(tmp_path, "local.settings.json", document)
    with pytest.raises(ConfigError):
        Settings.load(tmp_path, {})


def test_placeholders_are_resolved() -> None:
    settings = Settings({"QUEUE": "orders"})
    assert settings.resolve("%queue%/$DeadLetterQueue", "f") == "orders/$DeadLetterQueue"
    with pytest.raises(ConfigError, match="app setting NONE is not set"):
        settings.resolve("%NONE%", "f")


def test_connection_is_a_string_or_a_namespace_and_hides_its_key() -> None:
    settings = Settings({"A": "Endpoint=secret", "B__fullyQualifiedNamespace": "b.servicebus.windows.net"})
    assert settings.connection("A", "f").connection_string == "Endpoint=secret"
    assert settings.connection("B", "f").fully_qualified_namespace == "b.servicebus.windows.net"
    assert "secret" not in repr(settings.connection("A", "f"))
    with pytest.raises(ConfigError, match="app setting C is not set"):
        settings.connection("C", "f")


def test_without_host_json_the_real_hosts_defaults_hold(tmp_path: Path) -> None:
    options = load_host_options(tmp_path)
    assert options == HostOptions()
    assert options.service_bus.max_message_batch_size == 1000
    assert options.service_bus.session_idle_timeout == timedelta(seconds=60)
    assert options.event_hubs.max_event_batch_size == 100


def test_host_json_is_read_without_regard_to_case(tmp_path: Path) -> None:
    extensions = {
        "ServiceBus": {"maxmessagebatchsize": 7, "autoCompleteMessages": False, "sessionIdleTimeout": "00:00:00.100"},
        "eventHubs": {"initialOffsetOptions": {"type": "FromEnd"}, "targetUnprocessedEventThreshold": 5},
        "http": {"routePrefix": ""},
        "queues": {"unknown": 1},
    }
    write(tmp_path, "host.json", {"version": "2.0", "extensions": extensions})
    options = load_host_options(tmp_path)
    assert options.service_bus.max_message_batch_size == 7
    assert options.service_bus.session_idle_timeout == timedelta(milliseconds=100)
    assert options.event_hubs.initial_offset == "fromEnd"
    assert options.route_prefix == ""


def test_every_wrong_type_in_host_json_is_reported(tmp_path: Path) -> None:
    service_bus = {
        "maxMessageBatchSize": "many",
        "prefetchCount": -1,
        "sessionIdleTimeout": "soon",
        "maxConcurrentCalls": True,
    }
    write(tmp_path, "host.json", {"extensions": {"serviceBus": service_bus, "eventHubs": []}})
    with pytest.raises(ConfigError) as error:
        load_host_options(tmp_path)
    assert {problem.path for problem in error.value.problems} == {
        "host.json.extensions.serviceBus.maxMessageBatchSize",
        "host.json.extensions.serviceBus.prefetchCount",
        "host.json.extensions.serviceBus.sessionIdleTimeout",
        "host.json.extensions.serviceBus.maxConcurrentCalls",
        "host.json.extensions.eventHubs",
    }


@pytest.mark.parametrize(
    ("section", "values", "key"),
    [
        ("serviceBus", {"minMessageBatchSize": 1001}, "minMessageBatchSize"),
        ("serviceBus", {"maxBatchWaitTime": "00:02:31"}, "maxBatchWaitTime"),
        ("serviceBus", {"sessionIdleTimeout": "-00:00:01"}, "sessionIdleTimeout"),
        ("serviceBus", {"maxAutoLockRenewalDuration": "-00:00:01"}, "maxAutoLockRenewalDuration"),
        ("eventHubs", {"minEventBatchSize": 9, "maxEventBatchSize": 8}, "minEventBatchSize"),
        ("eventHubs", {"initialOffsetOptions": {"type": "fromEnqueuedTime"}}, "initialOffsetOptions.enqueuedTimeUtc"),
        ("queues", {"batchSize": 33}, "batchSize"),
    ],
)
def test_numbers_out_of_microsofts_ranges_are_refused(
    tmp_path: Path, section: str, values: dict[str, object], key: str
) -> None:
    write(tmp_path, "host.json", {"extensions": {section: values}})
    with pytest.raises(ConfigError) as error:
        load_host_options(tmp_path)
    assert [problem.path for problem in error.value.problems] == [f"host.json.extensions.{section}.{key}"]


def test_lock_renewal_without_end_is_written_as_a_negative_millisecond(tmp_path: Path) -> None:
    write(tmp_path, "host.json", {"extensions": {"serviceBus": {"maxAutoLockRenewalDuration": "-00:00:00.0010000"}}})
    assert load_host_options(tmp_path).service_bus.max_auto_lock_renewal_duration == timedelta.max


def test_retry_of_host_json_is_fixed_or_exponential(tmp_path: Path) -> None:
    fixed = {"strategy": "fixedDelay", "maxRetryCount": 3, "delayInterval": "00:00:10"}
    write(tmp_path, "host.json", {"retry": fixed})
    assert load_host_options(tmp_path).retry == RetryPolicy(3, timedelta(seconds=10), timedelta(), timedelta.max)
    growing = {"strategy": "exponentialBackoff", "minimumInterval": "00:00:05", "maximumInterval": "00:05:00"}
    write(tmp_path, "host.json", {"retry": growing})
    assert load_host_options(tmp_path).retry == RetryPolicy(-1, None, timedelta(seconds=5), timedelta(minutes=5))


def test_app_settings_replace_values_of_host_json(tmp_path: Path) -> None:
    service_bus = {"maxMessageBatchSize": 7, "prefetchCount": 1}
    write(tmp_path, "host.json", {"functionTimeout": "00:10:00", "extensions": {"serviceBus": service_bus}})
    settings = {
        "AzureFunctionsJobHost__functionTimeout": "00:00:03",
        "AzureFunctionsJobHost__Extensions__serviceBus__MaxMessageBatchSize": "9",
        "AzureFunctionsJobHost__extensions__http__routePrefix": "x",
        "other__functionTimeout": "1",
    }
    options = load_host_options(tmp_path, settings)
    assert options.function_timeout == timedelta(seconds=3)
    assert (options.service_bus.max_message_batch_size, options.service_bus.prefetch_count) == (9, 1)
    assert options.route_prefix == "x"
    unlimited = load_host_options(tmp_path, {"azurefunctionsjobhost__functionTimeout": "-1"})
    assert unlimited.function_timeout is None


def test_time_spans() -> None:
    assert parse_timespan("00:05:00") == timedelta(minutes=5)
    assert parse_timespan("-1.02:03:04.05") == -timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=50)
    for text in ("5", "24:00:00", "00:60:00", "", "1:2:3:4"):
        with pytest.raises(ValueError, match="time span"):
            parse_timespan(text)
