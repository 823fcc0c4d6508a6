"""A secret is never printed, whatever its content."""

import asyncio
import logging
import traceback
from functools import partial
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.access.secrets import SettingSecrets, setting_of
from shared.assembly.outputs import output_with_secret
from shared.ends import registry
from shared.ends.kind import OutputPlace
from shared.ends.renewed import RenewedOutput
from shared.protocols import Outgoing, Secret

# With an end that no text has by chance: Hypothesis also tries words of the code.
hidden = (
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=40)
    .filter(lambda text: text.strip() == text)
    .map("{}~5417hidden".format)
)
# Values that reach the parser of connection strings and are refused there or by Busway.
unusable = st.sampled_from(
    [
        "{}",
        "Endpoint={};SharedAccessKey=",
        "Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey={};EntityPath=q",
        "{};=",
    ]
)


@given(hidden)
def test_secret_is_not_in_its_own_text(value: Any) -> None:
    secret = Secret("name", "1", value)
    assert value not in f"{secret!r} {secret} {[secret]}"
    assert secret.reveal() == value


@pytest.mark.parametrize("kind", ["service-bus", "event-hubs"])
@given(hidden, unusable)
def test_secret_is_in_no_error_and_no_log_line(kind: str, value: Any, shape: Any) -> None:
    async def send() -> Any:
        secrets = SettingSecrets({setting_of("east-key"): shape.format(value)})
        output = RenewedOutput(
            "east",
            "east-key",
            secrets,
            partial(output_with_secret, registry.kind(kind), OutputPlace("east", "east-key", {})),
        )
        return await output.send("copies", [Outgoing(b"", None, None, None)], timeout_seconds=1)

    lines = StringIO()
    handler = logging.StreamHandler(lines)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        (answer,) = asyncio.run(send())
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert answer is not None
    text = "".join(traceback.format_exception(answer)) + repr(answer) + lines.getvalue()
    assert value not in text
