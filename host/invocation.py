"""
One invocation: log line, retry policy of the function, outputs.

Source: FunctionExecutorExtensions.TryExecuteAsync and the retry strategies of Azure/azure-webjobs-sdk: a failure to
bind counts as a failed attempt. The exponential delay and the common invocation id of all attempts were measured.
"""

import logging
import random
import uuid
from collections.abc import Callable

from host.dotnet_values import CannotBind
from host.listener import Stopping
from host.retry import UNLIMITED, delay
from host.worker import SENT_OUTPUTS, Attempt, Function, Invocation, Worker
from host.worker_input import Input

_log = logging.getLogger(__name__)

_HTTP_OUTPUT = "http"


async def invoke(
    worker: Worker,
    function: Function,
    make: Callable[[], Input],
    invocation_id: str,
    *,
    retry_count: int = 0,
    last_error: str | None = None,
) -> Invocation:
    """Run the function once with the input from *make*; a failure is logged and returned, never raised."""
    try:
        invocation = await worker.invoke(Attempt(function, *make(), invocation_id, retry_count, last_error))
    except CannotBind as error:
        invocation = Invocation(f"the host could not bind {function.parameter}: {error}")
    if invocation.succeeded:
        invocation = await _with_outputs_sent(worker, function, invocation)
    if invocation.error is not None:
        _log.error("%s: invocation failed: %s", function.name, invocation.error)
    return invocation


async def invoke_with_retries(
    worker: Worker,
    function: Function,
    make: Callable[[], Input],
    stopping: Stopping,
    is_lost: Callable[[], bool] = lambda: False,
) -> Invocation:
    """Run the function until it succeeds, its retry policy is exhausted, the stop is announced or its input is lost."""
    invocation_id = str(uuid.uuid4())
    invocation = await invoke(worker, function, make, invocation_id)
    policy = function.retry
    count = 0
    while policy is not None and invocation.error is not None:
        if stopping.is_announced or is_lost():
            break
        if count >= policy.max_retry_count != UNLIMITED:
            break
        count += 1
        await stopping.wait_before_retry(delay(policy, count, random.random()).total_seconds())
        if stopping.is_announced or is_lost():
            break
        invocation = await invoke(worker, function, make, invocation_id, retry_count=count, last_error=invocation.error)
    return invocation


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
        if types.get(output.name) not in SENT_OUTPUTS or worker.outputs is None:
            return Invocation(
                f"this host sends no output of type {types.get(output.name)}, and {output.name} has a value"
            )
        sent.append(output)
    error = await worker.outputs.send(function, sent, invocation.id) if sent and worker.outputs is not None else None
    return invocation if error is None else Invocation(error)
