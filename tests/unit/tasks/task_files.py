"""A valid task file and the connections that it uses, and folders of such files."""

from pathlib import Path

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST, site: e}
hub-west: {kind: event-hubs, setting: HUB_WEST}
"""

TASK = """\
task: copy
source: {connection: west, queue: orders}
routes:
  - target: {connection: east, queue: orders}
"""

REJECTS = "rejects: {connection: west, queue: rejected}\n"


def written(folder: Path, tasks: str, connections: str = CONNECTIONS, journal: str = "") -> Path:
    """Write a configuration into *folder*, with all tasks in one file."""
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    for name, text in (("connections", connections), ("tasks/all", tasks), ("journal", journal)):
        if text:
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder
