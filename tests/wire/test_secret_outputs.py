"""Outputs that live by secrets from a key vault."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SharedAccessKey
from busway_broker.thread import RunningBroker
from shared.access.key_vault import REFRESH_SECONDS, SHORTEST_REFRESH_SECONDS
from shared.assembly.outputs import open_outputs, output_with_secret
from shared.clock import ManualClock
from shared.ends import registry
from shared.ends.kind import OutputPlace
from shared.ends.renewed import RenewedOutput
from shared.errors import BuswayError, ConfigError, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from shared.tasks.files import Configuration, load
from tests.messages import delivered
from tests.vault import Vault
from tests.wire.sending import closing
from tests.wire.vault_secrets import HIDDEN, _no_secret_is_logged, a_clock, secrets_of, vault

__all__ = ["_no_secret_is_logged", "vault"]


# Outputs

EAST = NamespaceConfig(
    name="east",
    queues=(QueueConfig(name="copies"),),
    hubs=(HubConfig(name="events", partition_count=1),),
    shared_access_keys=(SharedAccessKey(name="Root", key="the-new-key"),),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([EAST]) as running:
        yield running


def connection_string(broker: RunningBroker, key: str) -> str:
    where = f"Endpoint=sb://localhost:{broker.port('east')};SharedAccessKeyName=Root;SharedAccessKey={key}"
    return f"{where};UseDevelopmentEmulator=true"


def arrived(broker: RunningBroker) -> int:
    return broker.counts("east")["copies"].active


@contextlib.asynccontextmanager
async def renewed(vault: Vault, clock: ManualClock, kind: str = "service-bus") -> AsyncIterator[RenewedOutput]:
    async with secrets_of(vault, clock) as secrets:
        opened = partial(output_with_secret, registry.kind(kind), OutputPlace("east", "east-key", {}))
        async with closing(RenewedOutput("east", "east-key", secrets, opened)) as output:
            yield output


async def answer_to(output: RenewedOutput, number: int, entity: str = "copies") -> BuswayError | None:
    message = Outgoing(delivered(None, message_id=f"m-{number}"), f"m-{number}", None, None)
    (answer,) = await output.send(entity, [message], timeout_seconds=10)
    return answer


@pytest.mark.parametrize(("kind", "entity"), [("service-bus", "copies"), ("event-hubs", "events")])
def test_a_target_that_has_replaced_its_key_is_sent_to_with_the_new_version(
    vault: Vault, broker: RunningBroker, kind: str, entity: str
) -> None:
    clock = a_clock()

    async def run() -> None:
        async with renewed(vault, clock, kind) as output:
            refused = await answer_to(output, 1, entity)
            assert isinstance(refused, TargetRefused), refused
            vault.set("east-key", connection_string(broker, "the-new-key"))
            clock.advance(SHORTEST_REFRESH_SECONDS)
            again = await answer_to(output, 1, entity)
            assert isinstance(again, TargetUnavailable), again
            assert str(again).endswith("refused with the old version of secret east-key, retrying the new one")
            assert await answer_to(output, 1, entity) is None
            assert await answer_to(output, 2, entity) is None

    vault.set("east-key", connection_string(broker, HIDDEN))
    asyncio.run(run())
    assert len(vault.requests) == 2


def test_an_invalid_new_version_leaves_the_output_unchanged(
    vault: Vault, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = a_clock()

    async def run() -> int:
        async with renewed(vault, clock) as output:
            before = arrived(broker)
            for value in (connection_string(broker, "the-new-key"), f"nonsense {HIDDEN}"):
                vault.set("east-key", value)
                clock.advance(REFRESH_SECONDS)
                assert await answer_to(output, 3) is None
            assert await answer_to(output, 4) is None
            return arrived(broker) - before

    assert asyncio.run(run()) == 3
    assert (
        caplog.text.count(
            "the old version of secret east-key stays in use: east: secret east-key is not a connection string"
        )
        == 1
    )


def test_calls_under_way_keep_the_output_that_they_are_in(vault: Vault) -> None:
    async def run() -> None:
        async with secrets_of(vault, clock) as secrets:
            output = RenewedOutput("east", "east-key", secrets, opened.append_new)
            slow = asyncio.create_task(answer_to(output, 1))
            first = await opened.entered()
            vault.set("east-key", "second")
            clock.advance(REFRESH_SECONDS)
            quick = asyncio.create_task(answer_to(output, 2))
            second = await opened.entered()
            assert not first.is_closed
            first.may_answer.set()
            await slow
            assert first.is_closed
            assert not second.is_closed
            second.may_answer.set()
            await quick
            await output.close()
            assert second.is_closed

    clock, opened = a_clock(), Openings()
    vault.set("east-key", "first")
    asyncio.run(run())
    assert opened.values == ["first", "second"]


class OutputThatWaits:
    """Answers when it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.is_entered = asyncio.Event()
        self.is_closed = False

    async def send(self, _: str, messages: Sequence[Outgoing], *, timeout_seconds: float) -> list[BuswayError | None]:
        assert timeout_seconds > 0
        self.is_entered.set()
        await self.may_answer.wait()
        return [None] * len(messages)

    async def close(self) -> None:
        self.is_closed = True


