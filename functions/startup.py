"""
Problems that an operator must see while the worker imports the app.

The host shows neither an exception nor a log record of that time, only what is written to standard error: without it, a
typing error in a task file shows as "No job functions found". Measured with the Functions host 4.1037 and the proxy
worker 4.40.2 (docs/decisions/0003).
"""

import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from shared.errors import ConfigError, Problem

# The first version that took an invocation of more than 4 MiB when measured. Azure/azure-functions-python-worker pull
# request 1805 (19 November 2025) has the correction: before it, the worker hangs on such an invocation without a log
# line, and on every one after it.
_TAKES_LARGE_INVOCATIONS = (4, 40, 2)
_WORKER_VERSION = "proxy_worker.version"


@contextmanager
def problems_on_standard_error() -> Iterator[None]:
    """Write an error of the start to standard error, of a ConfigError each problem as `busway check` does; raise it."""
    try:
        yield
    except ConfigError as error:
        _write(error.problems)
        raise
    except Exception as error:
        # The text of a foreign error may have a connection string.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        _write(
            [Problem("function_app.py", f"{type(error).__name__} at {where}", "run `busway check` with its settings")]
        )
        raise


def warn_about_worker(modules: Mapping[str, ModuleType] | None = None) -> None:
    """Write a warning to standard error if the worker that runs the app may hang on invocations of more than 4 MiB."""
    module = (sys.modules if modules is None else modules).get(_WORKER_VERSION)
    problem = None if module is None else worker_problem(str(getattr(module, "VERSION", "")))
    if problem is not None:
        _write([problem])


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


def _write(problems: Sequence[Problem]) -> None:
    sys.stderr.writelines(f"busway: {problem}\n" for problem in problems)
    sys.stderr.flush()
