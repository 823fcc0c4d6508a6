from pathlib import Path

import pytest

from host.checkpoints import Checkpoints
from host.listener import Stopping
from host.platform import Platform
from host.settings import Settings, load_host_options
from host.settlement.actions import ActionsCache
from host.trigger_listeners import Triggers
from host.worker import EmbeddedWorker, Function
from shared.clock import SystemClock
from shared.errors import ConfigError

TRIGGERS = [
    {"type": "serviceBusTrigger", "name": "m", "queueName": "q", "connection": "C"},
    {"type": "eventHubTrigger", "name": "m", "eventHubName": "h", "connection": "C"},
    {"type": "queueTrigger", "name": "m", "queueName": "q", "connection": "C"},
]


def test_functions_with_stock_bindings_are_refused_together(tmp_path: Path) -> None:
    triggers = Triggers(
        Settings({"C": "Endpoint=sb://localhost/;SharedAccessKeyName=k;SharedAccessKey=s"}),
        load_host_options(tmp_path),
        EmbeddedWorker(),  # type: ignore[arg-type] # without outputs, which no listener asks for
        SystemClock(),
        ActionsCache(),
        Checkpoints(),
        Platform(),
        wire=False,
    )
    functions = [Function(f"{number}", f"f{number}", trigger, {}, None) for number, trigger in enumerate(TRIGGERS)]
    with pytest.raises(ConfigError) as error:
        triggers.listeners(functions, Stopping())
    assert [(problem.path, problem.problem) for problem in error.value.problems] == [
        ("f0.m", "this host passes encoded messages alone, expected an SDK type such as RawMessage"),
        ("f1.m", "this host passes encoded messages alone, expected an SDK type such as RawMessage"),
        ("f2.m", "this host passes bytes alone, expected `data_type` BINARY"),
    ]
