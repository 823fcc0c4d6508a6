"""The dashboard's requests about dead letters, with the local broker and Azurite."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from azure.storage.blob import BlobLeaseClient, ContainerClient

from shared.assembly.status import open_status_container
from shared.errors import ConfigError
from shared.resend import step
from shared.resend.delivery import Attempt, PreparedMessage, TargetDelivery
from shared.resend.ledger import Ledger
from shared.resend.ledger_blob import LedgerBlob
from shared.resend.places import dead_letter_queue
from shared.stores.leased_blob import BlobInUse
from tests.end_to_end.dashboard_requests import BROKEN, ORDERS, Dashboard, resent_in_steps
from tests.end_to_end.dead_letter_site import DeadLetterSite, ids, many, property_of, site
from tests.messages import delivered

__all__ = ["site"]


@pytest.fixture
def dashboard(site: DeadLetterSite, storage: str) -> Dashboard:
    return Dashboard(site, storage, BUSWAY_DASHBOARD_RESEND="on")


def test_groups_lists_and_one_message_with_types(site: DeadLetterSite, storage: str) -> None:
    site.bury("orders", many(3, body=b'{"secret": 1}'))
    site.bury("orders", many(1), "Other")
    site.publish("west/rejected", many(2))
    dashboard = Dashboard(site, storage)
    report = dashboard.get("dead").content
    entities = {each["entity"]: each for each in report["entities"]}
    assert set(entities) == {ORDERS, "east/orders/$DeadLetterQueue", "west/rejected", "west/rejected/$DeadLetterQueue"}
    assert [(each["group"], each["messages"]) for each in entities[ORDERS]["groups"]] == [
        (BROKEN, 3),
        ({**BROKEN, "reason": "Other"}, 1),
    ]
    assert (entities["west/rejected"]["kind"], entities["west/rejected"]["messages"]) == ("rejects", 2)
    assert (report["may_resend"], report["shows_bodies"], "east/orders" in report["destinations"]) == (
        False,
        False,
        True,
    )
    listed = dashboard.get("letters", entity=ORDERS, reason="Broken", source="west/orders").content
    assert [each["message_id"] for each in listed["letters"]] == ["m-0", "m-1", "m-2"]
    assert listed["has_more"] is False
    shown = dashboard.get("letter", entity=ORDERS, number="1").content
    assert {"name": "property n", "type": "long", "value": "0"} in shown["fields"]
    assert shown["body"] is None
    assert "secret" not in json.dumps([report, listed, shown])
    bodies = Dashboard(site, storage, BUSWAY_DASHBOARD_BODIES="on")
    assert bodies.get("letter", entity=ORDERS, number="1").content["body"] == '{\n  "secret": 1\n}'
    assert len(site.dead()) == 4


def test_only_what_tasks_name_is_read_and_only_what_the_settings_allow_is_there(
    site: DeadLetterSite, storage: str
) -> None:
    dashboard = Dashboard(site, storage)
    assert dashboard.names == {"busway-status"}
    assert dashboard.get("letter", entity="west/once/$DeadLetterQueue", number="1").code == 400
    assert dashboard.get("letter", entity=ORDERS, number="x").code == 400
    assert dashboard.get("letter", entity=ORDERS, number="7").code == 404
    assert dashboard.get("trace", id="m-1").code == 404
    assert dashboard.get("nothing").code == 404
    with pytest.raises(ConfigError, match="BUSWAY_DASHBOARD_RESEND: is 'yes', expected on or off"):
        Dashboard(site, storage, BUSWAY_DASHBOARD_RESEND="yes")


def test_a_resend_takes_the_group_in_order_and_nothing_else(site: DeadLetterSite, dashboard: Dashboard) -> None:
    site.bury("orders", many(5))
    site.bury("orders", [delivered(9)], "Other")
    before = dashboard.get("dead").content
    assert before["may_resend"] is True
    (step,) = resent_in_steps(dashboard, {"entity": ORDERS, "group": BROKEN, "ids": "same"})
    assert (step["sent"], step["left"], step["error"]) == (5, [], None)
    arrived = site.there("west/orders")
    assert ids(arrived) == [f"m-{n}" for n in range(5)]
    assert [property_of(message, "DeadLetterReason") for message in arrived] == [None] * 5
    assert ids(site.dead()) == ["m-9"]
    entities = {each["entity"]: each for each in dashboard.get("dead").content["entities"]}
    assert entities[ORDERS]["messages"] == 1


def test_a_step_ends_with_its_time_and_the_next_one_continues(
    site: DeadLetterSite, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "STEP_SECONDS", 0.6)
    monkeypatch.setattr("shared.resend.run.AT_ONCE", 2)
    send = TargetDelivery.send

    async def slow(self: TargetDelivery, messages: Sequence[PreparedMessage]) -> Attempt:
        await asyncio.sleep(0.4)
        return await send(self, messages)

    monkeypatch.setattr(TargetDelivery, "send", slow)
    site.bury("orders", many(6))
    steps = resent_in_steps(dashboard, {"entity": ORDERS, "group": BROKEN, "to": "east/orders"})
    assert len(steps) > 1
    assert [each["sent"] for each in steps if not each["sent"]] == []
    assert sum(each["sent"] for each in steps) == 6
    assert ids(site.there("east/orders")) == [f"m-{n}" for n in range(6)]
    assert site.dead() == []


def test_two_steps_at_once_exclude_each_other_and_the_command_shares_the_ledger(
    site: DeadLetterSite, dashboard: Dashboard
) -> None:
    site.bury("orders", many(2))
    place = dead_letter_queue("west/orders", dashboard.configuration)
    order: dict[str, object] = {"entity": ORDERS, "numbers": [1], "ids": "same"}

    async def with_an_open_ledger() -> None:
        container = open_status_container(dashboard.configuration, dashboard.settings)
        async with Ledger(LedgerBlob(container, place), str(place).lower()):
            refused = await asyncio.to_thread(dashboard.resend, order)
            assert (refused.code, "is in use" in refused.content["error"]) == (400, True)
        await container.close()

    asyncio.run(with_an_open_ledger())
    assert len(site.dead()) == 2
    assert resent_in_steps(dashboard, order)[-1]["sent"] == 1
    site.settings["AzureWebJobsStorage"] = dashboard.settings["AzureWebJobsStorage"]
    command = site.run("dead", "resend", "west/orders", "--all", "--same-ids", "--ledger", "app", "--yes")
    assert (command.exit_code, command.stderr) == (0, "")
    assert "busway-status/resend/west/orders" in command.stdout
    assert ids(site.there("west/orders")) == ["m-0", "m-1"]


def test_without_an_answer_about_duplicates_nothing_is_sent(site: DeadLetterSite, storage: str) -> None:
    nowhere = "http://127.0.0.1:9"  # a port below those that tests listen on
    dashboard = Dashboard(site, storage, BUSWAY_DASHBOARD_RESEND="on", WEST__administration=nowhere)
    site.bury("orders", many(1))
    asked = dashboard.resend({"entity": ORDERS, "group": BROKEN})
    assert (asked.code, "it is not known whether it detects duplicates" in asked.content["error"]) == (400, True)
    assert len(site.dead()) == 1
    (new,) = resent_in_steps(dashboard, {"entity": ORDERS, "group": BROKEN, "ids": "new"})
    assert new["sent"] == 1
    assert ids(site.there("west/orders")) != ["m-0"]


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"entity": ORDERS}, "choose a group"),
        ({"entity": ORDERS, "group": {}}, "expected a resend order"),
        ({"entity": ORDERS, "group": BROKEN, "all": True}, "expected a resend order"),
        ({"entity": ORDERS, "numbers": []}, "expected a resend order"),
        (
            {"entity": "west/once/$DeadLetterQueue", "group": BROKEN},
            "is no dead-letter queue or rejects queue of a task",
        ),
        ({"entity": ORDERS, "group": BROKEN, "to": "nowhere/x"}, "is not an entity of a connection"),
        ([], "expected a resend order"),
    ],
)
def test_an_order_that_selects_nothing_or_anything_else_is_refused(
    site: DeadLetterSite, dashboard: Dashboard, order: object, error: str
) -> None:
    site.bury("orders", many(1))
    refused = dashboard.resend(order)
    assert (refused.code, error in refused.content["error"]) == (400, True)
    assert dashboard.resend(order, "text/plain").code == 415
    assert len(site.dead()) == 1


def test_a_message_for_which_there_is_no_way_back_is_left_with_the_reason(
    site: DeadLetterSite, dashboard: Dashboard
) -> None:
    site.publish("west/rejected", many(1))
    group = {"reason": "(no reason)", "source": None, "task": None}
    step = dashboard.resend({"entity": "west/rejected", "group": group, "ids": "same"}).content
    assert step["sent"] == step["waiting"] == 0
    assert step["left"] == [
        {"reason": "does not say where it came from: choose another entity to send to", "messages": 1, "numbers": []}
    ]


def test_who_has_lost_the_lease_on_the_ledger_can_record_nothing(dashboard: Dashboard, site: DeadLetterSite) -> None:
    site.bury("orders", many(1))
    place = dead_letter_queue("west/orders", dashboard.configuration)
    storage = ContainerClient.from_connection_string(dashboard.settings["AzureWebJobsStorage"], "busway-status")

    async def lose() -> None:
        container = open_status_container(dashboard.configuration, dashboard.settings)
        try:
            async with Ledger(LedgerBlob(container, place), str(place).lower()) as ledger:
                name = next(name for name in storage.list_blob_names() if "resend/west/orders" in name)
                BlobLeaseClient(storage.get_blob_client(name)).break_lease(0)
                async with Ledger(LedgerBlob(container, place), str(place).lower()):
                    await ledger.note("sending", ["1/1"], "east/orders")
        finally:
            await container.close()

    with pytest.raises(BlobInUse, match="another process has taken it over"):
        asyncio.run(lose())
