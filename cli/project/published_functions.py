"""
Which functions Azure knows of a published app, by the Azure CLI.

After a publish the platform may know the placeholder `WarmUp` only, and then scales nothing from zero; the client's own
request to sync does not help, `host/default/sync` of Resource Manager in a loop does (azure-functions-host 11873).
"""

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from functions.startup import PROBLEM
from shared.errors import TargetRefused, TargetUnavailable

_API = "2024-04-01"
_LOOK_SECONDS = 15.0
_REFUSED = ("AuthorizationFailed", "az login", "not found", "could not be found")


class App(NamedTuple):
    """A Function app; the subscription is that of `az account show` if it is empty."""

    resource_group: str
    name: str
    subscription: str = ""


def az(*arguments: str) -> str:
    """Return what a command of the Azure CLI prints; raises TargetUnavailable, TargetRefused."""
    try:
        done = subprocess.run(["az", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607 - the user's own Azure CLI
    except FileNotFoundError as error:
        raise TargetRefused("the Azure CLI (az) is not installed, or not on the PATH") from error
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    text = f"az {arguments[0]} {arguments[1]}: {lines[-1] if lines else f'exit code {done.returncode}'}"
    raise (TargetRefused if any(each in done.stderr for each in _REFUSED) else TargetUnavailable)(text)


def await_functions(
    app: App,
    expected: Sequence[str],
    seconds: float,
    say: Callable[[str], None],
    *,
    run: Callable[..., str] = az,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """
    Sync until Azure knows the *expected* functions, for up to *seconds*; return whether it does.

    A passing error of Azure counts as a look without a result; raises TargetRefused.
    """
    left = seconds
    subscription = ("--subscription", app.subscription) if app.subscription else ()
    place = ("--resource-group", app.resource_group, "--name", app.name, *subscription)
    while True:
        try:
            listed = json.loads(run("functionapp", "function", "list", *place, "--output", "json") or "[]")
            known = {str(each["name"]).rpartition("/")[2] for each in listed}
        except TargetUnavailable as error:
            say(str(error))
            known = set()
        missing = [each for each in expected if each not in known]
        if not missing:
            say(f"{app.name}: Azure knows all {len(expected)} functions of the tasks")
            return True
        if PROBLEM in known:
            say(f"{app.name}: it cannot start; the exceptions of its function {PROBLEM} say why")
            return False
        if left <= 0:
            say(f"{app.name}: Azure does not know {', '.join(missing)}; it knows {', '.join(sorted(known)) or 'none'}")
            return False
        say(f"{app.name}: {len(missing)} of {len(expected)} functions are unknown to Azure; syncing")
        try:
            name = run("functionapp", "show", *place, "--query", "id", "--output", "tsv").strip()
            run("rest", "--method", "post", "--url", f"{name}/host/default/sync?api-version={_API}")
        except TargetUnavailable as error:
            # It answers so while the host starts.
            say(str(error))
        sleep(min(_LOOK_SECONDS, left))
        left -= _LOOK_SECONDS
