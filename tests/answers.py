"""What Microsoft's own code made of messages; tests/golden/microsoft_answers.md has the provenance."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("golden") / "microsoft_answers.jsonl.gz"


class Answer(NamedTuple):
    """One message, and the content of ModelBindingData or else the stage at which .NET fails."""

    name: str
    service: str
    wire: bytes
    content: bytes | None
    stage: str | None
    clock: tuple[int, int]

    @property
    def delivery_count_offset(self) -> int:
        """What the host adds to the delivery count."""
        return 1 if self.service == "sb" else 0


def answers() -> Iterator[Answer]:
    """Yield all of them."""
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            content = base64.b64decode(row["content"]) if "content" in row else None
            clock = row.get("t0", 0), row.get("t1", 0)
            yield Answer(row["id"], row["service"], base64.b64decode(row["wire"]), content, row.get("stage"), clock)
