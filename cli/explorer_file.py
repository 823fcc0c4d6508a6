"""
Files in which ServiceBusExplorer saves messages: one JSON object over several lines, or a list of them.

A message there has lost the types of its properties and the form of its body, and nothing says which entity had it. So
`busway try` can read it, and nothing sends it again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_MARKS = frozenset(["sequencenumber", "enqueuedtimeutc", "messageid"])
_TEXTS = {
    "messageid": "message_id",
    "correlationid": "correlation_id",
    "sessionid": "session_id",
    "label": "subject",
    "subject": "subject",
    "contenttype": "content_type",
    "to": "to",
    "replyto": "reply_to",
    "partitionkey": "partition_key",
}
_TIME_TO_LIVE = re.compile(r"(?:(\d+)\.)?(\d\d):(\d\d):(\d\d)(?:\.(\d{1,7}))?", re.ASCII)
_FRACTION = re.compile(r"\.(\d{6})\d*")
_LONGEST_MILLISECONDS = 2**32 - 1
_SCALARS = (str, int, float, bool, type(None))


def explorer_messages(file: Path) -> Sequence[Mapping[str, Any]] | None:
    """Return the messages of a file of ServiceBusExplorer by their keys in lower case, None for any other file."""
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return None
    found = content if isinstance(content, list) else [content]
    messages = [{key.lower(): value for key, value in each.items()} for each in found if isinstance(each, dict)]
    is_explorer = messages and len(messages) == len(found) and all(message.keys() >= _MARKS for message in messages)
    return messages if is_explorer else None


def as_line(message: Mapping[str, Any]) -> dict[str, object]:
    """Return a message in the form of a file of `busway try`; raises ValueError for a value that it cannot have."""
    line: dict[str, object] = {}
    for key, name in _TEXTS.items():
        value = message.get(key)
        if value not in (None, ""):
            line[name] = value
    if message.get("body") is not None:
        line["body"] = message["body"]
    number = message["sequencenumber"]
    if isinstance(number, int) and number > 0:
        line["sequence_number"] = number
    # A time of .NET has seven digits of a second.
    moment = datetime.fromisoformat(_FRACTION.sub(r".\1", str(message["enqueuedtimeutc"])))
    enqueued = round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if enqueued > 0:
        line["enqueued_time"] = enqueued
    life = _life(message.get("timetolive"))
    if life is not None:
        line["time_to_live"] = life
    properties = message.get("properties", message.get("applicationproperties")) or {}
    if not isinstance(properties, dict) or not all(isinstance(each, _SCALARS) for each in properties.values()):
        raise ValueError("properties: expected an object with texts, numbers, true, false and null")
    return line | {"properties": properties}


def _life(text: object) -> int | None:
    """Return a TimeSpan in milliseconds, None for one that means forever."""
    match = _TIME_TO_LIVE.fullmatch(str(text))
    if match is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups()[:4])
    milliseconds = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    milliseconds += int((match[5] or "0").ljust(7, "0")) // 10_000
    return milliseconds if milliseconds < _LONGEST_MILLISECONDS else None
