"""
One invocation: log line, retry policy of the function, outputs.

Source: FunctionExecutorExtensions.TryExecuteAsync and the retry strategies of Azure/azure-webjobs-sdk: a failure to
bind counts as a failed attempt; the exponential delay is 2 ** n seconds (with jitter) above the minimum, at most the
maximum.
"""

import logging
import random
from collections.abc import Callable
from datetime import timedelta

from local.host.dotnet_values import CannotBind
from local.host.listener import Stopping
from local.host.outputs import TYPES
from local.host.worker import Function, Invocation, RetryPolicy, Worker
from local.host.worker_input import Input

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
    """Run the function once with the input from *make*; a failure is logged and returned, never raised."""
    try:
        data, metadata = make()
        invocation = await worker.invoke(function, data, metadata, retry_count, last_error)
    except CannotBind as error:
        invocation = Invocation(f"the host could not bind {function.parameter}: {error}")
    if invocation.succeeded:
        invocation = await _with_outputs_sent(worker, function, invocation)
    if invocation.error is not None:
        _log.error("%s: invocation failed: %s", function.name, invocation.error)
    return invocation


async def invoke_with_retries(
    worker: Worker, function: Function, make: Callable[[], Input], stopping: Stopping
) -> Invocation:
    """Run the function as often as its retry policy allows, until it succeeds or the host stops."""
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


async def _with_outputs_sent(worker: Worker, function: Function, invocation: Invocation) -> Invocation:
    """Send the outputs of a successful invocation; return it, or a failed one if an output cannot be sent."""
    types = {name: binding["type"] for name, binding in function.outputs.items()}
    is_http = _HTTP_OUTPUT in types.values()
    if invocation.return_value is not None and not is_http and "$return" in types:
        return Invocation("this host sends no return value but that of HTTP, and $return has one")
    sent = []
    for output in invocation.outputs:
        if output.data is None or types.get(output.name) == _HTTP_OUTPUT:
            continue
        if types.get(output.name) not in TYPES or worker.outputs is None:
            return Invocation(
                f"this host sends no output of type {types.get(output.name)}, and {output.name} has a value"
            )
        sent.append(output)
    error = await worker.outputs.send(function, sent, invocation.id) if sent and worker.outputs is not None else None
    return invocation if error is None else Invocation(error)
