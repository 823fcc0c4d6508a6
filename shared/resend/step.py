"""
A resend in steps of some seconds, so that it fits into a function with a time limit.

Each step is a run as that of `busway dead resend`, with a ledger in a blob that only one step at a time can have open.
The step ends when its time is over; the next one begins with what the entity then has.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from shared.assembly.outputs import closing_outputs
from shared.assembly.status import open_status_container
from shared.errors import ConfigError, Problem
from shared.resend.board import MOST_PEEKED
from shared.resend.delivery import Routing, TargetDelivery
from shared.resend.edits import Edits
from shared.resend.inventory import Inventory, inventory_of
from shared.resend.ledger import Ledger
from shared.resend.ledger_blob import LedgerBlob
from shared.resend.letters import number_in
from shared.resend.model import Left, ResendOrder, ResendStep
from shared.resend.options import Options
from shared.resend.places import Place, Scene
from shared.resend.receiver import supply_of
from shared.resend.routing import duplicate_windows, guarded, routing_of
from shared.resend.run import NOT_REACHED, Result, Run
from shared.resend.selection import Selection
from shared.tasks.files import Configuration

STEP_SECONDS = 20.0
"""A step answers some seconds later, as it peeks first: Azure ends a request without an answer after 230 s."""
_PATIENCE_SECONDS = 12.0
_MOST_NUMBERS = 10
_WINDOW_HINT = "give the copies new ids, or send them as they are"


async def resend_step(
    order: ResendOrder,
    place: Place,
    configuration: Configuration,
    settings: Mapping[str, str],
) -> ResendStep:
    """
    Resend what *order* selects of *place* for STEP_SECONDS.

    Raises: ConfigError if it cannot begin, also if another step has the ledger; TargetUnavailable, TargetRefused.
    """
    scene = Scene(place, configuration, settings)
    routing = routing_of(place, configuration, order.to, "choose another entity to send to")
    if order.ids == "keep":
        routing = guarded(routing, duplicate_windows(configuration, settings, _WINDOW_HINT), datetime.now(UTC))
    async with AsyncExitStack() as opened:
        container = open_status_container(configuration, settings)
        opened.push_async_callback(container.close)
        ledger = await opened.enter_async_context(Ledger(LedgerBlob(container, place), str(place).lower()))
        wanted = await inventory_of(place, settings, _selection(order), routing, most=MOST_PEEKED)
        result = await _run(scene, order, wanted, routing, ledger)
    return _step(result, wanted)


async def _run(scene: Scene, order: ResendOrder, wanted: Inventory, routing: Routing, ledger: Ledger) -> Result:
    async with closing_outputs(scene.configuration, scene.settings) as outputs:
        delivery = TargetDelivery(scene, ledger, Edits(new_ids=order.ids == "new"), routing, outputs)
        options = Options(unclear=order.unclear, patience=_PATIENCE_SECONDS)
        run = Run(supply_of(scene.place, scene.settings), delivery, wanted.sessions, options)
        timer = asyncio.get_running_loop().call_later(STEP_SECONDS, run.stop)
        try:
            return await run.run()
        finally:
            timer.cancel()


def _selection(order: ResendOrder) -> Selection:
    selection = Selection(group=order.group, numbers=None if order.numbers is None else frozenset(order.numbers))
    if selection.is_everything:
        raise ConfigError([Problem("group", "is missing", "choose a group, or messages by their numbers")])
    return selection


def _step(result: Result, wanted: Inventory) -> ResendStep:
    left = {key: reason for key, reason in result.left.items() if reason != NOT_REACHED}
    found = [
        Left(reason, count, [number_in(key) for key, each in left.items() if each == reason][:_MOST_NUMBERS])
        for reason, count in Counter(left.values()).most_common()
    ]
    found += [Left(reason, count, []) for reason, count in wanted.unreachable.most_common()]
    return ResendStep(
        result.sent,
        result.sent_before,
        result.gone,
        len(result.left) - len(left),
        found,
        None if result.error is None else str(result.error),
    )
