"""The roles of namespaces that passive senders share, and stores of roles that are slow or unavailable."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway_clients import FileRoles, MemoryRoles, RoleState, SendFailed, StoreUnavailable, WrongUse
from busway_clients.concurrency.tasks import is_acquired_within
from tests.clients.applications import Application
from tests.clients.site import Site, both_kinds


def test_processes_that_share_a_file_agree(sync_site: Site, tmp_path: Path) -> None:
    entity = sync_site.queue()
    with Application("sync", sync_site.places) as first, Application("aio", sync_site.places) as second:
        ours = first.passive(entity, roles=FileRoles(tmp_path / "roles.db"))
        theirs = second.passive(entity, roles=FileRoles(tmp_path / "roles.db"), refresh=timedelta())
        ours.send(ServiceBusMessage("1"))
        second.call(theirs.send(ServiceBusMessage("2")))
        sync_site.go_down("west")
        ours.send(ServiceBusMessage("3"), timeout=5)
        sync_site.come_up("west")
        second.call(theirs.send(ServiceBusMessage("4")))
        assert theirs.state == RoleState("east", ("west",))
        assert sync_site.bodies("east", entity) == ["3", "4"]


def test_senders_of_one_process_that_share_their_roles_agree(sync_site: Site) -> None:
    entity = sync_site.queue()
    with Application("sync", sync_site.places) as application:
        roles = MemoryRoles()
        first, second = (application.passive(entity, roles=roles) for _ in range(2))
        second.send(ServiceBusMessage("1"))
        first.activate("east")
        second.send(ServiceBusMessage("2"))
    assert sync_site.bodies("west", entity) == ["1"]
    assert sync_site.bodies("east", entity) == ["2"]


class RolesThatChange(MemoryRoles):
    """A store whose roles another process changes once they have been read."""

    will_change = False

    def read(self) -> Any:
        held = super().read()
        if self.will_change and held is not None:
            self.will_change = False
            self.replace(held.version, held.order[::-1])
        return held


def test_a_role_change_during_a_send_does_not_blame_the_wrong_namespace(site: Site) -> None:
    entity = site.queue()
    roles = RolesThatChange()
    sender = site.passive(entity, roles=roles)
    site.call(sender.send(ServiceBusMessage("1")))
    site.go_down("west")
    roles.will_change = True
    outcome = site.call(sender.send(ServiceBusMessage("2"), timeout=5))
    assert (outcome.accepted_by, [*outcome.errors]) == (("east",), ["west"])
    assert sender.state == RoleState("east", ("west",))


class RolesThatAreAway:
    """A store that does not answer until the test allows it."""

    is_local = False

    def __init__(self) -> None:
        self.is_away = True
        self.roles = MemoryRoles()

    def read(self) -> Any:
        self._answer()
        return self.roles.read()

    def replace(self, expected: Any, order: Any) -> Any:
        self._answer()
        return self.roles.replace(expected, order)

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailable("roles: no answer")


@both_kinds
def test_unavailable_role_store_stops_no_send_and_no_switch(site: Site) -> None:
    entity = site.queue()
    roles = RolesThatAreAway()
    sender = site.passive(entity, roles=roles, refresh=timedelta())
    site.call(sender.send(ServiceBusMessage("1")))
    assert (sender.state.active, sender.state.is_agreed) == ("west", False)
    site.go_down("west")
    site.call(sender.send(ServiceBusMessage("2"), timeout=5))
    assert (sender.state.active, str(sender.state.error)) == ("east", "roles: no answer")
    roles.is_away = False
    site.call(sender.send(ServiceBusMessage("3")))
    assert sender.state == RoleState("east", ("west",))
    assert roles.read().order == ("east", "west")


class RolesThatTakeTheirTime(MemoryRoles):
    """A store that answers when the test allows it."""

    is_local = False

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def read(self) -> Any:
        self.is_asked.set()
        assert self.may_answer.wait(30)
        return super().read()


@both_kinds
def test_send_waits_for_another_at_most_its_timeout(site: Site) -> None:
    entity = site.queue()
    roles = RolesThatTakeTheirTime()
    sender = site.passive(entity, roles=roles)

    if site.kind == "sync":
        first = threading.Thread(target=sender.send, args=(ServiceBusMessage("1"),))
        first.start()
        assert roles.is_asked.wait(30)
        with pytest.raises(SendFailed, match="west accepted 0 of 1, OperationTimeoutError"):
            sender.send(ServiceBusMessage("2"), timeout=0.05)
        roles.may_answer.set()
        first.join()
    else:

        async def both() -> None:
            first = asyncio.create_task(sender.send(ServiceBusMessage("1")))
            await asyncio.to_thread(roles.is_asked.wait, 30)
            with pytest.raises(SendFailed, match="west accepted 0 of 1, OperationTimeoutError"):
                await sender.send(ServiceBusMessage("2"), timeout=0.05)
            roles.may_answer.set()
            await first

        site.call(both())
    assert site.bodies("west", entity) == ["1"]


def test_a_turn_that_is_promised_to_another_send_is_waited_for_at_most_the_timeout() -> None:
    async def run() -> bool:
        turn = asyncio.Lock()
        await turn.acquire()
        earlier = asyncio.ensure_future(turn.acquire())
        await asyncio.sleep(0)
        turn.release()
        async with asyncio.timeout(10):
            is_acquired = await is_acquired_within(turn, 0.01)
        assert await earlier
        return is_acquired

    assert not asyncio.run(run())


def test_roles_of_other_namespaces_are_refused(sync_site: Site, tmp_path: Path) -> None:
    path = tmp_path / "roles.db"
    FileRoles(path).replace(0, ("north", "south"))
    expected = "has roles of north, south, expected east, west"
    with Application("sync", sync_site.places) as application, pytest.raises(WrongUse, match=expected):
        application.passive(sync_site.queue(), roles=FileRoles(path)).send(ServiceBusMessage("x"))
