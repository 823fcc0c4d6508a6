"""Keys in a key vault, for the unmodified SDK: away, missing, and exchanged between two batches."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.access.key_vault import REFRESH_SECONDS, SHORTEST_REFRESH_SECONDS
from shared.clock import ManualClock
from shared.errors import TargetRefused, TargetUnavailable
from shared.message.message import Message
from shared.protocols import BatchEditor
from shared.tasks.steps import STEPS
from tests.fakes import task_facts
from tests.keys import jwks, made
from tests.messages import message
from tests.vault import Vault
from tests.wire.vault_secrets import secrets_of, vault

__all__ = ["vault"]

type Edit = Callable[..., Awaitable[Sequence[Any]]]
type Scene = Callable[[Edit, ManualClock], Awaitable[object]]


def order(number: int = 1) -> Message:
    return message(number, body=b"order %d" % number)


def play(vault: Vault, scene: Scene) -> Any:
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))

    async def played() -> Any:
        async def edited(verb: str, *messages: Message) -> Sequence[Any]:
            facts = task_facts()._replace(secrets=secrets, clock=clock)
            editor = STEPS[verb].model_validate({verb: {"key": "orders"}}).editor(facts)
            assert isinstance(editor, BatchEditor)
            return await editor.edit_batch(messages, timeout_seconds=30)

        async with secrets_of(vault, clock) as secrets:
            return await scene(edited, clock)

    return asyncio.run(played())


def test_a_rotation_while_messages_are_on_their_way(vault: Vault) -> None:
    old, new = made("oct", "2025"), made("oct", "2026")

    async def scene(edited: Edit, clock: ManualClock) -> object:
        ((first,),) = await edited("encrypt", order(1))
        vault.set("orders", jwks(old, new))
        clock.advance(REFRESH_SECONDS)
        ((second,),) = await edited("encrypt", order(2))
        assert b"2026" not in second.body, "the name of a key is within the header"
        bodies = [each[0].body for each in await edited("decrypt", first, second)]
        vault.set("orders", jwks(new))
        clock.advance(REFRESH_SECONDS)
        return bodies, await edited("decrypt", first, second)

    vault.set("orders", jwks(old))
    bodies, (late, current) = play(vault, scene)
    assert bodies == [b"order 1", b"order 2"]
    assert late.reason == "UnknownKey"
    assert current[0].body == b"order 2"


def test_a_key_that_this_app_has_not_seen_yet_is_asked_for_at_once(vault: Vault) -> None:
    old, new = made("oct", "2025"), made("oct", "2026")

    async def scene(edited: Edit, clock: ManualClock) -> object:
        await edited("decrypt", order())
        vault.set("orders", jwks(new))
        clock.advance(REFRESH_SECONDS)
        ((sealed,),) = await edited("encrypt", order())
        vault.set("orders", jwks(old))
        clock.advance(REFRESH_SECONDS)
        await edited("decrypt", order())
        vault.set("orders", jwks(old, new))
        clock.advance(SHORTEST_REFRESH_SECONDS)
        vault.requests.clear()
        results = await edited("decrypt", sealed, sealed)
        return [result[0].body for result in results], list(vault.requests)

    vault.set("orders", jwks(old))
    assert play(vault, scene) == ([b"order 1"] * 2, ["orders"])


@pytest.mark.parametrize(
    ("failing", "error"),
    [((503, "ServiceUnavailable", {}), TargetUnavailable), ((403, "Forbidden", {}), TargetRefused)],
)
def test_cached_keys_are_used_while_the_vault_is_unavailable(
    vault: Vault, failing: tuple[int, str, dict[str, str]], error: type[TargetUnavailable | TargetRefused]
) -> None:
    async def scene(edited: Edit, clock: ManualClock) -> object:
        vault.failing = failing
        with pytest.raises(error, match="secret orders in"):
            await edited("encrypt", order())
        vault.failing = None
        ((sealed,),) = await edited("encrypt", order())
        vault.failing = failing
        clock.advance(REFRESH_SECONDS)
        return (await edited("decrypt", sealed))[0][0].body

    vault.set("orders", jwks(made("oct")))
    assert play(vault, scene) == b"order 1"


def test_a_secret_that_is_missing_or_not_a_key_is_refused(vault: Vault) -> None:
    async def scene(edited: Edit, clock: ManualClock) -> object:
        with pytest.raises(TargetRefused, match="has no secret with this name"):
            await edited("encrypt", order())
        vault.set("orders", "Endpoint=sb://hidden")
        clock.advance(REFRESH_SECONDS)
        with pytest.raises(TargetRefused, match="secret orders: it is not JSON, expected a JSON Web Key") as raised:
            await edited("encrypt", order())
        return str(raised.value)

    assert "hidden" not in play(vault, scene)
