"""What `load` says about files: plain words, keys of the same level, and no secret."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.errors import ConfigError
from shared.tasks.faults import keys_at
from shared.tasks.files import load
from shared.tasks.models import TaskFile
from tests.unit.tasks.task_files import CONNECTIONS, TASK

WHOLE = """
task: copy
source: {connection: west, topic: t, subscription: s, sessions: true, rule: {filter: "a = 1", action: "SET b = 1"}}
editors:
  - validate: {max_size: 5, on_failure: drop}
  - filter: "a = 1"
routes:
  - {when: "a = 1", action: "SET b = 1", target: {connection: east, queue: q}, via: sdk}
rejects: {connection: west, queue: r}
lanes: 2
ttl: {stamp: PT2M}
loop_prevention: {max_hops: 3}
limits: {rejects_in_a_row: 5, edit_time: PT0.1S, rate: 5.5, hold: PT10M}
journal: required
"""
# How pydantic begins its texts, and what only a Python programmer calls things.
FOREIGN = re.compile(
    r"Input should|String should|Value error|Assertion failed|Tuple|List should|Dictionary"
    r"|valid (?:boolean|integer|string)|timedelta|pydantic|NoneType|Unable to extract"
    r"|Field required|Extra inputs|ctx|\^\["
)


def paths(value: object, here: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    """Return the path of everything inside *value*."""
    inner: list[tuple[int | str, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [*([here] if here else []), *(path for step, each in inner for path in paths(each, (*here, step)))]


PATHS = paths(yaml.safe_load(WHOLE))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["a", "queue", "filter", "stamp"]), st.integers(), max_size=2),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), value=VALUES)
def test_no_text_of_pydantic_reaches_a_user(folder: Path, path: tuple[int | str, ...], value: object) -> None:
    document = yaml.safe_load(WHOLE)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (folder / "tasks/a.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    try:
        load(folder)
    except ConfigError as error:
        for problem in error.problems:
            # The value itself may contain anything.
            text = problem.problem.replace(repr(value), "")
            assert not FOREIGN.search(text), text


@pytest.mark.parametrize(
    ("old", "new", "path", "hint"),
    [
        # `queue` is a key, but not here.
        ("task: copy", "task: copy\nqueu: q", "queu", ""),
        ("queue: orders}", "queu: orders}", "source.queu", "did you mean 'queue'?"),
        ("task: copy", "task: copy\nqueue: q", "queue", ""),
        ("task: copy", "task: copy\nTask: other", "Task", ""),
        ("task: copy", "task: copy\nlimits: {hodl: PT5M}", "limits.hodl", "did you mean 'hold'?"),
        ("task: copy", "task: copy\neditors: [{validate: {max_sise: 5}}]", "editors[0].validate.max_sise", "max_size"),
        ("task: copy", "task: copy\nlimits: {task: PT5M}", "limits.task", ""),
        ("task: copy", "task: copy\ntrigger: stock", "trigger", "the stock trigger was removed"),
    ],
)
def test_a_key_is_suggested_only_on_its_level(problems: Any, old: str, new: str, path: str, hint: str) -> None:
    found = {
        place: text for place, problem, text in problems(copy=TASK.replace(old, new, 1)) if problem == "unknown key"
    }
    assert hint in found[f"tasks/copy.yaml: {path}"]
    assert bool(hint) == bool(found[f"tasks/copy.yaml: {path}"])


def test_keys_of_a_level_are_those_of_the_chosen_member_of_a_union() -> None:
    document = {"ttl": {"stamp": 1, "x": 2}}
    assert keys_at(TaskFile, ("ttl", "mapping"), document) == ["stamp"]
    assert "hold" not in keys_at(TaskFile, (), document)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey=topsecret", "is a connection string, expected the"),
        ("topsecret+/==", "expected the name of an app setting"),
    ],
)
def test_a_secret_in_a_setting_is_recognised_and_not_repeated(problems: Any, setting: str, expected: str) -> None:
    connections = f"{CONNECTIONS}south: {{kind: service-bus, setting: '{setting}'}}\n"
    ((path, problem, hint),) = problems(connections=connections, copy=TASK)
    assert path == "connections.yaml: south: setting"
    assert problem.startswith(expected)
    assert "topsecret" not in problem + hint


def test_a_missing_folder_and_a_file_in_its_place_are_called_that(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, expected in (("missing", "there is no such folder"), ("file", "is a file, expected a folder")):
        with pytest.raises(ConfigError, match=expected):
            load(tmp_path / name)
