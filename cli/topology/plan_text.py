"""Prints plans, their results, and the commands of the Azure CLI that do what steps do; each can be repeated."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import typer

from cli.output import print_wrapped
from cli.topology.difference import Action, Step
from cli.topology.model import SETTINGS, Kind, Setting, text_of, written
from cli.topology.plan import Plan, SitePlan
from shared.printable import printable

_SIGNS = {
    Action.CREATE: "+",
    Action.CHANGE: "~",
    Action.CREATE_RULE: "~",
    Action.REPLACE_RULE: "~",
    Action.DELETE_RULE: "-",
    Action.DELETE: "-",
}
_MOST_TASKS = 3
_INTERRUPTS = "ends the links of all its senders and receivers; what they hold is delivered again, sessions are lost"
_WIDTH = 74


def print_plan(plan: Plan, *, prune: bool) -> None:
    """Print a plan: the verdict, then each namespace, then what twins have different."""
    typer.echo(verdict(plan, prune=prune))
    for site in plan.sites:
        summary = "cannot be read" if site.errors else f"{site.difference.unchanged} as needed"
        if site.steps or site.by_hand or site.difference.obstacles:
            summary += f", {_count(len(site.difference.steps), 'step')}"
        typer.echo(f"\n{site.alias}" + (f" ({printable(site.place)})" if site.place else "") + f": {summary}")
        for line in _lines(site, prune=prune):
            print_wrapped(f"  {line}")
    if plan.drifts:
        typer.echo("\ndrift between sites, which no task decides:")
        for drift in plan.drifts:
            print_wrapped(f"  ≠ {drift}")
        print_wrapped("  Say in topology.yaml what both should have; apply then changes what can be changed.")


def exit_code(plan: Plan, *, prune: bool) -> int:
    """Return the exit code of a command that only shows *plan*: 3 if there are steps to take."""
    return plan.exit_code or (3 if prune and plan.extras else 0)


def print_az(plan: Plan, *, prune: bool) -> None:
    """Print the commands of the Azure CLI for the steps of a plan."""
    for site in plan.sites:
        for error in site.errors:
            typer.echo(printable(f"# {site.alias}: {error}"), err=True)
        steps = [*site.difference.steps, *(site.difference.extras if prune else ())]
        if steps:
            typer.echo(f"# {site.alias}: GROUP is the resource group of the namespace.")
        if any(step.rule is not None and step.action is Action.CREATE for step in site.difference.steps):
            typer.echo("# A new subscription has $Default until its first rule is created: run this before traffic.")
        for command in az_commands(steps, site.place, is_hubs=site.is_hubs):
            typer.echo(command)


def verdict(plan: Plan, *, prune: bool = False) -> str:
    """Return the plan in one sentence."""
    unread = [site.alias for site in plan.sites if site.errors]
    parts = []
    if plan.steps or (prune and plan.extras):
        parts.append(f"{_count(plan.steps + (plan.extras if prune else 0), 'step')} to take")
    obstacles = sum(len(site.difference.obstacles) for site in plan.sites)
    by_hand = sum(len(site.by_hand) for site in plan.sites)
    if obstacles:
        parts.append(f"{obstacles} that cannot change in place")
    if by_hand:
        parts.append(f"{by_hand} for Resource Manager")
    if plan.drifts:
        parts.append(f"{_count(len(plan.drifts), 'difference')} between sites")
    if plan.extras and not prune:
        parts.append(f"{plan.extras} to delete with --prune")
    if unread:
        rest = ", ".join(parts) or "every entity is as the tasks need it"
        parts = [f"not read: {', '.join(unread)}; elsewhere {rest}"]
        if len(unread) == len(plan.sites):
            parts = ["no namespace could be read"]
    text = ", ".join(parts) or "every entity is as the tasks need it"
    return text[0].upper() + text[1:] + "."


def _lines(site: SitePlan, *, prune: bool) -> Iterator[str]:
    yield from (f"! {error}" for error in site.errors)
    for step in site.difference.steps:
        yield from _step_lines(step)
    if site.by_hand:
        yield "Event hubs are administered in Resource Manager:"
        yield from (f"  {command}" for command in az_commands(site.by_hand, site.place, is_hubs=True))
    for obstacle in site.difference.obstacles:
        yield f"! {obstacle.name}: cannot change in place: {obstacle.problem}"
        yield f"    way round: {obstacle.way_round}"
    for step in site.difference.extras:
        if prune:
            yield from _step_lines(step)
        else:
            yield f"? {_title(step)}: kept without --prune"
    yield from (f"! {warning}" for warning in site.warnings)


def _step_lines(step: Step) -> Iterator[str]:
    by = f"for {', '.join(step.needed_by[:_MOST_TASKS])}"
    by += " and others" if len(step.needed_by) > _MOST_TASKS else ""
    title = f"{_SIGNS[step.action]} {_title(step)}"
    if step.needed_by and len(title) + len(by) <= _WIDTH:
        yield f"{title}  {by}"
    else:
        yield title
        yield from [f"    {by}"] if step.needed_by else []
    if step.action is Action.CREATE:
        shown = {name: value for name, value in step.settings.items() if name != "user_metadata"}
        yield from (f"    {name} {text_of(value, name)}" for name, value in shown.items())
        if step.rule is not None:
            yield f"    only rule: {step.rule}"
    if step.action is Action.CHANGE:
        yield f"    {_INTERRUPTS}"
    for change in step.changes:
        yield f"    {change}"
        yield f"      {change.reason}"
    if step.action in {Action.CREATE_RULE, Action.REPLACE_RULE}:
        if step.replaced is not None:
            yield f"    {step.replaced}"
        yield f"    → {step.rule}"


def _title(step: Step) -> str:
    rule = "" if step.rule is None or step.action is Action.CREATE else f" {step.rule.name} of"
    return f"{step.action}{rule} {step.name}"


def print_step(alias: str, step: Step, error: str) -> None:
    """Print one step as it was carried out."""
    sign = "failed" if error else "done"
    typer.echo(printable(f"{sign:<6} {alias}: {_title(step)}" + (f": {error}" if error else "")))


def document_of(plan: Plan) -> str:
    """Return a plan as JSON."""
    sites = {
        site.alias: {
            "place": site.place,
            "errors": list(site.errors),
            "warnings": list(site.warnings),
            "steps": [_step(step) for step in site.steps],
            "resource_manager": [_step(step) for step in site.by_hand],
            "extras": [_step(step) for step in site.difference.extras],
            "cannot_change": [
                {"entity": str(obstacle.name), "problem": obstacle.problem, "way_round": obstacle.way_round}
                for obstacle in site.difference.obstacles
            ],
        }
        for site in plan.sites
    }
    found = [
        {"entity": str(drift.name), "what": drift.what, "first": drift.first, "second": drift.second}
        for drift in plan.drifts
    ]
    return json.dumps({"exit_code": plan.exit_code, "sites": sites, "drift": found}, indent=2)


def _step(step: Step) -> dict[str, Any]:
    described: dict[str, Any] = {
        "action": str(step.action),
        "entity": str(step.name),
        "settings": {name: written(value) for name, value in step.settings.items()},
        "needed_by": list(step.needed_by),
    }
    if step.rule is not None:
        described["rule"] = {"name": step.rule.name, "filter": str(step.rule.filter), "action": step.rule.action}
    if step.changes:
        described["has"] = {change.setting: written(change.has) for change in step.changes}
    return described


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


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
