"""The row by which a journal says what it is."""

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

    Raises JournalMismatch where it is another kind than *settings* expect.
    """
    found = next((row for row in rows if row.key == KEY), None)
    own = settings.agreed()
    if found is None:
        return Write(KEY, {"Open": 0, "Schema": SCHEMA, **own}, expected=None)
    there = found.properties
    if there.get("Schema") != SCHEMA:
        raise JournalMismatch(
            f"{name}: the journal has schema {there.get('Schema')}, expected {SCHEMA}; finish it with the version that"
            " began it, or begin another table"
        )
    # A person who looks into a journal need not say whose it is; two consumers may not take it for each one's own.
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
