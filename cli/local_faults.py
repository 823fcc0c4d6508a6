"""The faults of the local stack: the control interface of its broker, and the process of its function app."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.ends.namespace import ADMINISTRATION_SUFFIX
from shared.errors import ConfigError, Problem, TargetRefused, TargetUnavailable
from shared.tasks.models import Connection

STACK_SETTING = "BUSWAY_STACK"
"""The folder of the running stack, in its file of settings."""
PID_FILE = "host.pid"
_HINT = "start it with busway start, then . build/start/settings"
_LOCAL = ("127.0.0.1", "localhost", "::1")
_ANSWER_SECONDS = 5.0


def add(place: str, fault: Mapping[str, object], connections: Mapping[str, Connection]) -> None:
    """Add a fault for CONNECTION[/ENTITY]; raises ConfigError, TargetUnavailable, TargetRefused."""
    alias, _, entity = place.partition("/")
    _ask("POST", alias, connections, {**fault, "entity": entity or "*"})


def clear(place: str | None, connections: Mapping[str, Connection]) -> None:
    """Remove the faults of a namespace, or of all; raises as `add`."""
    for alias in _aliases(place, connections):
        _ask("DELETE", alias, connections)


def lines(place: str | None, connections: Mapping[str, Connection]) -> Iterator[str]:
    """Yield a line for each fault of a namespace, or of all; raises as `add`."""
    for alias in _aliases(place, connections):
        for each in _ask("GET", alias, connections):
            entity = each.pop("entity", "*")
            more = ", ".join(f"{name} {value}" for name, value in each.items() if name != "effect")
            yield f"{alias}/{entity}: {each['effect']}" + (f", {more}" if more else "")


def kill_host() -> int:
    """Kill the function app of the stack, and return its process; raises ConfigError."""
    folder = os.environ.get(STACK_SETTING)
    try:
        pid = int((Path(folder or "") / PID_FILE).read_text()) if folder else None
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)
            return pid
    except (OSError, ValueError):
        pass  # the stack has ended
    raise ConfigError([Problem(STACK_SETTING, "names no running stack", _HINT)])


def _aliases(place: str | None, connections: Mapping[str, Connection]) -> list[str]:
    if place is not None:
        return [place.partition("/")[0]]
    found = [
        alias
        for alias, connection in connections.items()
        if f"{connection.setting}{ADMINISTRATION_SUFFIX}" in os.environ
    ]
    if not found:
        raise ConfigError([Problem("the local stack", "none of its settings is in the environment", _HINT)])
    return found


def _ask(
    method: str, alias: str, connections: Mapping[str, Connection], body: Mapping[str, object] | None = None
) -> Any:  # noqa: ANN401 - JSON
    if alias not in connections:
        raise ConfigError([Problem(alias, "is not a connection", f"expected one of {', '.join(connections)}")])
    setting = f"{connections[alias].setting}{ADMINISTRATION_SUFFIX}"
    address = os.environ.get(setting)
    if address is None or urlsplit(address).hostname not in _LOCAL:
        raise ConfigError([Problem(setting, "is not the administration of a local broker", _HINT)])
    request = urllib.request.Request(  # noqa: S310 - an address of this machine
        f"{address.rstrip('/')}/$busway/faults",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - likewise
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise TargetRefused(f"{alias}: the broker refuses the fault, {error.code}") from error
    except (OSError, ValueError) as error:
        raise TargetUnavailable(f"{alias}: the broker does not answer at {address}; {_HINT}") from error
