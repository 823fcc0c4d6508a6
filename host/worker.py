"""
Microsoft's Python worker library in this process, which indexes a function app and invokes its functions.

The library keeps its state in module globals, so one process runs one app. Requests go through its public entry
points in the order in which the proxy worker of Azure calls them.

Source: workers/proxy_worker/dispatcher.py of Azure/azure-functions-python-worker; azure-functions-runtime 1.3.0.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import azure_functions_runtime as runtime

from host import protos
from host.protos import ParameterBinding, TypedData
from host.retry import RetryPolicy
from shared.errors import ConfigError, Problem

_OUT = "OUT"

SERVICE_BUS, EVENT_HUB = "serviceBus", "eventHub"
SENT_OUTPUTS = (SERVICE_BUS, EVENT_HUB)
"""The types of output bindings that this host sends."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function as the worker indexed it: its trigger binding as JSON, and its output bindings by their names."""

    id: str
    name: str
    trigger: Mapping[str, Any]
    outputs: Mapping[str, Mapping[str, Any]]
    retry: RetryPolicy | None

    @property
    def parameter(self) -> str:
        """Return the name of the trigger's parameter."""
        return str(self.trigger["name"])

    @property
    def is_many(self) -> bool:
        """Return whether the function takes a batch."""
        return str(self.trigger.get("cardinality", "")).upper() == "MANY"

    @property
    def has_sdk_type(self) -> bool:
        """Return whether the parameter is an SDK type, for which the host passes ModelBindingData."""
        return (self.trigger.get("properties") or {}).get("SupportsDeferredBinding") is True


@dataclass(frozen=True, slots=True)
class Invocation:
    """The result of an invocation: the text of the error if it failed, else the return value and outputs."""

    error: str | None
    return_value: TypedData | None = None
    outputs: tuple[ParameterBinding, ...] = ()
    id: str = ""

    @property
    def succeeded(self) -> bool:
        """Return whether the function returned without an exception."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a function; all tries of a retry policy have the same invocation id, and a count from 0."""

    function: Function
    data: TypedData
    trigger_metadata: Mapping[str, TypedData]
    invocation_id: str
    retry_count: int = 0
    last_error: str | None = None


class Outputs(Protocol):
    """Sends the outputs of functions."""

    async def send(self, function: Function, outputs: Sequence[ParameterBinding], parent: str) -> str | None:
        """Send the values of *outputs* of the invocation *parent*; return the error, None if all were sent."""
        ...


class Worker(Protocol):
    """The worker of one function app, as the listeners see it."""

    outputs: Outputs | None
    """None where the app's functions have no outputs to be sent."""

    async def invoke(self, attempt: Attempt) -> Invocation:
        """Run the function once and return the result, which includes the function's exceptions."""
        ...


class EmbeddedWorker:
    """The worker of one function app in this process."""

    async def start(self, app_folder: Path) -> list[Function]:
        """
        Index the app and return its functions; a ConfigError when the app cannot be indexed.

        The process changes into the app's folder and imports from it, as the worker of Azure does.
        """
        folder = str(app_folder)
        os.chdir(folder)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        runtime.start_threadpool_executor()
        request = _request(worker_init_request=SimpleNamespace(capabilities={}, function_app_directory=folder))
        response = await runtime.worker_init_request(request)
        if response.result.status != protos.StatusResult.Success:
            raise ConfigError([Problem(f"{folder}/function_app.py", response.result.exception.message)])
        # An app that reports its problems by a function, as Busway does on Azure, need not run here to be heard.
        problems = getattr(sys.modules.get("function_app"), "problems", ())
        if problems:
            raise ConfigError(problems)
        response = await runtime.functions_metadata_request(_request())
        functions = [_function(metadata) for metadata in response.function_metadata_results or ()]
        for function in functions:
            load = SimpleNamespace(function_id=function.id)
            await runtime.function_load_request(_request(function_load_request=load))
        return functions

    async def invoke(self, attempt: Attempt) -> Invocation:
        """Run the function once and return the result, which includes the function's exceptions."""
        function, error = attempt.function, attempt.last_error
        invocation = SimpleNamespace(
            invocation_id=attempt.invocation_id,
            function_id=function.id,
            trace_context=SimpleNamespace(trace_parent="", trace_state="", attributes={}),
            retry_context=SimpleNamespace(
                retry_count=attempt.retry_count,
                max_retry_count=function.retry.max_retry_count if function.retry else 0,
                exception=None if error is None else protos.RpcException(message=error, stack_trace=""),
            ),
            input_data=[ParameterBinding(function.parameter, attempt.data)],
            trigger_metadata=attempt.trigger_metadata,
        )
        response = await runtime.invocation_request(_request(invocation_request=invocation))
        if response.result.status != protos.StatusResult.Success:
            return Invocation(response.result.exception.message)
        return Invocation(None, response.return_value, tuple(response.output_data), attempt.invocation_id)

    def stop(self) -> None:
        """Wait for functions that still run in the worker's threads, then stop the threads."""
        runtime.stop_threadpool_executor()


def _request(**request: object) -> SimpleNamespace:
    return SimpleNamespace(request=SimpleNamespace(**request), properties={"protos": protos, "host": "127.0.0.1"})


def _function(metadata: Any) -> Function:
    bindings = [json.loads(text) for text in metadata.raw_bindings]
    triggers = [binding for binding in bindings if str(binding["type"]).endswith("Trigger")]
    if len(triggers) != 1:
        raise ConfigError([Problem(metadata.name, f"{len(triggers)} triggers, expected one")])
    outputs = {binding["name"]: binding for binding in bindings if binding.get("direction") == _OUT}
    return Function(metadata.function_id, metadata.name, triggers[0], outputs, _retry(metadata.retry_options))


def _retry(options: Any) -> RetryPolicy | None:
    if options is None:
        return None
    return RetryPolicy(
        options.max_retry_count,
        getattr(options, "delay_interval", None),
        getattr(options, "minimum_interval", timedelta()),
        getattr(options, "maximum_interval", timedelta.max),
    )
