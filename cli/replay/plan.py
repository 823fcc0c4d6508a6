"""What a replay sends, fixed when it starts, in a file: an interrupted one continues with the same."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cli.replay.positions import Position
from shared.errors import ConfigError, Problem
from shared.message.replay import replay_name
from shared.private_file import open_private

_FOLDER = Path("build/replay")


@dataclass
class Plan:
    """A replay: its task, its id, and what it selects."""

    task: str
    identity: str
    first: Position
    last: Position
    where: str | None = None
    partitions: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    journal: str | None = None
    consumer_group: str | None = None
    new_ids: bool = False
    is_finished: bool = False

    @property
    def name(self) -> str:
        """The name of the replay in the journal and the ledger."""
        return replay_name(self.task, self.identity)

    @property
    def ledger(self) -> Path:
        """The file with the ledger."""
        return _FOLDER / self.task / f"{self.identity}.jsonl"

    @property
    def file(self) -> Path:
        """The file with the plan."""
        return _FOLDER / self.task / f"{self.identity}.json"

    def write(self) -> None:
        """Write the plan to its file."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.file.with_name(self.file.name + ".part")
        with open_private(beside, "w") as file:
            file.write(json.dumps(asdict(self)))
        beside.replace(self.file)


def unfinished(task: str) -> Plan | None:
    """Return the latest replay of a task that has not finished, if there is one; raises ConfigError."""
    for path in sorted((_FOLDER / task).glob("*.json"), reverse=True):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            plan = Plan(**{**content, "first": Position(*content["first"]), "last": Position(*content["last"])})
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise ConfigError([Problem(str(path), "is not the plan of a replay", "delete it")]) from error
        if not plan.is_finished:
            return plan
    return None
