"""Any rule or set of tasks: the derived facts are true, and a review ends."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp import values
from shared.review import CHECKS, Entities, review
from shared.review.known_properties import Facts, Unknown, applied, is_nothing, outcomes
from shared.rules import Action, RuleEvaluationError, SqlFilter
from shared.rules.syntax import (
    And,
    Comparison,
    Exists,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Property,
    Remove,
    Scope,
    Set,
)
from shared.tasks.files import Configuration
from shared.tasks.models import Connection, TaskFile
from tests.properties.test_rules import conditions as any_conditions
from tests.properties.test_rules import messages as any_messages
from tests.unit.rules.properties_in_memory import PropertiesInMemory

# Few names and values, so that conditions overlap.
constants = st.sampled_from([values.NULL, values.long(1), values.long(2), values.string("1"), values.string("a")])
literals = constants.map(Literal)
names = st.sampled_from(["p", "q", "P"]).map(Property)
comparisons = st.one_of(
    st.builds(Comparison, names, st.sampled_from(["=", "<>", "<"]), literals | names),
    st.builds(Comparison, literals, st.sampled_from(["=", "<>"]), names | literals),
    st.builds(IsNull, names, st.booleans()),
    st.builds(Exists, names),
    st.builds(In, names, st.lists(literals, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(Like, names, st.just(Literal(values.string("a%"))), st.none(), st.booleans()),
)
conditions = st.recursive(
    comparisons,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)
actions = (
    st.lists(st.builds(Set, names, literals | names) | st.builds(Remove, names), min_size=1, max_size=2)
    .map(tuple)
    .map(Action)
)
messages = st.dictionaries(st.sampled_from(["p", "q"]), constants)


def holds(facts: Any, value_of: Any) -> bool:
    """Return whether *facts* hold for the application properties, each of which *value_of* returns by its name."""
    return all(
        agrees(knowledge, value_of(name)) for (scope, name), knowledge in facts.known.items() if scope is Scope.USER
    )


def agrees(knowledge: Any, value: Any) -> bool:
    if isinstance(knowledge, values.Value):
        # Rules treat null and absent alike except in EXISTS; facts about an action's result say which it is.
        return value is not None and (value.kind, value.payload) == (knowledge.kind, knowledge.payload)
    nothing = value is None or is_nothing(value)
    return {
        Unknown.ANYTHING: True,
        Unknown.SOMETHING: not nothing,
        Unknown.NOTHING: nothing,
        Unknown.ABSENT: value is None,
    }[knowledge]


@given(conditions, messages)
def test_result_of_a_condition_is_among_the_predicted_outcomes(condition: Any, properties: Any) -> None:
    message = PropertiesInMemory(**properties)
    truth = SqlFilter(condition).evaluate(message)
    assert any(each is truth and holds(facts, message.user) for each, facts in outcomes(condition, Facts()))


@given(conditions, actions, conditions, messages)
def test_known_facts_hold_after_an_action(before: Any, action: Any, after: Any, properties: Any) -> None:
    message = PropertiesInMemory(**properties)
    truth = SqlFilter(before).evaluate(message)
    known = [facts for each, facts in outcomes(before, Facts()) if each is truth and holds(facts, message.user)]
    action.apply(message)
    known = [facts for facts in (applied(action, each) for each in known) if holds(facts, message.user)]
    assert known
    truth = SqlFilter(after).evaluate(message)
    assert any(each is truth and holds(then, message.user) for facts in known for each, then in outcomes(after, facts))


@given(any_conditions, any_messages)
def test_any_condition_has_its_result_among_its_outcomes(condition: Any, message: Any) -> None:
    try:
        truth = SqlFilter(condition).evaluate(message)
    except RuleEvaluationError:
        truth = None
        assert outcomes(condition, Facts())
    else:
        assert truth in [each for each, _ in outcomes(condition, Facts())]


CONNECTIONS = {
    "west": Connection(kind="service-bus", setting="WEST"),
    "east": Connection(kind="service-bus", setting="EAST"),
    "again": Connection(kind="service-bus", setting="WEST", site="elsewhere"),
    "hubs": Connection(kind="event-hubs", setting="HUBS", site="west"),
}
buses = st.sampled_from(["west", "east", "again"])
entities = st.sampled_from(["a", "b"])
rule_texts = conditions.map(str)
targets = st.one_of(
    st.fixed_dictionaries({"connection": buses, "queue": entities}),
    st.fixed_dictionaries({"connection": buses, "topic": entities}),
    st.fixed_dictionaries({"connection": st.just("hubs"), "hub": entities}, optional={"partition": st.integers(0, 3)}),
)
rules = st.fixed_dictionaries({"filter": rule_texts}, optional={"action": actions.map(str)})
sources = st.one_of(
    st.fixed_dictionaries({"connection": buses, "queue": entities}, optional={"dead_letter": st.booleans()}),
    st.fixed_dictionaries(
        {"connection": buses, "topic": entities, "subscription": st.sampled_from(["s", "t"])}, optional={"rule": rules}
    ),
    st.fixed_dictionaries({"connection": st.just("hubs"), "hub": entities, "consumer_group": st.sampled_from("xy")}),
)
history = st.sampled_from(["REMOVE [repl-path]", "SET [repl-path] = 'x'", "SET sys.MessageId = newid()"])
routes = st.fixed_dictionaries({"target": targets}, optional={"when": rule_texts, "action": actions.map(str) | history})
tasks = st.fixed_dictionaries(
    {"task": st.just("t"), "source": sources, "routes": st.lists(routes, min_size=1, max_size=3), "rejects": targets},
    optional={
        "loop_prevention": st.just(False) | st.builds(dict, max_hops=st.integers(1, 3)),
        "ttl": st.sampled_from(["keep", "remaining", {"stamp": "PT1M"}]),
        "editors": st.lists(st.fixed_dictionaries({"filter": rule_texts}), max_size=2),
    },
)


def configured(documents: Any, connections: Any = CONNECTIONS) -> Any:
    """Return the documents that are valid as tasks of one configuration."""
    valid = []
    for number, document in enumerate(documents):
        try:
            valid.append(TaskFile.model_validate({**document, "task": f"t{number}"}))
        except ValueError:
            continue
    return Configuration(connections, valid, {task.task: task.task for task in valid})


@given(st.lists(tasks, max_size=5).map(configured))
def test_any_set_of_tasks_can_be_reviewed(configuration: Any) -> None:
    for finding in review(configuration, Entities({})):
        assert finding.check in CHECKS
        assert not finding.check.needs_entities
        assert str(finding).startswith(f"{finding.check.severity} {finding.check.name}: {finding.path}: ")
