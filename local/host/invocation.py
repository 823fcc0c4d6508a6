"""
One invocation with what surrounds it: the log line, the retry policy of the function, outputs.

Source: FunctionExecutorExtensions.TryExecuteAsync and the retry strategies of Azure/azure-webjobs-sdk: a failure to
bind counts as a failed try; the exponential delay is 2 ** n seconds (with jitter) above the minimum, at most the
maximum.
"""

import logging
import random
from collections.abc import Callable
from datetime import timedelta

from local.host.dotnet_values import CannotBind
from local.host.listener import Stopping
from local.host.shape import Input
from local.host.worker import Function, Invocation, RetryPolicy, Worker

_log = logging.getLogger(__name__)

_HTTP_OUTPUT = "http"
_UNLIMITED = -1


async def invoke(
    worker: Worker,
    function: Function,
    make: Callable[[], Input],
    *,
    retry_count: int = 0,
    last_error: str | None = None,
) -> Invocation:
    """Run the function once on the input that *make* returns; a failure is logged and returned, never raised."""
    try:
        data, metadata = make()
        invocation = await worker.invoke(function, data, metadata, retry_count, last_error)
    except CannotBind as error:
        invocation = Invocation(f"the host could not bind {function.parameter}: {error}")
    if invocation.succeeded and (unsent := _unsent_outputs(function, invocation)):
        invocation = Invocation(f"this host sends no output bindings, and {', '.join(unsent)} has a value")
    if invocation.error is not None:
        _log.error("%s: invocation failed: %s", function.name, invocation.error)
    return invocation


async def invoke_with_retries(
    worker: Worker, function: Function, make: Callable[[], Input], stopping: Stopping
) -> Invocation:
    """Run the function as often as its retry policy says, until it succeeds or the host is to stop."""
    invocation = await invoke(worker, function, make)
    policy = function.retry
    count = 0
    while policy is not None and invocation.error is not None and not stopping:
        if count >= policy.max_retry_count != _UNLIMITED:
            break
        count += 1
        await stopping.wait(delay(policy, count, random.random()).total_seconds())
        if stopping:
            break
        invocation = await invoke(worker, function, make, retry_count=count, last_error=invocation.error)
    return invocation


def delay(policy: RetryPolicy, retry_count: int, jitter: float) -> timedelta:
    """Return the pause before a retry (the first is 1); *jitter* lies between 0 and 1."""
    if policy.delay is not None:
        return policy.delay
    seconds = (2 ** min(retry_count, 30) - 1) * (0.8 + 0.4 * jitter)
    return min(policy.minimum_interval + timedelta(seconds=seconds), policy.maximum_interval)


def _unsent_outputs(function: Function, invocation: Invocation) -> list[str]:
    names = [binding.name for binding in invocation.outputs if binding.data is not None]
    is_http = function.outputs.get("$return") == _HTTP_OUTPUT or _HTTP_OUTPUT in function.outputs.values()
    if invocation.return_value is not None and not is_http and "$return" in function.outputs:
        names.append("$return")
    return [name for name in names if function.outputs.get(name) != _HTTP_OUTPUT]
