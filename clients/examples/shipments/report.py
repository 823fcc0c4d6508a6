"""
Reports what was applied: `python -m examples.shipments.report`.

`--until COUNT` waits until COUNT statuses are applied and prints nothing else; `--left SHIPMENTS` until none of their
messages waits at either site.
"""

import os
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import SessionCannotBeLockedError

from examples.shipments.ledger import Ledger

LONGEST_SECONDS = 90.0


def until(count: int) -> None:
    """Wait until *count* statuses were applied."""
    ledger = Ledger()
    deadline = time.monotonic() + LONGEST_SECONDS
    while len(ledger.applied()) < count:
        if time.monotonic() > deadline:
            sys.exit(f"only {len(ledger.applied())} of {count} statuses were applied in {LONGEST_SECONDS:.0f} s")
        time.sleep(0.02)


def tell() -> None:
    """Print the proof."""
    ledger = Ledger()
    applied = ledger.applied()
    times = Counter((each.shipment, each.number) for each in applied)
    numbers: dict[str, list[int]] = defaultdict(list)
    sites: dict[str, list[str]] = defaultdict(list)
    for each in applied:
        numbers[each.shipment].append(each.number)
        sites[each.shipment].append(each.site)
    highest = max((each.number for each in applied), default=0)
    expected = list(range(1, highest + 1))
    moved = [shipment for shipment, where in sites.items() if where[0] == "west" and where[-1] == "east"]
    print(f"statuses applied: {len(applied)}, of {len(numbers)} shipments with {highest} each")
    print(f"applied twice: {sum(count > 1 for count in times.values())}")
    print(f"missing: {sum(len(set(expected) - set(number)) for number in numbers.values())}")
    print(f"shipments out of order: {sum(number != sorted(number) for number in numbers.values())}")
    print(f"applied in west: {sum(each.site == 'west' for each in applied)}, in east: ", end="")
    print(sum(each.site == "east" for each in applied))
    print(f"begun in west and finished in east: {len(moved)} shipments")
    print(f"delivered again and found applied: {ledger.found()}")


def left(shipments: int) -> None:
    """Wait until no message of the shipments waits at either site."""
    with ThreadPoolExecutor() as threads:
        for site in threads.map(partial(_wait_until_none_waits, shipments=shipments), ("west", "east")):
            print(f"nothing is left in {site}")


def _wait_until_none_waits(site: str, shipments: int) -> str:
    deadline = time.monotonic() + LONGEST_SECONDS
    waiting = [f"shipment-{number}" for number in range(1, shipments + 1)]
    with ServiceBusClient.from_connection_string(os.environ[site.upper()], retry_total=0) as client:
        while waiting:
            if time.monotonic() > deadline:
                sys.exit(f"messages of {', '.join(waiting)} still wait in {site}")
            if _is_empty(client, waiting[0]):
                del waiting[0]
            else:
                waiting.append(waiting.pop(0))
    return site


def _is_empty(client: ServiceBusClient, session: str) -> bool:
    try:
        with client.get_subscription_receiver("shipments", "application", session_id=session) as receiver:
            return not receiver.peek_messages()
    except SessionCannotBeLockedError:
        # A consumer has it.
        return False


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--until", count]:
            until(int(count))
        case ["--left", shipments]:
            left(int(shipments))
        case _:
            tell()
