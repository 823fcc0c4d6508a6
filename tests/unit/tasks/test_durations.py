"""Durations in configuration files, as people write them."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from shared.durations import written
from shared.tasks.models import TaskFile
from shared.tasks.options import Limits


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("80ms", 0.08),
        ("PT0.08S", 0.08),
        ("90s", 90),
        ("5m", 300),
        ("5 m", 300),
        ("1.5h", 5400),
        ("2D", 172_800),
        ("1w", 604_800),
        ("P1DT2H3M4.5S", 93_784.5),
        ("pt5m", 300),
    ],
)
def test_a_duration_is_read_in_both_forms(text: str, seconds: float) -> None:
    assert written(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 minutes", "P", "PT", "P1M", "-5m", "\u0665m", "5m5s", "PT5", "1e3s"])
def test_other_text_is_no_duration(text: str) -> None:
    assert written(text) is None


@pytest.mark.parametrize(("text", "seconds"), [("20s", 20), ("PT20S", 20), ("15m", 900)])
def test_limits_take_both_forms(text: str, seconds: int) -> None:
    assert Limits.model_validate({"hold": text}).hold == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["0s", "500h", "99999999w", "P999999999D", "soon"])
def test_limits_hold_for_both_forms(text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({"hold": text})
    assert caught.value.error_count() == 1


def test_a_bare_time_to_live_is_answered_with_what_was_meant() -> None:
    minimal = {"task": "t", "source": {"connection": "w", "queue": "q"}, "routes": []}
    with pytest.raises(ValidationError, match=r"expected 'keep', 'remaining' or, .* \{stamp: 5m\}"):
        TaskFile.model_validate({**minimal, "ttl": "5m"})
