"""
Problems that an operator must see while the worker imports the app.

The host shows neither an exception nor a log record of that time, and while it is a placeholder, as on Flex
Consumption, not even what is written to standard error (azure-functions-host 10222): a typing error in a task file
would show as "No job functions found". So the import never fails: an app with problems has one function, which raises
them every minute.
"""

import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import azure.functions as func

from shared.errors import ConfigError, Problem

# The first version that took an invocation of more than 4 MiB when measured. Azure/azure-functions-python-worker pull
# request 1805 (19 November 2025) has the correction: before it, the worker hangs on such an invocation without a log
# line, and on every one after it.
_TAKES_LARGE_INVOCATIONS = (4, 40, 2)
_WORKER_VERSION = "proxy_worker.version"
PROBLEM = "busway-problem"
# They load Azure Monitor's distribution into the worker (azure-functions-python-worker pull request 1509).
SECOND_TELEMETRY = ("PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY", "PYTHON_ENABLE_OPENTELEMETRY")
_ON = {"1", "true"}
# Azure/azure-functions-host issue 9669.
_PROCESSES = "FUNCTIONS_WORKER_PROCESS_COUNT"
# azurefunctions.extensions.base
_SECOND_CONVERTER = "another converter for this binding has already been registered"


def problems_of(error: Exception) -> Sequence[Problem]:
    """Return why the app cannot start, without the text of a foreign error, which may have a connection string."""
    if isinstance(error, ConfigError):
        return error.problems
    if isinstance(error, ModuleNotFoundError):
        hint = "publish with the packages of requirements.txt: a remote build, or func … --build local"
        return [Problem("function_app.py", f"the package {error.name} is not installed", hint)]
    if isinstance(error, RuntimeError) and _SECOND_CONVERTER in str(error):
        text = "a package registers the SDK types of Service Bus or Event Hubs a second time"
        hint = "remove azurefunctions-extensions-bindings-servicebus and -eventhub, and what imports them"
        return [Problem("function_app.py", text, hint)]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}, line {frame.lineno}"
    return [Problem("function_app.py", f"{type(error).__name__} at {where}", "run `busway check` with its settings")]


def app_with(problems: Sequence[Problem]) -> func.FunctionApp:
    """Return an app that reports *problems*: on standard error now, and by a function that fails each minute."""
    write(problems)
    app = func.FunctionApp()

    async def report(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the trigger's name for it
        raise ConfigError(problems)

    app.function_name(PROBLEM)(
        app.timer_trigger(arg_name="timer", schedule="0 * * * * *", run_on_startup=False)(report)
    )
    return app


def warnings(settings: Mapping[str, str], modules: Mapping[str, ModuleType] | None = None) -> list[Problem]:
    """Return what is suspicious about the worker and the app settings, but keeps no app from its start."""
    module = (sys.modules if modules is None else modules).get(_WORKER_VERSION)
    of_worker = None if module is None else worker_problem(str(getattr(module, "VERSION", "")))
    found = [] if of_worker is None else [of_worker]
    for name in SECOND_TELEMETRY:
        if settings.get(name, "").lower() in _ON:
            hint = "remove it; BUSWAY_TELEMETRY is the app's own telemetry"
            found.append(Problem(name, "makes the worker send logs a second time and set its own providers", hint))
    processes = settings.get(_PROCESSES, "")
    if processes not in {"", "1"}:
        hint = "remove it, and use lanes or more instances"
        text = f"is {processes}: each process remembers by itself what was sent, and after a timeout only one gets work"
        found.append(Problem(_PROCESSES, text, hint))
    return found


def worker_problem(version: str) -> Problem | None:
    """Return what is wrong with a version of the proxy worker, None if nothing is known to be wrong."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) >= _TAKES_LARGE_INVOCATIONS:
        return None
    return Problem(
        "Functions worker",
        f"version {version} may hang forever on a batch of more than 4 MiB, expected at least 4.40.2",
        "restart the app to get a newer worker, or set maxMessageBatchSize and maxEventBatchSize in host.json so that "
        "no batch is larger",
    )


def write(problems: Sequence[Problem]) -> None:
    """Write *problems* to standard error, as `busway check` does."""
    sys.stderr.writelines(f"busway: {problem}\n" for problem in problems)
    sys.stderr.flush()
