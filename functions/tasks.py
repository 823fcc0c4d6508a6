"""One Azure Function per replication task, and one per tap."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, List  # noqa: UP035 - see its use

import azure.functions as func

from functions.output_bindings import with_outputs
from functions.raw_message import RawMessage, queue_content, queue_trigger
from functions.settlement import HostSettlement
from shared.assembly.journals import OutputBinding
from shared.codecs.envelope import event_key
from shared.errors import MessageRejected
from shared.journal.peeking_tap import PeekingTap
from shared.journal.tap import Tap
from shared.line.binding_output import BindingOutput
from shared.line.intake import Intake
from shared.line.pipeline import Pipeline
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import HeldSession
from shared.tasks.journal_models import TapFile
from shared.tasks.models import TaskFile
from shared.tasks.source import DEFAULT_CONSUMER_GROUP

if TYPE_CHECKING:
    from shared.line.hub_reader import HubReader

# Event Hubs: a failed batch is retried until it succeeds; giving up would move the checkpoint past it.
_RETRY_FOR_EVER = "-1"
_SHORTEST_RETRY = "00:00:05"
_LONGEST_RETRY = "00:05:00"

# A task that reads its hub itself: a run begins when the one before it has ended. `limits.hold` of a batch comes on
# top, within functionTimeout.
_READ_SCHEDULE = "*/5 * * * * *"
_READ_SECONDS = 240.0

_NOWHERE = Origin("", "")

type Decorator = Callable[[object], object]
type Run = Callable[[Sequence[bytes], str | None, Sequence[bytes], HeldSession | None], Awaitable[object]]
"""Processes a batch of a partition, with its lock tokens and session, as `Pipeline.run`; raises to get it again."""


def register(
    app: func.FunctionApp,
    task: TaskFile,
    pipeline: Pipeline,
    setting: str,
    journal: OutputBinding | None = None,
    *,
    has_texts: bool = False,
    sessions: HostSettlement,
) -> None:
    """
    Add a function for each lane of *task* to *app*; the triggers use the connection in the app setting *setting*.

    *journal* is the output binding of a journal that is kept in an event hub. With *has_texts* the messages of a queue
    are texts, as those of a storage queue. *sessions* has the sessions of all invocations.
    """
    if task.source.webhook is not None:
        # Import lazily: only apps with webhooks need this.
        from functions.event_grid import register_webhook  # noqa: PLC0415 - see above

        register_webhook(app, task.task, task.source.webhook, Intake(pipeline, has_sessions=False))
        return
    if has_texts:
        intake = Intake(pipeline, has_sessions=False)
        app.function_name(task.task)(queue_trigger(app, task.source.entity, setting)(_from_queue(intake)))
        return
    if task.journal is False:
        journal = None
    if task.levers.dispatch == "single":
        intake = Intake(pipeline, has_sessions=task.source.sessions)
        _declare(app, task, _gathered(task, intake, sessions), setting, task.task)
        return
    for name in task.functions():
        _register(app, task, pipeline.run, setting, journal, sessions=sessions, name=name, bindings=pipeline.bindings)


def register_tap(
    app: func.FunctionApp,
    file: TapFile,
    tap: Tap,
    setting: str,
    journal: OutputBinding | None = None,
    *,
    sessions: HostSettlement,
) -> None:
    """Add the function of a tap that drains a subscription or a consumer group; as `register`."""

    async def see(batch: Sequence[bytes], partition: str | None, *_: object) -> None:
        await tap.see(batch, partition)  # it does not settle, nor does it wait

    _register(app, file, see, setting, journal, sessions=sessions, name=file.task)


def register_peeking_tap(app: func.FunctionApp, file: TapFile, tap: PeekingTap) -> None:
    """Add the function of a tap that peeks on a schedule."""
    _register_timer(app, file.task, file.tap.peek or "", tap.look)


def register_hub_reader(app: func.FunctionApp, task: str, reader: "HubReader") -> None:
    """Add the timer of a task that reads its hub itself; the host runs it in one instance."""
    _register_timer(app, task, _READ_SCHEDULE, partial(reader.read, _READ_SECONDS))


def _register_timer(app: func.FunctionApp, name: str, schedule: str, work: Callable[[], Awaitable[object]]) -> None:
    async def run(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the trigger's name for it
        await work()

    app.function_name(name)(app.timer_trigger(arg_name="timer", schedule=schedule, run_on_startup=False)(run))


def _register(
    app: func.FunctionApp,
    file: TaskFile | TapFile,
    run: Run,
    setting: str,
    journal: OutputBinding | None,
    *,
    sessions: HostSettlement,
    name: str,
    bindings: Sequence[BindingOutput] = (),
) -> None:
    _declare(app, file, with_outputs(app, _function(file, run, sessions), bindings, journal), setting, name)


def _declare(app: func.FunctionApp, file: TaskFile | TapFile, function: object, setting: str, name: str) -> None:
    decorated = _trigger(app, file, setting)(function)
    if file.source.hub is not None:
        decorated = app.retry(
            strategy="exponential_backoff",
            max_retry_count=_RETRY_FOR_EVER,
            minimum_interval=_SHORTEST_RETRY,
            maximum_interval=_LONGEST_RETRY,
        )(decorated)
    app.function_name(name)(decorated)


def _function(file: TaskFile | TapFile, run: Run, sessions: HostSettlement) -> Callable[..., Awaitable[None]]:
    async def replicate(messages: List[RawMessage]) -> None:  # noqa: UP006 - the worker refuses list[RawMessage]
        first, batch = messages[0], [message.content for message in messages]
        tokens = [message.lock_token for message in messages if message.lock_token is not None]
        with _session(file, sessions, batch, first.session_locked_until) as session:
            await run(batch, first.partition, tokens, session)

    return replicate


def _gathered(task: TaskFile, intake: Intake, sessions: HostSettlement) -> Callable[..., Awaitable[None]]:
    async def replicate_one(messages: RawMessage) -> None:
        with _session(task, sessions, [messages.content]):
            await intake.run(messages.content, messages.lock_token)

    return replicate_one


def _session(
    file: TaskFile | TapFile, sessions: HostSettlement, batch: Sequence[bytes], locked_until: int | None = None
) -> AbstractContextManager[HeldSession | None]:
    """Return a context in which an invocation holds the session of its *batch*, if its source has sessions."""
    session_id = next(filter(None, map(_session_in, batch)), None) if file.source.sessions else None
    return nullcontext() if session_id is None else sessions.hold(session_id, locked_until)


def _session_in(content: bytes) -> str | None:
    try:
        return Message.received(content, _NOWHERE).session_id
    except MessageRejected:  # by the line, with its reason
        return None


def _from_queue(intake: Intake) -> Callable[..., Awaitable[None]]:
    async def replicate_queue_message(messages: func.QueueMessage) -> None:
        await intake.run(queue_content(messages), key=event_key(messages.get_body()))

    return replicate_queue_message


def _trigger(app: func.FunctionApp, file: TaskFile | TapFile, setting: str) -> Decorator:
    source = file.source
    is_single = isinstance(file, TaskFile) and file.levers.dispatch == "single"
    cardinality = func.Cardinality.ONE if is_single else func.Cardinality.MANY
    # Leave the sessions flag out rather than set it to false: a dead-letter sub-queue has no sessions.
    sessions = True if source.sessions else None
    decorator: Decorator
    if source.hub is not None:
        decorator = app.event_hub_message_trigger(
            arg_name="messages",
            connection=setting,
            event_hub_name=source.hub,
            consumer_group=source.consumer_group or DEFAULT_CONSUMER_GROUP,
            cardinality=cardinality,
            data_type=func.DataType.BINARY,
        )
    elif source.queue is not None:
        decorator = app.service_bus_queue_trigger(
            arg_name="messages",
            connection=setting,
            queue_name=source.queue + source.sub_queue,
            is_sessions_enabled=sessions,
            cardinality=cardinality,
            data_type=func.DataType.BINARY,
        )
    else:
        decorator = app.service_bus_topic_trigger(
            arg_name="messages",
            connection=setting,
            topic_name=source.topic or "",
            subscription_name=f"{source.subscription}{source.sub_queue}",
            is_sessions_enabled=sessions,
            cardinality=cardinality,
            data_type=func.DataType.BINARY,
        )
    return decorator
