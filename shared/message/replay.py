"""
The mark of a message that `busway replay` sends again.

Its value is TASK~ID/KEY#PROOF: the task, the replay, the message at its source, and what only the replay can write. In
the journal TASK~ID is a task of its own, so that a copy of a replay never counts as one of the original.
"""

import re

from shared.amqp.values import Malformed
from shared.message.message import Message

REPLAY = "repl-replay"
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,126})~[0-9A-Za-z]{1,40}")


def replay_name(task: str, identity: str) -> str:
    """Return the name of a replay in the journal."""
    return f"{task}~{identity}"


def replay_of(message: Message, task: str) -> str | None:
    """Return the name of the replay of *task* that sent *message*, None if none did."""
    if REPLAY.encode() not in message.sections.application_properties:
        return None
    try:
        value = message.application_property(REPLAY)
    except Malformed:
        return None
    if value is None or not isinstance(value.payload, str):
        return None
    match = _NAME.fullmatch(value.payload.partition("/")[0])
    return match[0] if match is not None and match[1] == task else None
