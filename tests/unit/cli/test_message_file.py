from pathlib import Path

import pytest

from cli.demo.messages import read_templates
from shared.amqp import values
from shared.errors import ConfigError


def test_a_line_becomes_a_message(tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text(
        '{"body": "hello", "session_id": "s", "subject": "greeting", "properties": {"n": 7}}\n'
        "\n"
        '{"body": {"ü": [1, 2]}, "content_type": "application/json"}\n'
        '{"body_base64": "AAH/"}\n'
        '{"body": "one\u2028line"}',
        encoding="utf-8",
    )
    first, second, third, fourth = read_templates(file)
    assert (first.body, first.session_id, first.subject) == (b"hello", "s", "greeting")
    assert first.properties == {"n": values.int_(7)}
    assert (second.body, second.session_id) == ('{"ü":[1,2]}'.encode(), "default")
    assert third.body == b"\x00\x01\xff"
    assert fourth.body == "one\u2028line".encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "expected a JSON object"),
        ('{"bdy": "x"}', "unknown key 'bdy'"),
        ("{}", "expected one of body and body_base64"),
        ('{"body": "x", "body_base64": ""}', "expected one of body and body_base64"),
        ('{"body_base64": "?"}', "expected Base64 text"),
        ('{"body": "\\ud800"}', "half of a surrogate pair"),
        ('{"body": "x", "session_id": "' + 129 * "s" + '"}', "session_id: expected text of 1 to 128 characters"),
        ('{"body": "x", "content_type": "ü"}', "content type: got characters beyond ASCII"),
        ('{"body": "x", "properties": []}', "properties: expected an object"),
        ('{"body": "x", "properties": {"repl-path": "x"}}', "the name 'repl-path' is taken"),
        ('{"body": "x", "properties": {"typed-int": 1}}', "the name 'typed-int' is taken"),
        ('{"body": "x", "properties": {"n": []}}', "properties: n: expected a scalar"),
        ('{"body": "' + 200_000 * "x" + '"}', "has 200000 bytes"),
        ('{"body": "x", "properties": {"long": "' + 40_000 * "x" + '"}}', "properties: have 40"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text(f'{{"body": "good"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_templates(file)
    (problem,) = map(str, raised.value.problems)
    assert f"{file}: line 2: " in problem
    assert reason in problem
