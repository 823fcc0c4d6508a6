"""
The output for Event Grid beside loops by hand with the same library: events per second, in runs by lot.

    python -m benchmarks.event_grid

The counterpart is the local Event Grid in a process of its own, without subscriptions.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

from azure.core import AsyncPipelineClient
from azure.core.credentials import AzureKeyCredential
from azure.core.pipeline.policies import AzureKeyCredentialPolicy
from azure.core.rest import AsyncHttpResponse, HttpRequest

from local.event_grid import EventGrid
from shared.azure.event_grid_endpoint import EventGridEndpoint
from shared.azure.senders.event_grid import EventGridOutput
from shared.protocols import Outgoing

_EVENTS = 5_000
_ONE_BY_ONE = 500
_BATCH = 250
_SIZE = 1024
_KEY = "key"
_IN_BATCHES, _BUSWAY = "a loop, batches of 250", "Busway's output, batches of 250"
_VERSION = {"api-version": "2018-01-01"}

type _Client = AsyncPipelineClient[HttpRequest, AsyncHttpResponse]


def _serve(pipe: Connection) -> None:
    async def serve() -> None:
        async with EventGrid(_KEY) as grid:
            pipe.send(grid.address)
            await asyncio.Event().wait()

    asyncio.run(serve())


async def _measure(address: str, rounds: int) -> None:
    url = f"{address}/api/events"
    policy = AzureKeyCredentialPolicy(AzureKeyCredential(_KEY), "aeg-sas-key")
    client: _Client = AsyncPipelineClient(url, policies=[policy])
    output = EventGridOutput("grid", lambda: EventGridEndpoint(url, _KEY))
    event = json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": "x" * _SIZE}).encode()

    async def post(kind: str, content: bytes) -> None:
        request = HttpRequest("POST", url, params=_VERSION, headers={"Content-Type": kind}, content=content)
        (await client.send_request(request)).raise_for_status()

    async def one_by_one() -> None:
        for _ in range(_ONE_BY_ONE):
            await post("application/cloudevents+json", event)

    async def in_batches() -> None:
        for _ in range(_EVENTS // _BATCH):
            await post("application/cloudevents-batch+json", b"[%b]" % b",".join([event] * _BATCH))

    async def busway() -> None:
        messages = [Outgoing(event, None, None, None)] * _BATCH
        for _ in range(_EVENTS // _BATCH):
            answers = await output.send("orders", messages, timeout_seconds=60)
            if any(answer is not None for answer in answers):
                raise RuntimeError("an event was not accepted")

    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "a loop, one event after the other": one_by_one,
        _IN_BATCHES: in_batches,
        _BUSWAY: busway,
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    order = random.Random(1)
    for _ in range(rounds):
        # Each may come after each: the server may be busier after some.
        for name in order.sample(list(ways), len(ways)):
            events = _ONE_BY_ONE if ways[name] is one_by_one else _EVENTS
            started, used = time.perf_counter(), time.process_time()
            await ways[name]()
            wall[name].append(events / (time.perf_counter() - started))
            cpu[name].append((time.process_time() - used) / events * 1000)
    for name, rates in wall.items():
        low, middle, high = min(rates), statistics.median(rates), max(rates)
        own = statistics.median(cpu[name])
        print(f"{name:34} {middle:7,.0f} events/s ({low:,.0f} to {high:,.0f}), {own:.3f} ms of CPU each")
    # Per round: what else runs on the machine slows all of one round.
    ratios = [mine / loop for mine, loop in zip(wall[_BUSWAY], wall[_IN_BATCHES], strict=True)]
    print(f"Busway against the loop with batches: {statistics.median(ratios):.2f} times, at least 1 is wanted")
    await output.close()
    await client.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    server.start()
    try:
        asyncio.run(_measure(here.recv(), rounds))
    finally:
        server.kill()


if __name__ == "__main__":
    main()
