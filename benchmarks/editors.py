"""
The cost of each editor for an order of 1 KB, compared with the bare library call that it wraps.

The bare call reads its input from the message and writes its result back, as any caller must. It checks nothing.

Both get a message that has just arrived. They take turns within a round, so that other load on the machine slows down
both.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import jmespath
from jsonschema import Draft202012Validator

from benchmarks import format_editors
from benchmarks.measurement import Measurement, report
from benchmarks.order import CONTENT, TASK, Case, dumped, order
from shared.amqp.values import double, string
from shared.editors.filter import FilterStep
from shared.editors.options import FOLDER
from shared.editors.partition import PartitionStep
from shared.editors.properties import PropertiesStep
from shared.editors.python import PythonStep
from shared.editors.reduce import ReduceStep
from shared.editors.route import RouteStep
from shared.editors.transform import TransformStep
from shared.editors.validate import ValidateStep
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.rules.rule import parse_action, parse_filter

ROUNDS, CALLS = 60, 50
MOST = 1.5


def filter_() -> Case:
    """Return the case of the filter editor."""
    text = "country = 'DE' AND priority > 5 AND tenant LIKE 'b%'"
    rule = parse_filter(text)
    editor = FilterStep.model_validate({"filter": text}).editor(TASK)
    return Case("filter", editor, order(), lambda message: rule.matches(RuleProperties(message)))


def validate() -> Case:
    """Return the case of the validate editor with a JSON Schema."""
    schema = {
        "type": "object",
        "required": ["id", "lines"],
        "properties": {
            "id": {"type": "string"},
            "customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
            "lines": {
                "items": {"properties": {"article": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}}
            },
        },
    }
    with TemporaryDirectory() as folder:
        Path(folder, "order.json").write_text(json.dumps(schema), encoding="utf-8")
        step = ValidateStep.model_validate({"validate": {"schema": "order.json"}}, context={FOLDER: Path(folder)})
    validator = Draft202012Validator(schema)
    return Case("validate", step.editor(TASK), order(), lambda _: list(validator.iter_errors(json.loads(CONTENT))))


def transform() -> Case:
    """Return the case of the transform editor, which reshapes the order and computes a sum."""
    text = (
        "{id: id, customer: customer.name, lines: lines[].{article: article, count: count}, total: sum(lines[].price)}"
    )
    editor = TransformStep.model_validate({"transform": {"expression": text}}).editor(TASK)
    expression = jmespath.compile(text)
    return Case("transform", editor, order(), lambda _: dumped(expression.search(json.loads(CONTENT))))


def reduce() -> Case:
    """Return the case of the reduce editor, against an expression that keeps the same."""
    keep = ["id", "customer.name", "customer.address.country", "lines[].article", "lines[].count", "total"]
    editor = ReduceStep.model_validate({"reduce": {"keep": keep}}).editor(TASK)
    expression = jmespath.compile(
        "{id: id, customer: {name: customer.name, address: {country: customer.address.country}},"
        " lines: lines[].{article: article, count: count}, total: total}"
    )
    return Case("reduce", editor, order(), lambda _: dumped(expression.search(json.loads(CONTENT))))


def route() -> Case:
    """Return the case of the route editor, which lifts two values."""
    options = {"country": {"value": "customer.address.country"}, "total": {"value": "total", "type": "double"}}
    editor = RouteStep.model_validate({"route": options}).editor(TASK)
    country, total = jmespath.compile("customer.address.country"), jmespath.compile("total")

    def bare(message: Message) -> None:
        body = json.loads(CONTENT)
        found = {"country": string(country.search(body)), "total": double(total.search(body))}
        message.set_properties(found)

    return Case("route", editor, order(), bare)


def partition() -> Case:
    """Return the case of the partition editor, which takes a key from the body."""
    editor = PartitionStep.model_validate({"partition": {"value": "customer.id"}}).editor(TASK)
    expression = jmespath.compile("customer.id")
    message = order()
    message.session_id = None

    def bare(message: Message) -> None:
        if message.session_id or message.partition_key:
            raise SystemExit("the message has a key already, expected none")
        message.set_annotations({"x-opt-partition-key": string(expression.search(json.loads(CONTENT)))})

    return Case("partition", editor, message, bare)


def properties() -> Case:
    """Return the case of the properties editor with an action of a rule, against the action itself."""
    text = "SET region = 'eu'; SET priority = priority + 1; REMOVE kind"
    editor = PropertiesStep.model_validate({"properties": {"action": text}}).editor(TASK)
    action = parse_action(text)
    return Case("properties", editor, order(), lambda message: action.apply(RuleProperties(message)))


def renaming() -> Case:
    """Return the case of the properties editor that renames and removes, against an action that does the same."""
    options = {"remove": ["kind"], "rename": {"tenant": "customer"}}
    editor = PropertiesStep.model_validate({"properties": options}).editor(TASK)
    action = parse_action("REMOVE kind; SET customer = tenant; REMOVE tenant")
    return Case("properties, renaming", editor, order(), lambda message: action.apply(RuleProperties(message)))


def python() -> Case:
    """Return the case of the python editor, against the function that it calls."""
    editor = PythonStep.model_validate({"python": "benchmarks.editors:with_tax"}).editor(TASK)
    return Case("python", editor, order(), with_tax)


def with_tax(message: Message) -> Message:
    """Return an order with its tax, as a custom function may compute it."""
    body = json.loads(message.body or b"")
    message.body = dumped({**body, "tax": body["total"] * 0.19})
    message.set_properties({"taxed": string("yes")})
    return message


CASES: Sequence[Callable[[], Case]] = (
    filter_,
    validate,
    transform,
    reduce,
    properties,
    renaming,
    route,
    partition,
    python,
    *format_editors.CASES,
)


def main() -> None:
    """Measure and report every editor's cost and its ratio to the cost of the bare call."""
    measurements = []
    for make in CASES:
        case = make()
        edited, bare = _costs(case)
        measurements += [
            Measurement(f"editor {case.name}, an order of 1 KB", edited, "µs"),
            Measurement(f"editor {case.name} to the bare library call", edited / bare, "times", MOST),
        ]
    report(measurements)


def _costs(case: Case) -> tuple[float, float]:
    """Return the processor time of the editor and of the bare call in microseconds, the best of all rounds."""
    edited = bare = float("inf")
    for _ in range(ROUNDS):
        edited = min(edited, _cost(case.editor.edit, case.message))
        bare = min(bare, _cost(case.bare, case.message))
    return edited, bare


def _cost(call: Callable[[Message], object], message: Message) -> float:
    messages = [message.copy() for _ in range(CALLS)]
    started = time.process_time_ns()
    for each in messages:
        call(each)
    return (time.process_time_ns() - started) / CALLS / 1000


if __name__ == "__main__":
    main()
