"""One Azure Function per replication task."""

import logging
from collections.abc import Awaitable, Callable
from typing import List  # noqa: UP035 - see its use

import azure.functions as func

from functions.raw_message import RawMessage
from functions.stock_binding import STOCK_LOSSES, event_contents, event_partition, lock_tokens, service_bus_content
from shared.config.models import DEFAULT_CONSUMER_GROUP, TaskFile
from shared.pipeline import Pipeline

_LOGGER = logging.getLogger("busway.tasks")

# Event Hubs: a batch that failed is replayed until it gets through; giving up would move the checkpoint past it.
_RETRY_FOR_EVER = "-1"
_SHORTEST_RETRY = "00:00:05"
_LONGEST_RETRY = "00:05:00"

type Decorator = Callable[[object], object]


def register(app: func.FunctionApp, task: TaskFile, pipeline: Pipeline, setting: str) -> None:
    """Add the function of *task* to *app*, which takes from the connection of the app setting *setting*."""
    if task.trigger == "stock":
        _LOGGER.warning("%s: takes from the stock trigger: %s", task.task, STOCK_LOSSES)
    function = _function(task, pipeline)
    decorated = _trigger(app, task, setting)(function)
    if task.source.hub is not None:
        decorated = app.retry(
            strategy="exponential_backoff",
            max_retry_count=_RETRY_FOR_EVER,
            minimum_interval=_SHORTEST_RETRY,
            maximum_interval=_LONGEST_RETRY,
        )(decorated)
    app.function_name(task.task)(decorated)


def _function(task: TaskFile, pipeline: Pipeline) -> Callable[..., Awaitable[None]]:
    async def replicate(messages: List[RawMessage]) -> None:  # noqa: UP006 - the worker refuses list[RawMessage]
        tokens = [message.lock_token for message in messages if message.lock_token is not None]
        await pipeline.run([message.content for message in messages], messages[0].partition, tokens)

    async def replicate_events(messages: List[func.EventHubEvent]) -> None:  # noqa: UP006 - the worker refuses list[…]
        await pipeline.run(event_contents(messages), event_partition(messages))

    async def replicate_message(messages: func.ServiceBusMessage) -> None:
        await pipeline.run([service_bus_content(messages)], lock_tokens=lock_tokens(messages))

    if task.trigger == "raw":
        return replicate
    return replicate_message if task.source.hub is None else replicate_events


def _trigger(app: func.FunctionApp, task: TaskFile, setting: str) -> Decorator:
    source = task.source
    # Batches of the stock binding mix up the properties of messages from Service Bus, not those of events.
    takes_many = task.trigger == "raw" or source.hub is not None
    cardinality = func.Cardinality.MANY if takes_many else func.Cardinality.ONE
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
