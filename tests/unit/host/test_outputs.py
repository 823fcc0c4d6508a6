"""What the local host makes of the values of output bindings, as Azure's host does."""

import pytest

from host.outputs import Bodies, NoOutput, bodies

BOTH = ("serviceBus", "eventHub")


@pytest.mark.parametrize("binding", BOTH)
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("json", '["[1, 2]", "{\\"a\\": 1e3}", "", "x"]', [b"[1, 2]", b'{"a": 1e3}', b"", b"x"]),
        ("json", '["\\ud800x"]', ["\N{REPLACEMENT CHARACTER}x".encode()]),
        ("string", "text", [b"text"]),
        ("string", " {a} b", [b" {a} b"]),
        ("string", "", [b""]),
    ],
)
def test_texts_that_arrive_as_they_were_set(binding: str, kind: str, value: str, expected: list[bytes]) -> None:
    assert bodies(binding, kind, value) == Bodies(expected)


@pytest.mark.parametrize("binding", BOTH)
@pytest.mark.parametrize(
    ("kind", "value", "expected", "warning"),
    [
        ("string", ' {"a": 1, "a": 2} ', [b'{\n  "a": 2\n}'], "parsed and written again"),
        ("string", '["a", {"b": 1}, null]', [b"a", b'{\n  "b": 1\n}', b""], "split into a message for each item"),
        ("string", "[]", [], "split into a message for each item"),
        ("json", '["a", null, {"b": 1}]', [b"a", b"", b'{\n  "b": 1\n}'], "items that are no str"),
    ],
)
def test_values_that_are_rewritten_are_reported(
    binding: str, kind: str, value: str, expected: list[bytes], warning: str
) -> None:
    made = bodies(binding, kind, value)
    assert made.bodies == expected
    assert made.warning is not None
    assert warning in made.warning


@pytest.mark.parametrize("text", ["[INFO] x [ok]", '{"a": 1}\n{"b": 2}', "[" * 100_000 + "]" * 100_000])
@pytest.mark.parametrize("binding", BOTH)
def test_brackets_that_are_no_json_fail_the_invocation(binding: str, text: str) -> None:
    with pytest.raises(NoOutput):
        bodies(binding, "string", text)


def test_bytes_are_an_event_and_lost_in_service_bus() -> None:
    assert bodies("eventHub", "bytes", b"\x00\xff") == Bodies([b"\x00\xff"])
    made = bodies("serviceBus", "bytes", b"\x00\xff")
    assert made.bodies == [b"System.Byte[]"]
    assert made.warning is not None
