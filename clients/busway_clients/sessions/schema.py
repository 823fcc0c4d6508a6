"""The row by which a journal says what it is."""

from collections.abc import Sequence

from busway_clients.sessions.errors import JournalMismatch
from busway_clients.sessions.leases import SCHEMA
from busway_clients.sessions.rows import Row, Write
from busway_clients.sessions.settings import Settings

PARTITION = "journal"
KEY = "schema"


def schema_row(settings: Settings) -> Write:
    """Return the row that whoever opens a new journal first inserts."""
    return Write(KEY, {"Open": 0, "Schema": SCHEMA, **settings.agreed()}, expected=None)


def check_schema(rows: Sequence[Row], settings: Settings, name: str) -> bool:
    """Whether the journal has begun already; raises JournalMismatch where it is another kind than *settings* expect."""
    found = next((row.properties for row in rows if row.key == KEY), None)
    if found is None:
        return False
    if found.get("Schema") != SCHEMA:
        raise JournalMismatch(
            f"{name}: the journal has schema {found.get('Schema')}, expected {SCHEMA}; finish it with the version that"
            " began it, or begin another table"
        )
    problems = [
        f"{key} is {found.get(key)!r} there and {value!r} here"
        for key, value in settings.agreed().items()
        if found.get(key) != value
    ]
    if problems:
        raise JournalMismatch(f"{name}: {'; '.join(problems)}; expected the same at all sites of a journal")
    return True
