"""Options that are refused when a task is loaded, each with what the error says."""

from typing import Any

import pytest
from pydantic import ValidationError

from shared.tasks.steps import STEPS

STORE: list[tuple[Any, str]] = [
    ({}, "setting\n  Field required"),
    ({"setting": "no setting"}, "should match pattern"),
    ({"setting": "S", "container": "-"}, "should match pattern"),
    ({"setting": "S", "more": 1}, "Extra inputs"),
]
INVALID: dict[str, list[tuple[Any, str]]] = {
    "batch": [
        ({"max_count": 0}, "greater than or equal to 1"),
        ({"as": "xml"}, "'json-array', 'json-lines' or 'avro'"),
        ({"within": "PT0S"}, "greater than 0"),
        ({"content_type": "json"}, "should match pattern"),
        ({"of": 1}, "Extra inputs"),
    ],
    "claim-check": [*STORE, ({"setting": "S", "above": -1}, "greater than or equal to 0")],
    "claim-restore": STORE,
    "cloudevents": [
        ({}, "Field required"),
        ({"to": "batch"}, "'binary', 'structured' or 'plain'"),
        ({"to": "binary", "source": "not a uri"}, "source: expected a URI reference"),
        ({"to": "binary", "dataschema": "relative"}, "dataschema: expected a URI"),
        ({"to": "binary", "type": ""}, "at least 1 character"),
        ({"to": "binary", "separator": "-"}, "'_' or ':'"),
    ],
    "compress": [
        ({"encoding": "lz4"}, "'gzip', 'zstd' or 'brotli'"),
        ({}, "Field required"),
        ({"encoding": "gzip", "level": 10}, "has the level 10, expected 0 to 9 for gzip"),
        ({"encoding": "zstd", "level": 0}, "has the level 0, expected 1 to 22 for zstd"),
        ({"encoding": "gzip", "min_size": -1}, "greater than or equal to 0"),
    ],
    "decompress": [({"encoding": "brotli", "uncompressed": "pass"}, "which cannot be distinguished from other bytes")],
    "deduplicate": [
        ({"store": "memory"}, "window\n  Field required"),
        ({"window": "PT1H"}, "store\n  Field required"),
        ({"window": "PT0S", "store": "memory"}, "greater than 0"),
        ({"window": "P8D", "store": "memory"}, "less than or equal to 7 days"),
        ({"window": "PT1H", "store": "disk"}, "'memory'"),
        ({"window": "PT1H", "store": "memory", "by": "sys.Nothing"}, "names sys.Nothing"),
        ({"window": "PT1H", "store": "memory", "max_count": 0}, "greater than or equal to 1"),
        ({"window": "PT1H", "store": {"setting": "S", "container": "No"}}, "should match pattern"),
    ],
    "encrypt": [
        ({}, "key\n  Field required"),
        ({"key": "no such name"}, "String should match"),
        ({"key": "k", "alg": "none"}, "alg\n"),
        ({"key": "k", "alg": "RSA1_5"}, "alg\n"),
        ({"key": "k", "fields": []}, "at least 1 item"),
        ({"key": "k", "fields": ["card"]}, "'card' is not a path to a field"),
        ({"key": "k", "fields": ["$"]}, "not a path to a field"),
        ({"key": "k", "fields": ["$..n"]}, "cannot be read at '..n'"),
        ({"key": "k", "fields": ["$.a[-1]"]}, "cannot be read at '[-1]'"),
        ({"key": "k", "fields": ["$.a", "$['a'].b"]}, "may lead to one field, or into one another"),
        ({"key": "k", "fields": ["$.a[*]", "$.a[0]"]}, "may lead to one field"),
        ({"key": "k", "missing_fields": "pass"}, "expected both or neither"),
        ({"key": "k", "fields": ["$.a"], "serialization": "json"}, "expected compact"),
        ({"key": "k", "bind": ["sys.SequenceNumber"]}, "expected one of sys.ContentType"),
        ({"key": "k", "bind": ["repl-path"]}, "expected a property that does not change under way"),
        ({"key": "k", "bind": ["a", "A"]}, "twice"),
    ],
    "partition": [
        ({}, "expected one of value and property"),
        ({"value": "a", "property": "b"}, "expected one of value and property"),
        ({"value": "a."}, "is not a JMESPath expression"),
        ({"property": "sys.MessageId"}, "names sys.MessageId, expected an application property"),
        ({"value": "a", "missing": "drop"}, "'reject' or 'leave'"),
    ],
    "properties": [
        ({}, "changes nothing, expected remove, rename or action"),
        ({"remove": []}, "at least 1 item"),
        ({"remove": [""]}, "at least 1 character"),
        ({"remove": ["repl-path"]}, "names repl-path, expected none of Busway's own"),
        ({"remove": ["sys.Subject"]}, "expected an application property; an `action` changes broker properties"),
        ({"rename": {}}, "at least 1 item"),
        ({"rename": {"a": "Repl-x"}}, "names Repl-x"),
        ({"rename": {"a": 5}}, "valid string"),
        ({"rename": {"a": "x", "A": "y"}}, "renames a twice"),
        ({"rename": {"a": "x", "b": "X"}}, "gives the name x twice"),
        ({"rename": {"a*": "x"}}, "renames by a*"),
        ({"rename": {"ab": "x"}, "remove": ["AB"]}, "removes ab and renames it"),
        ({"action": "SET"}, "expected"),
        ({"action": "SET sys.MessageId = 'x'"}, "changes sys.MessageId, expected the id and the ordering keys"),
        ({"action": "SET a = 1; SET sys.sessionid = 'x'"}, "changes sys.sessionid"),
        ({"action": "REMOVE sys.PartitionKey"}, "changes sys.PartitionKey"),
        ({"action": "SET sys.TransactionPartitionKey = 'x'"}, "changes sys.TransactionPartitionKey"),
        ({"action": "SET sys.SequenceNumber = 5"}, "expected"),
        ({"action": "SET [repl-path] = 'x'"}, "changes [repl-path], expected none of Busway's own"),
        ({"action": "SET sys.Nothing = 5"}, "expected a system property"),
    ],
    "reduce": [
        ({}, "reduces nothing, expected keep, drop, drop_nulls, drop_empty or flatten"),
        ({"drop_nulls": False}, "reduces nothing"),
        ({"keep": []}, "at least 1 item"),
        ({"keep": [""]}, "is not a path: expected a name at character 1"),
        ({"keep": ["a."]}, "is not a path: expected a name at character 3"),
        ({"keep": ["a..b"]}, "expected a name at character 3"),
        ({"keep": ["a[0]"]}, "expected . or [] at character 2"),
        ({"keep": ['"a']}, "expected a name at character 1"),
        ({"keep": ["a*"]}, "expected . or [] at character 2"),
        ({"keep": ["a.b"], "drop": ["a"]}, "drops a, which contains a.b"),
        ({"flatten": ""}, "at least 1 character"),
        ({"flatten": True}, "valid string"),
    ],
    "route": [
        ({}, "at least 1 item"),
        ({"a": {}}, "Field required"),
        ({"a": {"value": "a."}}, "is not a JMESPath expression"),
        ({"a": {"value": "a", "type": "text"}}, "'string', 'long', 'double', 'boolean' or 'timestamp'"),
        ({"a": {"value": "a"}, "A": {"value": "b"}}, "sets a and A, expected names that differ"),
        ({"sys.SessionId": {"value": "a"}}, "names sys.SessionId, expected an application property"),
        ({"repl-path": {"value": "a"}}, "names repl-path, expected none of Busway's own"),
    ],
    "sign": [
        ({"key": "k", "lifetime": "PT0S"}, "greater than 0"),
        ({"key": "k", "properties": ["sys.TimeToLive"]}, "expected one of sys."),
        ({"key": "k", "properties": []}, "at least 1 item"),
        ({"key": "k", "into": ""}, "at least 1 character"),
        ({"key": "k", "algorithm": "none"}, "Extra inputs"),
    ],
    "transform": [
        ({}, "Field required"),
        ({"expression": ""}, "at least 1 character"),
        ({"expression": 5}, "valid string"),
        ({"expression": "a."}, "is not a JMESPath expression"),
        ({"expression": "nope(@)"}, "calls nope(), expected one of abs, add"),
        ({"expression": "[?lower()]"}, "calls lower() with 0 arguments, expected 1"),
        ({"expression": "merge()"}, "calls merge() with 0 arguments, expected at least 1"),
        ({"expression": "map(&nope(@), @)"}, "calls nope()"),
        ({"expression": "l[::0]"}, "has a slice with the step 0"),
        ({"expression": "`NaN`"}, "has a literal that is not a finite number"),
        ({"expression": "(" * 5000 + "a" + ")" * 5000}, "nested too deeply"),
        ({"expression": "a", "content_type": "json"}, "String should match pattern"),
        ({"expression": "a", "on_null": "ignore"}, "'reject', 'drop' or 'write'"),
        ({"expression": "a", "each": True}, "Extra inputs"),
    ],
}


@pytest.mark.parametrize(
    ("verb", "options", "problem"),
    [
        pytest.param(verb, options, problem, id=f"{verb} {number}")
        for verb, cases in INVALID.items()
        for number, (options, problem) in enumerate(cases)
    ],
)
def test_invalid_options_are_reported_at_load(verb: str, options: Any, problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        STEPS[verb].model_validate({verb: options})
    assert problem in str(caught.value)
