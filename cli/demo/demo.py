"""The demo: start two sites, send to both, wait for all messages, compare."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

from rich.console import Console

from busway import ROOT
from cli.demo import messages
from cli.demo.applications import Consumers, feed, set_aside
from cli.demo.exact_types import keep_encoded_messages
from cli.demo.expectations import foreign_receipts, judge
from cli.demo.messages import EAST, WEST, Pattern, Sample, read_templates
from cli.demo.observations import Observations, Watch
from cli.demo.report import print_report
from cli.files import free_folder
from cli.local_app import introduction
from cli.output import console, print_problems
from cli.signals import beside, together
from cli.spark import check_spark, run_job
from cli.stack import Stack, node_modules, running_stack
from shared.errors import ConfigError
from shared.stores.storage_account import container_url

LOGS = Path.cwd() / "build/demo"
WEBHOOKS = Path("@octokit/webhooks-examples/api.github.com/index.json")
NAMESPACES = {site.upper(): ROOT / f"infra/emulators/{site}.json" for site in (WEST, EAST)}

_WEBHOOKS = 2000
# Slow enough that the lag is that of Busway and not of a backlog.
_MESSAGES_PER_SECOND = 200.0
# Messages that have not arrived are lost when nothing has arrived for this long.
_STALLED_SECONDS = 20.0
# How long to wait for messages that must not arrive, after all others have.
_QUIET_SECONDS = 2.0


async def run_demo(file: Path | None, count: int | None, *, fewest: int, keep: bool) -> bool:
    """
    Send *count* messages of *file*, or recorded webhooks, through two sites; return whether all expectations held.

    With *keep* it then runs until it is cancelled. Raises ConfigError, ChildFailed, TargetUnavailable.
    """
    if file is None:
        templates, usual = messages.webhook_templates(node_modules() / WEBHOOKS), _WEBHOOKS
    else:
        templates = read_templates(file)
        usual = max(len(templates), fewest)
    keep_encoded_messages()
    with free_folder(LOGS) as logs:
        samples = messages.samples(templates, usual if count is None else count)
        return await _run(samples, console(), logs, keep=keep)


async def _run(samples: Sequence[Sample], console: Console, logs: Path, *, keep: bool) -> bool:
    started = time.monotonic()
    console.print("Starting Azurite, the broker with two namespaces, and the Functions host …")
    begun = datetime.now(UTC)
    async with running_stack(NAMESPACES, logs, folder=with_journal(logs)) as stack:
        console.print(f"Running after {time.monotonic() - started:.1f} s: {stack.tasks}")
        has_held = await stack.while_it_runs(_exchange(samples, stack, console, logs))
        has_held &= await stack.while_it_runs(reconcile_demo(stack.storage, logs, begun, console))
        if keep:
            console.print("\n" + _around(stack, logs), soft_wrap=True)
            # Ctrl-C ends the waiting, not the demo, which has its result.
            with contextlib.suppress(asyncio.CancelledError):
                await stack.while_it_runs(asyncio.Event().wait())
    return has_held


async def _exchange(samples: Sequence[Sample], stack: Stack, console: Console, logs: Path) -> bool:
    started = time.monotonic()
    sites = {site: stack.connection_strings[site.upper()] for site in (WEST, EAST)}
    with Watch(console, samples) as watch:
        observations = Observations(samples, watch.arrived)

        async def feed_and_wait() -> float:
            # On all sites and to all entities at once, at rates that make them end together.
            senders = []
            for (site, _), group in groupby(sorted(samples, key=_origin_of), lambda each: _origin_of(each)[:2]):
                mine = list(group)
                pause = len(samples) / _MESSAGES_PER_SECOND / len(mine)
                senders.append(feed(sites[site], mine, pause, watch.sent))
            await together(*senders)
            while not observations.is_complete:
                observations.progressed.clear()
                try:
                    async with asyncio.timeout(_STALLED_SECONDS):
                        await observations.progressed.wait()
                except TimeoutError:
                    break
            seconds = time.monotonic() - started
            await asyncio.sleep(_QUIET_SECONDS)
            return seconds

        consuming = (Consumers(site, string, observations).run() for site, string in sites.items())
        seconds = await beside(together(*consuming), feed_and_wait())
    others = foreign_receipts(observations)
    with (logs / "host.log").open(encoding="utf-8") as lines:
        # The host's decisions to withhold or reject a message; the demo expects none.
        records = (line.partition("busway.journal: ") for line in lines)
        others += [
            f"the journal reports a message that was not sent: {each.strip()}" for _, is_it, each in records if is_it
        ]
    for found in await asyncio.gather(*(set_aside(site, string) for site, string in sites.items())):
        others += found
    return print_report(console, judge(observations), others, len(samples), seconds)


def _origin_of(sample: Sample) -> tuple[str, Pattern, int]:
    return sample.site, sample.pattern, sample.number


def _around(stack: Stack, logs: Path) -> str:
    return f"""\
{introduction(stack, logs)}

To send a message to west and receive it in east, with these settings in the environment:

python -c '
import os
from azure.servicebus import ServiceBusClient, ServiceBusMessage

with ServiceBusClient.from_connection_string(os.environ["WEST"]) as west:
    west.get_topic_sender("events").send_messages(ServiceBusMessage("hello", session_id="me"))
with ServiceBusClient.from_connection_string(os.environ["EAST"]) as east:
    for message in east.get_subscription_receiver("events", "application", session_id="me").receive_messages():
        print(message, message.application_properties)
'
Press Ctrl-C to stop everything."""


_TASKS = ("events.yaml", "jobs.yaml", "payments.yaml")
_CONTAINER = "journal"
_SETTING = "AzureWebJobsStorage"
_HOUR = "%Y-%m-%dT%H"


def with_journal(logs: Path, config: Path = ROOT / "config") -> Path:
    """Return a copy of the demo's part of *config*, whose tasks write their journals to Azurite."""
    folder = (logs / "config").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tasks").mkdir(parents=True)
    shutil.copy(config / "connections.yaml", folder)
    # Not the tasks that somebody has written beside them.
    for name in _TASKS:
        shutil.copy(config / "tasks" / name, folder / "tasks")
    text = f"blob: {{setting: {_SETTING}, container: {_CONTAINER}}}\n"
    (folder / "journal.yaml").write_text(text, encoding="utf-8")
    return folder


async def reconcile_demo(storage: str, logs: Path, begun: datetime, console: Console) -> bool:
    """
    Reconcile the journals since *begun*; return whether the job has no findings.

    If Spark cannot run, print the reason and return True: the demo has counted for itself.
    """
    try:
        check_spark()
    except ConfigError as error:
        console.print("\nNot reconciled:")
        print_problems(error.problems)
        return True
    console.print("\nReconciling the journals with the nightly job, on Spark on this machine:")
    out = logs / "reconciliation"
    shutil.rmtree(out, ignore_errors=True)
    first = begun.replace(minute=0, second=0, microsecond=0)
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    options = ["--start", first.strftime(_HOUR), "--end", end.strftime(_HOUR), "--memory", "1g"]
    # Everything has arrived or is lost, and no task writes any longer.
    options += ["--grace-minutes", "0", "--writers-stopped"]
    url = container_url("storage", {"storage": storage}, _CONTAINER)
    return await asyncio.to_thread(run_job, url, out, options, storage) == 0
