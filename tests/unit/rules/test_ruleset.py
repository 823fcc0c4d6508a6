from shared.amqp import values
from shared.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    RuleSet,
    TrueFilter,
    parse_action,
    parse_filter,
    unknown_system_properties,
)
from tests.unit.rules.properties_in_memory import PropertiesInMemory

MARK = parse_action("SET replication = 1")


def test_five_matching_rules_of_which_two_have_actions_make_three_copies() -> None:
    rules = RuleSet(
        [
            Rule("plain-1", TrueFilter()),
            Rule("changing-1", TrueFilter(), MARK),
            Rule("plain-2", parse_filter("1 = 1")),
            Rule("changing-2", parse_filter("color = 'red'"), parse_action("SET color = 'blue'")),
            Rule("plain-3", CorrelationFilter(properties={"color": values.string("red")})),
        ]
    )
    selection = rules.select(PropertiesInMemory(color=values.string("red")))
    assert selection.copies == 3
    assert selection.is_selected_as_is
    assert [rule.name for rule in selection.changed] == ["changing-1", "changing-2"]


def test_a_changed_copy_carries_the_name_of_its_rule() -> None:
    rule = Rule("mark", TrueFilter(), parse_action("SET replication = 1; SET RuleName = 'mine'"))
    properties = PropertiesInMemory()
    rule.apply(properties)
    assert properties.user_values == {"replication": values.long(1), "RuleName": values.string("mark")}


def test_a_plain_rule_changes_nothing() -> None:
    properties = PropertiesInMemory()
    Rule("plain", TrueFilter()).apply(properties)
    assert properties.user_values == {}


def test_without_a_matching_rule_there_is_no_copy() -> None:
    assert RuleSet([]).select(PropertiesInMemory()).copies == 0
    rules = RuleSet([Rule("never", FalseFilter()), Rule("changing", FalseFilter(), MARK)])
    assert rules.select(PropertiesInMemory()).copies == 0


def test_a_loop_rule_ignores_a_marked_message_unless_the_default_rule_exists_too() -> None:
    loop_rule = Rule("replicate", parse_filter("replication IS NULL"), MARK)
    marked = PropertiesInMemory(replication=values.long(1))
    assert RuleSet([loop_rule]).select(PropertiesInMemory()).copies == 1
    assert RuleSet([loop_rule]).select(marked).copies == 0
    assert RuleSet([Rule("$Default", TrueFilter()), loop_rule]).select(marked).is_selected_as_is


def test_a_failing_filter_selects_nothing_and_is_reported_with_the_rest() -> None:
    failing = Rule("failing", parse_filter("color - 1 = 0"))
    failing_too = Rule("failing-too", parse_filter("sys.Lable = 'x'"), MARK)
    rules = RuleSet([failing, Rule("plain", TrueFilter()), failing_too, Rule("changing", TrueFilter(), MARK)])
    selection = rules.select(PropertiesInMemory(color=values.string("red")))
    assert selection.copies == 2
    assert [rule for rule, _ in selection.failed] == [failing, failing_too]
    assert "got string - long" in str(selection.failed[0][1])


def test_parameters_reach_filter_and_action() -> None:
    rule = Rule(
        "parameters",
        parse_filter("source = @source"),
        parse_action("SET target = @target"),
        {"@source": values.string("west")},
        {"@target": values.string("east")},
    )
    properties = PropertiesInMemory(source=values.string("west"))
    (changed,) = RuleSet([rule]).select(properties).changed
    changed.apply(properties)
    assert properties.user_values["target"] == values.string("east")


def test_true_and_false_filters_are_printed_as_rules_that_parse() -> None:
    assert parse_filter(str(TrueFilter())).matches(PropertiesInMemory())
    assert not parse_filter(str(FalseFilter())).matches(PropertiesInMemory())


def test_unknown_system_properties_are_reported_before_any_message_arrives() -> None:
    assert unknown_system_properties(parse_filter("NOT (sys.Lable IN (sys.to, p(sys.Foo)))")) == ("Lable", "Foo")
    assert unknown_system_properties(parse_action("SET a = sys.Lable + 1; REMOVE b; SET c = sys.Label")) == ("Lable",)
