"""
The output bindings of a task's function: those of its targets, and that of a journal in an event hub.

A binding of a target gets a list of texts as `Out[str]`: the host rewrites, splits or refuses every other form
(docs/decisions/0041).
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

import azure.functions as func

from shared.assembly.journals import OutputBinding
from shared.journal.event_hub import events
from shared.line.binding_output import BindingOutput, collecting

_JOURNAL = "journal"

type Function = Callable[..., Awaitable[None]]


def with_outputs(
    app: func.FunctionApp, function: Function, targets: Sequence[BindingOutput], journal: OutputBinding | None
) -> object:
    """Return *function* with an output binding for each of *targets* and for the *journal*."""
    if journal is None and not targets:
        return function
    named = {f"output_{number}": target for number, target in enumerate(targets)}

    async def bound(messages: Any, **outputs: func.Out[Any]) -> None:
        with ExitStack() as stack:
            texts = stack.enter_context(collecting())
            members = [] if journal is None else stack.enter_context(journal.sink.collecting())
            await function(messages)
        for name, target in named.items():
            if collected := texts.get(target):
                outputs[name].set(target.texts(collected))
        if members:
            outputs[_JOURNAL].set(events(members))

    # The worker reads the parameters and their types from these. It knows a list of texts as Out[str].
    types: dict[str, Any] = {"messages": function.__annotations__["messages"]}
    types |= dict.fromkeys(named, func.Out[str])
    if journal is not None:
        types[_JOURNAL] = func.Out[bytes]
    bound.__annotations__ = types
    keyword = inspect.Parameter.KEYWORD_ONLY
    bound.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # inspect.signature documents it
        [inspect.Parameter(name, keyword, annotation=annotation) for name, annotation in types.items()]
    )
    decorated: object = bound
    for name, target in named.items():
        decorated = _output(app, name, target)(decorated)
    if journal is not None:
        declare = app.event_hub_output(arg_name=_JOURNAL, event_hub_name=journal.hub, connection=journal.setting)
        decorated = declare(decorated)
    return decorated


def _output(app: func.FunctionApp, name: str, target: BindingOutput) -> Callable[[object], object]:
    declare: Callable[[object], object]
    if target.kind == "queue":
        declare = app.service_bus_queue_output(arg_name=name, connection=target.setting, queue_name=target.entity)
    elif target.kind == "topic":
        declare = app.service_bus_topic_output(arg_name=name, connection=target.setting, topic_name=target.entity)
    else:
        declare = app.event_hub_output(arg_name=name, connection=target.setting, event_hub_name=target.entity)
    return declare
