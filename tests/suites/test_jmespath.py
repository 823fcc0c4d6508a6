"""jmespath.test: expressions with their results, and with their errors."""

import json
from typing import Any

import pytest

from shared.codecs.json import read_exact
from shared.editors.content.expression import Expression
from shared.errors import MessageRejected
from tests.messages import message
from tests.suites.checkouts import documents

CASES = [
    pytest.param(group["given"], case, id=f"{name}-{number}-{index}")
    for name, groups in documents("jmespath.test", "tests/*.json")
    for number, group in enumerate(groups)
    for index, case in enumerate(group["cases"])
    if "bench" not in case
]


# jmespath.py still reads a literal that is not JSON as a text, as an early draft of the language did.
OLD_LITERALS = {"@``"}


@pytest.mark.filterwarnings("ignore:deprecated string literal:PendingDeprecationWarning")
@pytest.mark.parametrize(("given", "case"), CASES)
def test_expression(given: Any, case: dict[str, Any]) -> None:
    try:
        found = Expression(case["expression"]).of(read_exact(json.dumps(given).encode()), message())
    except (MessageRejected, ValueError):
        assert "error" in case
    else:
        if case["expression"] in OLD_LITERALS:
            return
        assert "error" not in case
        # Numbers with a fraction are Decimals, with all their digits.
        assert json.loads(json.dumps(found, default=float)) == case["result"]
