"""
Carries out the steps of a plan, one request each.

A step that fails does not stop the others, except those that need what it should have created. Whatever is left, the
next plan finds.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

from cli.output import print_problems, problems_of
from cli.topology.difference import Action, Step
from cli.topology.live import check_is_empty, setting_of
from cli.topology.model import Kind, Name, Setting, SubscriptionRule, pascal, text_of
from cli.topology.plan import Plan
from cli.topology.plan_text import print_step, verdict
from cli.topology.sites import open_client
from shared.ends.service_bus.administration import IsBeingChanged, create_subscription_with_rule, translated
from shared.errors import BuswayError, TargetRefused
from shared.resend.places import Place
from shared.rules import CorrelationFilter

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient


_ATTEMPTS, _PAUSE_SECONDS = 5, 2.0


@dataclass
class Application:
    """Takes the steps of a plan in all namespaces; the deletions too if they are to be pruned."""

    plan: Plan
    _: KW_ONLY
    prune: bool
    sleep: Callable[[float], None] = time.sleep
    """Waits while somebody else changes an entity."""
    done: list[Step] = field(default_factory=list)
    failed: list[Step] = field(default_factory=list)
    skipped: list[Step] = field(default_factory=list)
    missing: set[tuple[str, tuple[Kind, str]]] = field(default_factory=set)
    """What could not be created, with the alias of its namespace."""

    @property
    def counts(self) -> str:
        """How many steps were taken, failed and skipped."""
        text = f"{len(self.done)} steps taken" if len(self.done) != 1 else "1 step taken"
        text += f", {len(self.failed)} failed" if self.failed else ""
        return text + (f", {len(self.skipped)} skipped" if self.skipped else "")

    def is_complete(self, left: Plan) -> bool:
        """Return whether *left*, the plan after the run, has no steps: what failed, someone else has done then."""
        return not (left.has_errors or left.steps or (self.prune and left.extras))

    def summary(self, left: Plan) -> str:
        """Return what was done, and what is *left* to do, in sentences."""
        text = f"{self.counts[0].upper()}{self.counts[1:]}. {verdict(left, prune=self.prune)}"
        if self.is_complete(left):
            return f"{text} Someone else has done what failed." if self.failed else text
        if self.failed:
            return f"{text} Run the command again after fixing what failed."
        return f"{text} Someone else changes the entities as well: run the command again." if left.steps else text

    def run(self) -> None:
        """Take the steps: first what is sent to, everywhere, then what is sent from, then deletions."""
        steps = {}
        for site in self.plan.sites:
            extras = site.difference.extras if self.prune and not site.is_hubs else ()
            steps[site.alias] = sorted((*site.steps, *extras), key=lambda step: step.order)
        for phase in sorted({step.order[0] for some in steps.values() for step in some}):
            for alias, some in steps.items():
                now = [step for step in some if step.order[0] == phase]
                if not now:
                    continue
                try:
                    with open_client(alias, self.plan.configuration.connections[alias]) as client:
                        for step in now:
                            self._take(client, alias, step)
                except BuswayError as error:
                    print_problems(problems_of(error))
                    self.skipped += now

    def _take(self, client: "ServiceBusAdministrationClient", alias: str, step: Step) -> None:
        for name in filter(None, (step.name.parent, step.name)):
            if (alias, name.key) in self.missing:
                self.skipped.append(step)
                print_step(alias, step, f"skipped, because it needs {name}")
                return
        attempts = _ATTEMPTS
        while isinstance(failure := self._attempt(client, alias, step), IsBeingChanged) and (attempts := attempts - 1):
            self.sleep(_PAUSE_SECONDS)
        if failure is None:
            self.done.append(step)
            print_step(alias, step, "")
            return
        self.failed.append(step)
        if step.action is Action.CREATE:
            self.missing.add((alias, step.name.key))
        print_step(alias, step, str(failure))

    def _attempt(self, client: "ServiceBusAdministrationClient", alias: str, step: Step) -> BuswayError | None:
        """Carry out a step, and return why it failed."""
        try:
            if step.action is Action.DELETE:
                configuration = self.plan.configuration
                setting = configuration.connections[alias].setting or ""
                namespace = Place(alias, configuration.site(alias), setting, "")
                with contextlib.suppress(ResourceNotFoundError):  # deleted by another plan
                    check_is_empty(client, step.name, namespace, os.environ)
            _carry_out(client, step)
        except AzureError as error:
            return translated(error, f"{alias} {step.name}")
        except TargetRefused as error:
            return error
        except ValueError as error:
            # The client checks some texts and numbers itself.
            return TargetRefused(f"{alias} {step.name}: is refused: {error}")
        return None


def _carry_out(client: "ServiceBusAdministrationClient", step: Step) -> None:
    parts, rule = step.name.parts, step.rule
    match step.action:
        case Action.CREATE:
            settings = {name: value for name, value in step.settings.items() if value is not None}
            if rule is None:
                _method(client, "create", step.name)(*parts, **settings)
            else:
                _create_with_rule(client, step.name, settings, rule)
        case Action.CHANGE:
            _update(client, step.name, step.settings)
        case Action.DELETE:
            with contextlib.suppress(ResourceNotFoundError):  # a plan that ran at the same time was faster
                _method(client, "delete", step.name)(*parts)
        case _ if rule is None:
            raise ValueError(f"{step.action} without a rule")
        case Action.DELETE_RULE:
            with contextlib.suppress(ResourceNotFoundError):
                client.delete_rule(parts[0], parts[1], rule.name)
        case _ if isinstance(rule.filter, CorrelationFilter):
            raise TypeError("tasks declare SQL rules only")
        case Action.CREATE_RULE:
            client.create_rule(parts[0], parts[1], rule.name, filter=SqlRuleFilter(rule.filter), action=_action(rule))
        case Action.REPLACE_RULE:
            present = client.get_rule(parts[0], parts[1], rule.name)
            present.filter, present.action = SqlRuleFilter(rule.filter), _action(rule)
            client.update_rule(parts[0], parts[1], present)


def _action(rule: SubscriptionRule) -> SqlRuleAction | None:
    return None if rule.action is None else SqlRuleAction(rule.action)


def _method(client: "ServiceBusAdministrationClient", verb: str, name: Name) -> Callable[..., Any]:
    """Return the method of the client for a queue, a topic or a subscription."""
    method: Callable[..., Any] = getattr(client, f"{verb}_{name.kind}")
    return method


def _create_with_rule(
    client: "ServiceBusAdministrationClient", name: Name, settings: Mapping[str, Setting], rule: SubscriptionRule
) -> None:
    topic, subscription = name.parts
    texts = {pascal(setting): text_of(value) for setting, value in settings.items()}
    create_subscription_with_rule(
        client, topic, subscription, texts, rule=rule.name, sql_filter=str(rule.filter), action=rule.action
    )
    present = [rule.name for rule in client.list_rules(topic, subscription)]
    if present != [rule.name]:
        raise TargetRefused(
            f"{name}: was created with the rule {', '.join(present) or 'none'} instead of {rule.name} "
            "(run the command again before traffic: it replaces the rule)"
        )


def _update(client: "ServiceBusAdministrationClient", name: Name, settings: Mapping[str, Setting]) -> None:
    found = _method(client, "get", name)(*name.parts)
    # An update that changes nothing would end the links of everybody too (azure-service-bus 365).
    if all(setting_of(setting, getattr(found, setting)) == value for setting, value in settings.items()):
        return
    for setting, value in settings.items():
        setattr(found, setting, value)
    _method(client, "update", name)(*name.parts[:-1], found)
