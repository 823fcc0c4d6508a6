"""The row that identifies a journal: its schema, its application and its settings."""

from collections.abc import Sequence

from busway_clients.sessions.errors import JournalMismatch
from busway_clients.sessions.leases import SCHEMA
from busway_clients.sessions.rows import Row, Write
from busway_clients.sessions.settings import APPLICATION, Settings

PARTITION = "journal"
KEY = "schema"


def opening(rows: Sequence[Row], settings: Settings, name: str) -> Write | None:
    """
    Return what must be written to open a journal, None if it exists and is complete.

    Raises JournalMismatch if the journal differs from *settings*.
    """
    found = next((row for row in rows if row.key == KEY), None)
    own = settings.agreed()
    if found is None:
        return Write(KEY, {"Open": 0, "Schema": SCHEMA, **own}, expected=None)
    there = found.properties
    if there.get("Schema") != SCHEMA:
        raise JournalMismatch(
            f"{name}: the journal has schema {there.get('Schema')}, expected {SCHEMA}; finish it with the version that"
            " created it, or use another table"
        )
    # An operator may omit the application to inspect a journal; two applications must not share one.
    unsaid = [APPLICATION] if "" in (own[APPLICATION], there.get(APPLICATION)) else []
    problems = [
        f"{key} is {there.get(key)!r} there and {value!r} here"
        for key, value in own.items()
        if key not in unsaid and there.get(key) != value
    ]
    if problems:
        raise JournalMismatch(f"{name}: {'; '.join(problems)}; expected the same at all sites of a journal")
    if unsaid and own[APPLICATION]:
        return Write(KEY, {**there, APPLICATION: own[APPLICATION]}, expected=found.version)
    return None
