"""
One instance of the app: the pipelines of its task files, and the listeners of the local host that call them.

Where the real host has a process for the worker, gRPC and sockets, this has the same objects in one event loop.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from functions.raw_message import EventHubsConverter, RawMessage, ServiceBusConverter
from functions.settlement import HostSettlement, _translated
from functions.tasks import _READ_SECONDS, _function, _gathered
from host.listener import Listener, Stopping
from host.platform import Ending
from host.retry import UNLIMITED, RetryPolicy
from host.settings import EventHubsOptions, ServiceBusOptions
from host.settlement.actions import ActionsCache
from host.settlement.service import CallFailed, SettlementCalls
from host.triggers.event_hubs import EventHubsListener
from host.triggers.service_bus_batch import ServiceBusBatchListener
from host.triggers.service_bus_single import ServiceBusSingleListener
from host.worker import Attempt, Function, Invocation, Outputs
from shared.assembly.journals import Journals
from shared.assembly.pipelines import pipelines
from shared.editors.state import store
from shared.errors import BuswayError
from shared.line.hub_reader import HubReader
from shared.line.intake import Intake
from shared.line.pause import Order, Pause
from shared.line.pipeline import Pipeline
from shared.line.shutdown import Shutdown
from shared.protocols import Output
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile
from shared.telemetry.opening import open_telemetry
from tests.simulation.bindings import Body, Given, SimulatedOutputs, bound, handed_over
from tests.simulation.bus_source import BusSource
from tests.simulation.holding import HOLDING, SESSION, Holding, Lock
from tests.simulation.hub_source import HubSource
from tests.simulation.journal import SimulatedBlobs, SimulatedCheckpoints, SimulatedDocuments, SimulatedSink
from tests.simulation.network import entity_of
from tests.simulation.process import Process
from tests.simulation.senders import event_hubs_output, names_in, service_bus_output
from tests.simulation.site import SkewedClock

if TYPE_CHECKING:
    from tests.simulation.world import World

_RETRY = RetryPolicy(UNLIMITED, None, timedelta(seconds=5), timedelta(minutes=5))
_BESIDE_SECONDS = 2.0
_QUIET_SECONDS = 1.0
_SIGTERM_SECONDS = 10.0
_DRAIN_SECONDS = 3600.0
_LOOK_SECONDS = 1.0
_RENEWALS = "RenewSessionLock", "RenewMessageLock"
_TOKEN_LENGTH = 36
# After its time is over, a delivery records what it has, and gives the rest back.
_LATE_SECONDS = 60.0
_LOOK_AT_HUB_SECONDS = 15.0
_SCHEDULE_SECONDS = 5.0
_SETTINGS = {
    "STORE": "file:/store",
    "BUSWAY_SECRET_KEY": json.dumps({"kty": "oct", "kid": "one", "k": "A" * 43}),
}
_SERVICE_BUS = ServiceBusOptions(
    max_concurrent_calls=6,
    max_concurrent_sessions=3,
    max_auto_lock_renewal_duration=timedelta(hours=2),
    session_idle_timeout=timedelta(milliseconds=100),
)


class Settlement(HostSettlement):
    """The settlement service of the host, asked without a socket."""

    def __init__(self, cache: ActionsCache) -> None:
        """Ask the calls of a host with this *cache*."""
        super().__init__([])
        self._calls = SettlementCalls(cache)

    async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """Return the encoded answer to an encoded *request*."""
        asked = asyncio.get_running_loop().time()
        try:
            answer = await self._answer(method, request, timeout_seconds)
        except BuswayError as error:
            _note_renewal(method, request, asked, error)
            raise
        _note_renewal(method, request, asked, None)
        return answer

    async def _answer(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._calls.answer(method, request)
        except TimeoutError as error:
            raise _translated(method, "DEADLINE_EXCEEDED", "") from error
        except CallFailed as error:
            raise _translated(method, error.status, error.details) from error


def _note_renewal(method: str, request: bytes, asked: float, error: BuswayError | None) -> None:
    """Let the invocation know; a request for the renewal of a message ends with its lock token."""
    holding = HOLDING.get()
    if holding is not None and method in _RENEWALS:
        lock = SESSION if method == "RenewSessionLock" else request[-_TOKEN_LENGTH:].decode()
        holding.note(lock, asked, error)


class Worker:
    """Invokes the functions of the app, as the worker's process does."""

    outputs: Outputs | None

    def __init__(self, world: "World", outputs: Outputs) -> None:
        """Begin without functions; the host sends what they set with *outputs*."""
        self.outputs = outputs
        self.functions: dict[str, Body] = {}
        self.files: dict[str, TaskFile] = {}
        """The task of each function."""
        self.running = 0
        self._world = world
        self._loop = world.loop
        self._busy_at = world.loop.time()

    async def invoke(self, attempt: Attempt) -> Invocation:
        """Run a function once."""
        function, data = attempt.function, attempt.data
        kind: Any = EventHubsConverter if function.trigger["type"] == "eventHubTrigger" else ServiceBusConverter
        datum = SimpleNamespace(type=data.kind, value=data.data)
        metadata = {name: SimpleNamespace(value=each.data) for name, each in attempt.trigger_metadata.items()}
        messages = kind.decode(datum, trigger_metadata=metadata)
        self.running += 1
        file = self.files[function.name]
        HOLDING.set(self._held(file, messages if function.is_many else [messages]))
        end = self._loop.time() + (self._world.hold or file.limits.hold).total_seconds() + _LATE_SECONDS
        try:
            if self._world.slowness:
                end += self._world.slowness
                await asyncio.sleep(self._world.slowness)
            outputs = {name: Given() for name in function.outputs}
            await self.functions[function.name](messages=messages, **outputs)
        except BuswayError as error:
            return Invocation(str(error) or type(error).__name__)
        except Exception as error:
            self._loop.failures.append(error)
            raise
        finally:
            self.running -= 1
            self._busy_at = self._loop.time()
            if self._busy_at > end:
                self._world.wrong["held for too long"].add(function.name)
        return Invocation(None, outputs=handed_over(outputs), id=attempt.invocation_id)

    def _held(self, file: TaskFile, messages: Sequence[RawMessage]) -> Holding:
        """Return what an invocation holds that begins now; the host renews the locks of single messages."""
        topology, now, seconds = self._world.topology, self._loop.time(), self._world.lock_seconds
        end = now + seconds if file.levers.dispatch != "single" and file.source.hub is None else float("inf")
        names = [names_in(message.content) for message in messages]
        if file.source.sessions:
            return Holding(file.task, now, seconds, {SESSION: Lock({name for each in names for name in each}, end)})
        # A message that is joined to others, or repeated by one, is sent for them too.
        is_alone = not topology.joins and not any(source.is_repeated for source in topology.inputs)
        tokens = [str(uuid.UUID(bytes_le=message.lock_token or bytes(16))) for message in messages]
        locks = {token: Lock(each if is_alone else set(), end) for token, each in zip(tokens, names, strict=True)}
        return Holding(file.task, now, seconds, locks)

    async def work(self, function: Awaitable[None]) -> None:
        """Run what a timer triggers."""
        self.running += 1
        try:
            await function
        finally:
            self.running -= 1
            self._busy_at = self._loop.time()

    def idle_seconds(self) -> float:
        """Return for how long no function has run."""
        return 0.0 if self.running else self._loop.time() - self._busy_at


