"""The function app of this repository with another clock: like `function_app.py`, except the pipelines' time."""

import os
from pathlib import Path

import azure.functions as func

from functions.settlement import HostSettlement
from functions.tasks import register
from functions.termination import end_at_signals
from shared.assembly.pipelines import pipelines
from shared.line.shutdown import Shutdown
from shared.tasks.files import load
from tests.faults.virtual_time import RemoteClock

# Real seconds, which are no virtual ones: a loaded machine may need some for a call.
_CALL_SECONDS = 30.0

app = func.FunctionApp()

_clock = RemoteClock.of_environment()
_configuration = load(Path(os.environ["BUSWAY_CONFIG"]))


class SettlementInOneMoment(HostSettlement):
    """The settlement service of the host; no virtual time passes during a call."""

    async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """Return the encoded answer to an encoded *request*."""
        with _clock.held():
            return await super().call(method, request, max(timeout_seconds, _CALL_SECONDS))


_shutdown, _settlement = Shutdown(), SettlementInOneMoment()
end_at_signals(_shutdown, lambda _: None)

for _task, _pipeline in pipelines(
    _configuration, os.environ, _shutdown, settlement=_settlement, clock=_clock, sleep=_clock.sleep
):
    register(app, _task, _pipeline, _configuration.connections[_task.source.connection].key, sessions=_settlement)
