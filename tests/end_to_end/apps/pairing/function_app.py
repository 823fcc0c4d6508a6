import azure.functions as func

from functions.raw_message import RawMessage
from tests.end_to_end.apps.noting.notes import note, raw

app = func.FunctionApp()


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="session-pairs", connection="SB", is_sessions_enabled=True
)
def session_pairs(message: RawMessage) -> None:
    note("session_pairs", [raw(message)])
