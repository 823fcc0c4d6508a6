"""The answers of the steps, in one file that can be sent back: names and numbers, no bodies, keys or tokens."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from shared.printable import printable

# Subscriptions, tenants and principals are nobody else's business.
_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_KEY = re.compile(r"(?i)(key|sig|signature|token)=[^\s;&\"']+")


class Verdict(StrEnum):
    """What is known after a step."""

    AS_EXPECTED = "as expected"
    NOT_AS_EXPECTED = "not as expected"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Answer:
    """The result of one step."""

    number: int
    step: str
    command: str
    verdict: Verdict
    seconds: float
    lines: Sequence[str]


def public(text: str) -> str:
    """Return *text* in one line, without ids of people and subscriptions, and without keys."""
    return _KEY.sub(lambda match: f"{match[1]}=…", _GUID.sub("…", printable(text)))


class AnswerFile:
    """The file, which is complete after each step: an hour may be interrupted."""

    def __init__(self, path: Path, *, started: str, place: str) -> None:
        """Keep the answers of an earlier run of the same file, step by step, until they are replaced."""
        self._path = path
        self._head = {"busway": version("busway"), "started": started, "where": place}
        self._answers: dict[int, dict[str, object]] = {}
        if path.is_file():
            self._answers = {each["number"]: each for each in json.loads(path.read_text(encoding="utf-8"))["answers"]}

    def add(self, answer: Answer) -> None:
        """Write the file with *answer*."""
        self._answers[answer.number] = {**asdict(answer), "lines": [public(line) for line in answer.lines]}
        answers = [self._answers[number] for number in sorted(self._answers)]
        text = json.dumps({**self._head, "answers": answers}, indent=1, ensure_ascii=False)
        self._path.write_text(text + "\n", encoding="utf-8")
