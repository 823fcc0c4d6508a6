"""One Azure Function per replication task."""

from collections.abc import Awaitable, Callable
from typing import List  # noqa: UP035 - see its use

import azure.functions as func

from functions.raw_message import RawMessage
from functions.stock_binding import event_content, event_partition, lock_tokens, service_bus_content
from shared.config.models import DEFAULT_CONSUMER_GROUP, Source, TaskFile
from shared.errors import ConfigError, Problem
from shared.pipeline import Pipeline

RAW = "raw"
STOCK = "stock"

# Event Hubs: a batch that failed is replayed until it gets through; giving up would move the checkpoint past it.
_RETRY_FOR_EVER = "-1"
_SHORTEST_RETRY = "00:00:05"
_LONGEST_RETRY = "00:05:00"

type Decorator = Callable[[object], object]


def register(app: func.FunctionApp, task: TaskFile, pipeline: Pipeline, setting: str, trigger: str) -> None:
    """
    Add the function of *task* to *app*, which takes from the connection of the app setting *setting*.

    *trigger* is `raw` (the encoded messages, in batches) or `stock` (the binding of every host, message by message).
    Raises ConfigError for another one.
    """
    if trigger not in (RAW, STOCK):
        raise ConfigError([Problem("BUSWAY_TRIGGER", f"is {trigger!r}, expected {RAW!r} or {STOCK!r}")])
    function = (
        _raw_function(pipeline) if trigger == RAW else _stock_function(pipeline, is_hub=task.source.hub is not None)
    )
    decorated = _trigger(app, task.source, setting, trigger)(function)
    if task.source.hub is not None:
        decorated = app.retry(
            strategy="exponential_backoff",
            max_retry_count=_RETRY_FOR_EVER,
            minimum_interval=_SHORTEST_RETRY,
            maximum_interval=_LONGEST_RETRY,
        )(decorated)
    app.function_name(task.task)(decorated)


def _raw_function(pipeline: Pipeline) -> Callable[..., Awaitable[None]]:
    async def replicate(messages: List[RawMessage]) -> None:  # noqa: UP006 - the worker refuses list[RawMessage]
        tokens = [message.lock_token for message in messages if message.lock_token is not None]
        await pipeline.run([message.content for message in messages], messages[0].partition, tokens)

    return replicate


def _stock_function(pipeline: Pipeline, *, is_hub: bool) -> Callable[..., Awaitable[None]]:
    async def replicate_message(messages: func.ServiceBusMessage) -> None:
        await pipeline.run([service_bus_content(messages)], lock_tokens=lock_tokens(messages))

    async def replicate_event(messages: func.EventHubEvent) -> None:
        await pipeline.run([event_content(messages)], event_partition(messages))

    return replicate_event if is_hub else replicate_message


def _trigger(app: func.FunctionApp, source: Source, setting: str, trigger: str) -> Decorator:
    cardinality = func.Cardinality.MANY if trigger == RAW else func.Cardinality.ONE
    suffix = "/$DeadLetterQueue" if source.dead_letter else ""
    # The sessions flag is left out rather than false: a dead-letter sub-queue has no sessions to speak of.
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
            queue_name=source.queue + suffix,
            is_sessions_enabled=sessions,
            cardinality=cardinality,
            data_type=func.DataType.BINARY,
        )
    else:
        decorator = app.service_bus_topic_trigger(
            arg_name="messages",
            connection=setting,
            topic_name=source.topic or "",
            subscription_name=f"{source.subscription}{suffix}",
            is_sessions_enabled=sessions,
            cardinality=cardinality,
            data_type=func.DataType.BINARY,
        )
    return decorator
