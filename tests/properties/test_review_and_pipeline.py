"""
The pipeline sends a message where the review predicts, hop by hop, for any set of tasks.

The two are written independently: the review reasons about known facts (`shared.review.network`), the pipeline
sends a concrete message. Here each message passes through both.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from shared.amqp.values import string
from shared.assembly.pipelines import assemble
from shared.line.pipeline import Pipeline
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import PATH
from shared.message.rule_properties import RuleProperties
from shared.protocols import Outcome
from shared.review import Entities
from shared.review.known_properties import Facts, Unknown
from shared.review.network import Network
from shared.review.paths import Passage
from shared.rules import parse_action, parse_filter
from shared.rules.syntax import Scope
from shared.tasks.models import Connection
from tests.fakes import SOMEWHERE, JournalInMemory, OutputThatAccepts, clock_at_delivery, sleep_by
from tests.messages import delivered, message
from tests.properties.test_review import actions, conditions, constants, holds
from tests.properties.test_review import configured as review_configured

_MOST_STEPS = 12

CONNECTIONS = {
    "west": Connection(kind="service-bus", setting="WEST"),
    "east": Connection(kind="service-bus", setting="EAST"),
    "north": Connection(kind="service-bus", setting="NORTH"),
    "again": Connection(kind="service-bus", setting="WEST", site="elsewhere"),
}
HISTORY_CONDITIONS = (
    "[repl-path] IS NULL",
    "[repl-path] IS NULL OR NOT [repl-path] LIKE '%east%'",
    "[repl-path] = 'west'",
    "[repl-sequence] IS NULL",
    "EXISTS([repl-enqueue-time])",
    "[repl-dlq-source] LIKE '%;%'",
    "[repl-dlq-source] IS NULL",
)
HISTORY_ACTIONS = ("REMOVE [repl-path]", "SET [repl-path] = 'x'", "SET p = [repl-path]", "SET [repl-path] = p")

sites = st.sampled_from(list(CONNECTIONS))
entities = st.sampled_from(["a", "b"])
rule_texts = conditions.map(str) | st.sampled_from(HISTORY_CONDITIONS)
action_texts = actions.map(str) | st.sampled_from(HISTORY_ACTIONS)
targets = st.one_of(
    st.fixed_dictionaries({"connection": sites, "queue": entities}),
    st.fixed_dictionaries({"connection": sites, "topic": entities}),
)
rules = st.fixed_dictionaries({"filter": rule_texts}, optional={"action": action_texts})
sources = st.one_of(
    st.fixed_dictionaries({"connection": sites, "queue": entities}, optional={"dead_letter": st.booleans()}),
    st.fixed_dictionaries({"connection": sites, "topic": entities, "subscription": st.just("s"), "rule": rules}),
)
routes = st.fixed_dictionaries({"target": targets}, optional={"when": rule_texts, "action": action_texts})
tasks = st.fixed_dictionaries(
    {
        "source": sources,
        "routes": st.lists(routes, min_size=1, max_size=3),
        "rejects": st.just({"connection": "north", "queue": "rejected"}),
        "loop_prevention": st.just(False) | st.builds(dict, max_hops=st.integers(1, 3)),
    },
    optional={"editors": st.lists(st.fixed_dictionaries({"filter": rule_texts}), max_size=1)},
)
histories = st.fixed_dictionaries({}, optional={PATH: st.sampled_from(["west", "east;north", "x", ""]).map(string)})
messages = st.dictionaries(st.sampled_from(["p", "q"]), constants)


configured = partial(review_configured, connections=CONNECTIONS)
configurations = st.lists(tasks, min_size=1, max_size=5).map(configured).filter(lambda each: each.tasks)


class Carrier:
    """The source rules and the pipelines of a configuration, with outputs that store what they accept."""

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._assembled = dict(
            zip(
                [task.task for task in configuration.tasks],
                assemble(configuration, {alias: OutputThatAccepts() for alias in CONNECTIONS}),
                strict=True,
            )
        )

    def carry(self, task: Any, named: Any) -> Any:
        """Return the outcome, the target as SITE/ENTITY, and the properties of the message that arrives there."""
        origin = Origin(self._configuration.site(task.source.connection), task.source.entity)
        selected = message(1, named=named, origin=origin)
        rule = task.source.rule
        if rule is not None:
            if not parse_filter(rule.filter).matches(RuleProperties(selected)):
                return Outcome.FILTERED, None, {}
            if rule.action is not None:
                parse_action(rule.action).apply(RuleProperties(selected))
        content = delivered(1, named=dict(selected.application_properties()))
        journal, clock = JournalInMemory(), clock_at_delivery()
        outcomes = asyncio.run(Pipeline(self._assembled[task.task], journal, clock, sleep_by(clock)).run([content]))
        (record,) = journal.records
        assert outcomes == {record.outcome: 1}
        if record.outcome is not Outcome.SENT:
            return record.outcome, record.reason, {}
        (sent,) = self._taken()
        return record.outcome, record.target, dict(Message.received(sent.content, SOMEWHERE).application_properties())

    def _taken(self) -> Any:
        outputs = {
            id(route.target.output): route.target.output
            for task in self._assembled.values()
            for route in task.router._routes
        }
        found = [each for output in outputs.values() for messages in output.accepted.values() for each in messages]
        for output in outputs.values():
            output.accepted.clear()
        return found


def exactly(task: Any, network: Any, named: Any) -> Any:
    """Return the passage of a fully known message."""
    known = {(Scope.USER, name): value for name, value in named.items()}
    return Passage(network.source_node(task.source), Facts(known, Unknown.ABSENT), (network.label(task.source),))


def value_of(named: Any) -> Any:
    return {name.lower(): value for name, value in named.items()}.get


def label(network: Any, edge: Any) -> Any:
    return network.label(edge.target)


@given(configurations, st.integers(0, 4), messages, histories)
def test_fully_known_message_goes_where_the_review_predicts(
    configuration: Any, first: Any, properties: Any, history: Any
) -> None:
    network, carrier = Network(configuration, Entities({})), Carrier(configuration)
    start = configuration.tasks[first % len(configuration.tasks)]
    named = {**properties, **history}
    waiting = deque([(start, exactly(start, network, named), named)])
    for _ in range(_MOST_STEPS):
        if not waiting:
            break
        task, passage, named = waiting.popleft()
        outcome, place, after = carrier.carry(task, named)
        way = network.through(task, passage)
        guarded = [stop for stop in way.stops if stop.cause in ("site", "hops")]
        match outcome:
            case Outcome.SENT:
                ((edge, onward),) = way.onward
                assert label(network, edge) == place
                assert onward.is_certain
                assert holds(onward.facts, value_of(after))
                assert not guarded
                waiting += [(reader, onward, after) for reader in network.readers(onward.node)]
            case Outcome.LOOPED:
                (stop,) = guarded
                assert way.onward == []
                site = configuration.site(stop.edge.target.connection)
                assert place.startswith(f"site {site} is" if stop.cause == "site" else "it has made")
            case Outcome.FILTERED:
                assert (way.onward, guarded) == ([], [])
            case _:
                # An action can change a history so that no stamp can be appended; the review ignores such messages.
                assert (outcome, "repl-" in place) == (Outcome.REJECTED, True)


# The review cannot know a path that an action has set from a property.
PATH_OF_A_PROPERTY = {
    "source": {
        "connection": "west",
        "topic": "a",
        "subscription": "s",
        "rule": {"filter": "NOT p IS NULL", "action": "SET [repl-path] = p"},
    },
    "routes": [{"target": {"connection": "west", "queue": "b"}}],
    "rejects": {"connection": "north", "queue": "rejected"},
    "loop_prevention": False,
}


@given(configurations, st.integers(0, 4), messages)
@example(configured([PATH_OF_A_PROPERTY]), 0, {"p": string("1")})
def test_known_facts_hold_for_any_message_at_every_hop(configuration: Any, first: Any, properties: Any) -> None:
    network, carrier = Network(configuration, Entities({})), Carrier(configuration)
    start = configuration.tasks[first % len(configuration.tasks)]
    waiting = deque([(start, [network.start(start)], properties)])
    for _ in range(_MOST_STEPS):
        if not waiting:
            break
        task, passages, named = waiting.popleft()
        outcome, place, after = carrier.carry(task, named)
        ways = [network.through(task, passage) for passage in passages]
        if outcome is Outcome.SENT:
            onward = [
                passage
                for way in ways
                for edge, passage in way.onward
                if label(network, edge) == place and holds(passage.facts, value_of(after))
            ]
            assert onward
            waiting += [(reader, onward, after) for reader in network.readers(onward[0].node)]
        elif outcome is Outcome.LOOPED:
            assert any(stop.cause in ("site", "hops") for way in ways for stop in way.stops)