class Openings:
    """The outputs that have been opened, and what with."""

    def __init__(self) -> None:
        self.outputs: asyncio.Queue[OutputThatWaits] = asyncio.Queue()
        self.values: list[Any] = []

    def append_new(self, value: Any) -> OutputThatWaits:
        self.values.append(value)
        output = OutputThatWaits()
        self.outputs.put_nowait(output)
        return output

    async def entered(self) -> OutputThatWaits:
        async with asyncio.timeout(10):
            output = await self.outputs.get()
            await output.is_entered.wait()
        return output


@pytest.mark.parametrize(
    "value", [HIDDEN, f"Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey={HIDDEN};EntityPath=q"]
)
def test_a_secret_that_is_no_connection_string_is_refused_and_not_quoted(vault: Vault, value: str) -> None:
    async def run() -> BuswayError | None:
        async with renewed(vault, a_clock()) as output:
            return await answer_to(output, 1)

    vault.set("east-key", value)
    answer = asyncio.run(run())
    assert isinstance(answer, TargetRefused)
    assert str(answer).startswith("east: secret east-key ")
    text = "".join(traceback.format_exception(answer))
    assert HIDDEN not in text


def test_a_vault_that_is_unavailable_at_the_first_message_is_retried(vault: Vault) -> None:
    async def run() -> BuswayError | None:
        async with renewed(vault, a_clock()) as output:
            return await answer_to(output, 1)

    vault.failing = 503, "ServiceUnavailable", {}
    assert isinstance(asyncio.run(run()), TargetUnavailable)


# The configuration

TASK = """
task: copy
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: copies}}]
"""


def configured(folder: Path, west: str, east: str) -> Configuration:
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(
        f"west: {{kind: service-bus, {west}}}\neast: {{kind: service-bus, {east}}}\n"
    )
    (folder / "tasks" / "copy.yaml").write_text(TASK)
    return load(folder)


def test_a_source_with_only_a_secret_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        configured(tmp_path, "secret: west-key", "secret: east-key")
    (problem,) = raised.value.problems
    assert problem.path.endswith("copy.yaml: source.connection")
    assert problem.problem == "'west' has a secret and no setting, which the Functions host needs"
    assert "@Microsoft.KeyVault(SecretUri=https://VAULT.vault.azure.net/secrets/west-key)" in problem.hint


def test_a_source_with_a_setting_and_a_secret_can_be_a_target_too(tmp_path: Path) -> None:
    configuration = configured(tmp_path, "setting: WEST, secret: west-key", "secret: east-key")
    west = "Endpoint=sb://west/;SharedAccessKeyName=n;SharedAccessKey=k"
    outputs = open_outputs(configuration, {"WEST": west, "BUSWAY_KEY_VAULT": "https://v.vault.azure.net"})
    assert all(isinstance(output, RenewedOutput) for output in outputs.values())


def test_a_secret_that_is_a_missing_app_setting_stops_the_start(tmp_path: Path) -> None:
    configuration = configured(tmp_path, "setting: WEST", "secret: east-key")
    with pytest.raises(ConfigError) as raised:
        open_outputs(configuration, {"WEST": "Endpoint=sb://west/;SharedAccessKeyName=n;SharedAccessKey=k"})
    (problem,) = raised.value.problems
    assert problem.path == "connections.yaml: east: app setting BUSWAY_SECRET_EAST_KEY"


def test_a_connection_without_setting_and_secret_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="west: setting: is missing, expected the name of an app setting, or for a target"
    ):
        configured(tmp_path, "site: w", "secret: east-key")