class Instance(Process):
    """One instance; it lives until it is killed, stopped or drained."""

    def __init__(self, world: "World", number: int, configuration: Configuration) -> None:
        """Assemble the app; `start` lets it listen."""
        super().__init__(f"instance-{number}", world.batch_limit, world.topology.refuses)
        self.is_ending = False
        self.began = world.loop.time()
        """When it began, or took over the partitions of another instance."""
        self._begun: set[str] = set()
        self._earlier: set[str] = set()
        """What it had begun to send before it took over."""
        self._world = world
        self._cache = ActionsCache()
        self._shutdown = Shutdown()
        self._stopped = asyncio.Event()
        self._stopping = Stopping()
        self._worker = Worker(world, SimulatedOutputs(world.network, self, world.sites))
        self._clock = SkewedClock(world.loop, world.skew())
        self._listeners: list[Listener] = []
        self._bindings: dict[str, Mapping[str, Any]] = {}
        self._configuration = configuration
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        """Assemble the app and listen."""
        self.context.run(self._start)

    def begins_to_send(self, place: str, names: set[str]) -> None:
        """Note that it sends messages, perhaps again; two owners of a partition, and two copies, each send one."""
        topology, recorded, wrong = self._world.topology, self._world.recorded, self._world.wrong
        if recorded and not self.is_forgetful:
            known = {name for name in names if recorded.get((entity_of(place), name), self.began) < self.began}
            wrong["sent again although it was on record"] |= known - self._earlier
        self._begun |= names
        unreceived = {name for name in names if name.partition("/")[0] not in self._world.received}
        wrong["sent before it was on record as received"] |= unreceived
        holding, now = HOLDING.get(), self._world.loop.time()
        if holding is not None:
            wrong["sent although it was not locked any more"] |= holding.unlocked(names, now)
            if holding.must_wait(self._world.paused.get(holding.task)):
                wrong["sent although its task was paused"] |= names
        if topology.kinds or not topology.taps:
            return
        # What the application sends twice is sent twice if the store of the editor has not answered.
        doubled = {draft.name for draft in self._world.accepted if draft.is_again} if self.is_forgetful else set()
        wrong["sent again although the answer had come"] |= {
            name for name in names - doubled if (place, name) in self.sent or self.under_way[place, name] > 0
        }

    def claim(self) -> None:
        """Take the partitions of hubs that others have left, as the balancing of Azure does after a while."""
        if not self.is_dead and not self.is_ending:
            self.began, self._earlier = self._world.loop.time(), {*self._begun}
            for file in self._configuration.tasks:
                if file.source.hub is not None and file.source.reader == "host":
                    for name in file.functions():
                        self.context.run(self._listen, self._listener(file, name))

    def ended(self) -> None:
        """Let the platform know."""
        if not self.is_forgetful:
            # A target that has not answered for some of a call may have others of it, which nobody can record.
            waits_for = {entity_of(channel.where) for channel in self.channels if channel.is_waiting}
            answered = {sent: at for sent, at in self.sent.items() if entity_of(sent[0]) not in waits_for}
            self._world.note_unrecorded(answered)
        self._world.ended(self)

    def leaves_partitions(self) -> None:
        """Let the balancer see it."""
        self._world.claim_later()

    async def end(self, ending: Ending) -> None:
        """End as the platform does; see `host.host.Host.stop`."""
        self.is_ending = True
        if ending is Ending.STOP:
            self._stopping.announce()
            await self._quiet(_SIGTERM_SECONDS)
        else:
            self._stopping.drain()
            self._stopping.announce()
            await asyncio.sleep(_BESIDE_SECONDS)
        for listener in self._listeners:
            listener.stop()
        if ending is Ending.DRAIN:
            await self._quiet(_DRAIN_SECONDS)
        self._stopping.finish()
        self._shutdown.request()
        self._stopped.set()
        await asyncio.sleep(_SIGTERM_SECONDS)
        self.kill()

    def _start(self) -> None:
        world = self._world
        outputs: dict[str, Output] = {}
        for alias, connection in self._configuration.connections.items():
            site = world.sites[self._configuration.site(alias)]
            make: Callable[..., Output] = service_bus_output if connection.kind == "service-bus" else event_hubs_output
            outputs[alias] = make(world.network, self, site)
        settlement = Settlement(self._cache)
        sink = SimulatedSink(world, self)
        pauses = {
            file.task: Pause(file.task, self._reader_of_orders(file.task), self._clock)
            for file in self._configuration.tasks
        }
        with (
            patch.object(store, "open_blobs", lambda *_: SimulatedBlobs(world, self)),
            patch.object(store, "open_documents", lambda *_: SimulatedDocuments(world, self)),
        ):
            made = pipelines(
                self._configuration,
                _SETTINGS,
                self._shutdown,
                journals=Journals(self._configuration, {}, self._clock, sink=sink),
                outputs=outputs,
                telemetry=_TELEMETRY,
                pauses=pauses,
                settlement=settlement,
                clock=self._clock,
                sleep=self._sleep,
                hold=world.hold,
            )
        for file, pipeline in made:
            if file.source.reader == "app":
                self._read(file, pipeline)
                continue
            for name in file.functions():
                if file.levers.dispatch == "single":
                    intake = Intake(pipeline, has_sessions=file.source.sessions)
                    body = _gathered(file, intake, settlement)
                else:
                    body = _function(file, pipeline.run, settlement)
                self._worker.files[name] = file
                self._worker.functions[name], self._bindings[name] = bound(body, list(pipeline.bindings))
                self._listen(self._listener(file, name))

    def _read(self, file: TaskFile, pipeline: Pipeline) -> None:
        """Read the hub of a task as its timer does, which the host runs in one instance."""
        world = self._world
        site = world.sites[self._configuration.site(file.source.connection)]
        hub = HubSource(world.network, self, site, file.source.hub or "", file.source.consumer_group or "$Default")
        reader = HubReader(
            file.task,
            hub,  # type: ignore[arg-type] # with the methods that the reader calls
            SimulatedCheckpoints(world, self, hub),  # type: ignore[arg-type] # likewise
            pipeline.run,
            self._shutdown,
            look_seconds=_LOOK_AT_HUB_SECONDS,
        )

        async def read() -> None:
            while not self._shutdown.is_requested:
                await self._sleep(_SCHEDULE_SECONDS)
                owner = world.readers.get(file.task)
                if not (owner is None or owner is self or owner.is_dead or world.steal_after()):
                    continue
                world.readers[file.task] = self
                with contextlib.suppress(BuswayError):
                    await self._worker.work(reader.read(_READ_SECONDS))

        self._tasks.append(world.loop.create_task(read(), context=self.context.copy()))

    def _listen(self, listener: Listener) -> None:
        self._listeners.append(listener)
        self._tasks.append(self._world.loop.create_task(listener.run(), context=self.context.copy()))

    def _listener(self, file: TaskFile, name: str) -> Listener:
        world, source = self._world, file.source
        site = world.sites[self._configuration.site(source.connection)]
        if source.hub is not None:
            hub = HubSource(world.network, self, site, source.hub, source.consumer_group or "$Default")
            function = self._made(name, "eventHubTrigger", is_many=True, retry=_RETRY)
            return EventHubsListener(
                function,
                hub,  # type: ignore[arg-type] # with the methods that the listener calls
                replace(EventHubsOptions(), max_event_batch_size=world.batch_size, prefetch_count=20),
                self._worker,
                self._clock,
                stopping=self._stopping,
                checkpoints=world.checkpoints,
                wire=True,
                losing=world.losing,
                steal_after=world.steal_after(),
            )
        path = source.queue or f"{source.topic}/Subscriptions/{source.subscription}"
        path += "/$DeadLetterQueue" if source.dead_letter else ""
        is_many = file.levers.dispatch != "single"
        kind = ServiceBusBatchListener if is_many else ServiceBusSingleListener
        return kind(
            self._made(name, "serviceBusTrigger", is_many=is_many, retry=None),
            BusSource(world.network, self, site, path, has_sessions=source.sessions),  # type: ignore[arg-type] # likewise
            replace(
                _SERVICE_BUS,
                max_message_batch_size=world.batch_size,
                max_concurrent_calls_per_session=world.calls_per_session,
            ),
            self._worker,
            self._clock,
            stopping=self._stopping,
            wire=True,
            losing=world.losing,
            cache=self._cache,
        )

    def _reader_of_orders(self, task: str) -> Callable[[], Awaitable[Order]]:
        async def read() -> Order:
            await asyncio.sleep(self._world.network.delay())
            return Order.WAIT if task in self._world.paused else Order.RUN

        return read

    def _made(self, name: str, kind: str, *, is_many: bool, retry: RetryPolicy | None) -> Function:
        trigger = {
            "name": "messages",
            "type": kind,
            "cardinality": "MANY" if is_many else "ONE",
            "properties": {"SupportsDeferredBinding": True},
        }
        return Function(name, name, trigger, self._bindings[name], retry)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, or until the shutdown; as `Shutdown.sleep`, without looking four times a second."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return

    async def _quiet(self, seconds: float) -> None:
        end = self._world.loop.time() + seconds
        while self._worker.idle_seconds() < _QUIET_SECONDS and (left := end - self._world.loop.time()) > 0:  # noqa: ASYNC110 - as the host does
            await asyncio.sleep(min(left, _LOOK_SECONDS))


_TELEMETRY = open_telemetry({})
