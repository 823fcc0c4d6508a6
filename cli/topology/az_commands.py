"""The commands of the Azure CLI that do what steps do; each can be repeated."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from cli.topology.difference import Action, Step
from cli.topology.model import Kind, Setting, text_of
from cli.topology.settings import SETTINGS

_HEADS = {
    Kind.QUEUE: ("servicebus queue", ("--name",)),
    Kind.TOPIC: ("servicebus topic", ("--name",)),
    Kind.SUBSCRIPTION: ("servicebus topic subscription", ("--topic-name", "--name")),
    Kind.HUB: ("eventhubs eventhub", ("--name",)),
    Kind.CONSUMER_GROUP: ("eventhubs eventhub consumer-group", ("--eventhub-name", "--name")),
}


def quoted(text: str) -> str:
    """Return *text* as a word of a shell command, with escapes for what a terminal would act on or not show."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(
        f"\\U{ord(each):08x}" if not each.isprintable() else f"\\{each}" if each in "\\'" else each for each in text
    )
    return f"$'{escaped}'"


def az_commands(steps: Iterable[Step], host: str, *, is_hubs: bool = False) -> Iterator[str]:
    """Yield the commands for *steps* in the namespace at *host*; GROUP is the variable with its resource group."""
    namespace = host.partition(".")[0] if ".servicebus." in host else "NAMESPACE"
    place = f'--resource-group "$GROUP" --namespace-name {namespace}'
    for step in steps:
        head, flags = _HEADS[step.name.kind]
        names = " ".join(f"{flag} {quoted(part)}" for flag, part in zip(flags, step.name.parts, strict=True))
        if step.action in {Action.CREATE, Action.CHANGE}:
            verb = "create" if step.action is Action.CREATE else "update"
            yield " ".join(each for each in (f"az {head} {verb}", place, names, _options(step.settings)) if each)
        if step.action is Action.DELETE:
            yield f"az {head} delete {place} {names}"
        if step.rule is not None and not is_hubs:
            yield _rule_command(step, place)


def _rule_command(step: Step, place: str) -> str:
    rule = step.rule
    if rule is None:
        raise ValueError(f"{step.action} without a rule")
    verb = {Action.REPLACE_RULE: "update", Action.DELETE_RULE: "delete"}.get(step.action, "create")
    topic, subscription = (quoted(part) for part in step.name.parts)
    command = f"az servicebus topic subscription rule {verb} {place} --topic-name {topic} "
    command += f"--subscription-name {subscription} --name {quoted(rule.name)}"
    if verb != "delete":
        command += f" --filter-type SqlFilter --filter-sql-expression {quoted(str(rule.filter))}"
        if rule.action is not None:
            command += f" --action-sql-expression {quoted(rule.action)}"
    return command


def _options(settings: Mapping[str, Setting]) -> str:
    texts = []
    for name, value in settings.items():
        if name == "message_retention" and isinstance(value, timedelta):
            texts.append(f"--cleanup-policy Delete --retention-time {round(value.total_seconds() / 3600)}")
        elif name in SETTINGS and (option := SETTINGS[name].az) is not None and value is not None:
            texts.append(f"{option} {quoted(text_of(value))}")
    return " ".join(texts)
