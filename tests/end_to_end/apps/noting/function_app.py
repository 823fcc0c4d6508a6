# ruff: noqa: UP006, UP035 - the worker takes List[RawMessage] for a type, list[RawMessage] not
from typing import List

import azure.functions as func

from functions.raw_message import RawMessage
from tests.end_to_end.apps.noting.notes import note, raw

app = func.FunctionApp()


@app.service_bus_queue_trigger(arg_name="messages", queue_name="%RAW_QUEUE%", connection="SB", cardinality="many")
def raw_batch(messages: List[RawMessage]) -> None:
    note("raw_batch", [raw(message) for message in messages])


@app.service_bus_queue_trigger(
    arg_name="messages", queue_name="%RAW_QUEUE%/$DeadLetterQueue", connection="SB", cardinality="many"
)
async def dead_letters(messages: List[RawMessage]) -> None:
    note("dead_letters", [raw(message) for message in messages])


@app.service_bus_queue_trigger(arg_name="message", queue_name="raw-single", connection="SB")
def raw_single(message: RawMessage) -> None:
    note("raw_single", [raw(message)])


@app.service_bus_topic_trigger(
    arg_name="messages",
    topic_name="sessions",
    subscription_name="all",
    connection="SB",
    cardinality="many",
    is_sessions_enabled=True,
)
def session_batch(messages: List[RawMessage]) -> None:
    note("session_batch", [raw(message) for message in messages])


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="session-single", connection="SB", is_sessions_enabled=True
)
def session_single(message: RawMessage) -> None:
    note("session_single", [raw(message)])


@app.event_hub_message_trigger(
    arg_name="events", event_hub_name="hub", connection="EH", cardinality=func.Cardinality.MANY
)
@app.retry(strategy="fixed_delay", max_retry_count="2", delay_interval="00:00:00")
def raw_events(events: List[RawMessage]) -> None:
    note("raw_events", [raw(event) for event in events])


@app.event_hub_message_trigger(arg_name="event", event_hub_name="hub", connection="EH", consumer_group="single")
def raw_event(event: RawMessage) -> None:
    note("raw_event", [raw(event)])


@app.timer_trigger(arg_name="timer", schedule="* * * * * *")
def tick(timer: func.TimerRequest) -> None:
    note("tick", [{"body": "", "past_due": timer.past_due}])


@app.route(route="hello/{name?}", methods=["GET", "POST"], auth_level=func.AuthLevel.ANONYMOUS)
def hello(req: func.HttpRequest) -> func.HttpResponse:
    text = f"{req.route_params.get('name')} {req.params.get('q')} {req.get_body().decode()}"
    return func.HttpResponse(text, status_code=201, headers={"X-Test": "yes"})
