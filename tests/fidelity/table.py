"""What the journeys have shown, in words: a row for all that fared alike, a note for all that is not as it was."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from shared.amqp import sections
from shared.amqp.codec import decode_all
from shared.message.mapping import (
    ENCODING,
    EVENT_HUBS_PARTITION_KEY,
    EVENT_HUBS_SESSION_ID,
    SERVICE_BUS_PARTITION_KEY,
    SERVICE_BUS_SESSION_ID,
    TIME_TO_LIVE,
)
from tests.fidelity.journeys import AZURE, FIVE_HOPS, STOCK, WIRE, Journey, Observations
from tests.fidelity.parts import changes, is_same_value, parts
from tests.fidelity.specimens import SPECIMENS, Specimen

KEPT = "kept"
NOT_THERE = "-"
REFUSED = "**refused**"
_EMPTY_DATA = sections.data(b"")
_CREATION_TIME = "field 9"
# Where a time to live goes, and what session and key do to each other.
_LIFE = {"header 2", f"property {TIME_TO_LIVE}"}
_KEYS = {
    *("annotation x-opt-partition-key", "field 10"),
    *(f"property {name}" for name in (SERVICE_BUS_SESSION_ID, SERVICE_BUS_PARTITION_KEY)),
    *(f"property {name}" for name in (EVENT_HUBS_SESSION_ID, EVENT_HUBS_PARTITION_KEY)),
}
_LEFT_OUT = ("absolute-expiry-time", "x-opt-scheduled-enqueue-time", "x-opt-via-partition-key")

# Column by column: its title, and the journeys that must agree on what it says.
COLUMNS: dict[str, list[Journey]] = {
    "SB → SB": [Journey(WIRE, "SS")],
    "SB → EH": [Journey(WIRE, "SE")],
    "EH → SB": [Journey(WIRE, "ES")],
    "EH → EH": [Journey(WIRE, "EE")],
    "5 hops": [Journey(WIRE, kinds) for kinds in FIVE_HOPS],
    "Azure's host, 1 and 5 hops": [Journey(AZURE, kinds) for kinds in ("SS", "EE", *FIVE_HOPS)],
    "stock, from SB": [Journey(STOCK, "SS")],
    "stock, from EH": [Journey(STOCK, "EE")],
}

NOTES = {
    "service": "Refused or not delivered by the service that it is sent to: Service Bus takes no binary, list, map or "
    "array as a property and gives an id to what has none, Event Hubs keeps no header, neither keeps first-acquirer or "
    "the annotations of a delivery.",
    "aside": "As an application property `repl-sb-…` of the same type; back in its place where the event comes to "
    "Service Bus.",
    "key": "The session is the partition key on the other side; a `repl-sb-…` or `repl-eh-…` property says what was, "
    "and is gone after the way back.",
    "encoded": "As text, with `repl-encoding-NAME` beside it saying how; decoded on the way back.",
    "id": "An id that is the same at every redelivery.",
    "target": "Left out by Busway. The target computes `absolute-expiry-time` from the time to live, and the other two "
    "would act twice.",
    "host": "What Azure's host makes of it, before Busway sees it.",
    "created": "Azure's host sets `creation-time` anew wherever there is a time to live.",
    "refused": "The host cannot hand it over. From a hub it is tried again for ever and its partition waits; from a "
    "queue it ends in the source's dead-letter queue. Nothing is lost, nothing is sent.",
    "json": "The stock binding tells values as JSON does.",
    "stock": "The stock binding does not tell it, or joins it.",
}


class Cell(NamedTuple):
    """A word, and the name of the note that says why."""

    word: str
    note: str | None = None


class Row(NamedTuple):
    """What became of all specimens of one part that fared alike."""

    part: str
    names: tuple[str, ...]
    cells: tuple[Cell, ...]


def rows(observed: Observations) -> list[Row]:
    """Return the rows of the table; AssertionError where a change has no note, or journeys of a column disagree."""
    fared: dict[tuple[str, tuple[Cell, ...]], list[str]] = {}
    for key, specimen in SPECIMENS.items():
        cells = tuple(_agreed(column, journeys, key, observed) for column, journeys in COLUMNS.items())
        fared.setdefault((specimen.part, cells), []).append(specimen.name)
    found = [Row(part, tuple(names), cells) for (part, cells), names in fared.items()]
    order = list(dict.fromkeys(each.part for each in SPECIMENS.values()))
    return sorted(found, key=lambda row: order.index(row.part))


def _agreed(column: str, journeys: Iterable[Journey], key: str, observed: Observations) -> Cell:
    said = {cell(journey, key, observed) for journey in journeys}
    # What one kind of service does not deliver is told by the journeys from the other.
    told = {each for each in said if each.word != NOT_THERE} or said
    assert len(told) == 1, f"{column}: {SPECIMENS[key]}: {said}"
    return told.pop()


def cell(journey: Journey, key: str, observed: Observations) -> Cell:
    """Return what became of a specimen on a journey."""
    specimen = SPECIMENS[key]
    delivered = observed.delivered[journey.kinds[0]].get(key)
    if delivered is None:
        return Cell(NOT_THERE, "service")
    before = parts(delivered)
    if parts(specimen.encode(key)).keys() - before.keys():
        return Cell(NOT_THERE, "service")
    if key in observed.withheld[journey]:
        return Cell(REFUSED, "refused")
    found = changes(before, parts(observed.arrived[journey][key]))
    if journey.mode != WIRE:
        # The host writes values with other widths; Busway alone does not touch them.
        found = {place: each for place, each in found.items() if not is_same_value(place, *each)}
    return _told(specimen, journey.mode, found)


def _told(specimen: Specimen, mode: str, found: Mapping[str, tuple[bytes, bytes]]) -> Cell:
    beside = {place for place in found if place != specimen.place}
    if specimen.place not in found:
        return _told_beside(specimen, beside)
    before, after = found[specimen.place]
    if f"property {ENCODING}p" in beside:
        return Cell("text", "encoded")
    if not after and _is_mapped(beside):
        return Cell("property", "aside")
    assert beside <= {_CREATION_TIME, *_LIFE}, (specimen, mode, found)
    if specimen.name == "no message-id":
        return Cell("gets one", "id")
    if specimen.name in _LEFT_OUT:
        return Cell("dropped", "target")
    assert mode != WIRE, f"Busway changed {specimen}: {found}"
    word = _word(specimen, before, after)
    if mode == AZURE:
        return Cell(word, "created" if specimen.place == _CREATION_TIME else "host")
    return Cell(word, "json" if word.startswith("becomes") else "stock")


def _told_beside(specimen: Specimen, beside: set[str]) -> Cell:
    """Return what to say of a specimen whose own place is as it was."""
    if not beside:
        return Cell(KEPT)
    for places, note in ((_KEYS, "key"), (_LIFE, "aside"), ({_CREATION_TIME}, "created")):
        if beside <= places:
            return Cell(KEPT, note)
    raise AssertionError((specimen, beside))


def _is_mapped(places: Iterable[str]) -> bool:
    return any(place.startswith(("property repl-sb-", "property repl-eh-")) for place in places)


def _word(specimen: Specimen, before: bytes, after: bytes) -> str:
    if not after:
        return "dropped"
    if specimen.place == "body":
        if after == _EMPTY_DATA:
            return "an empty data section"
        (number, value), *others = sections.body_parts(after)
        if number == sections.DATA:
            return "joined"
        assert not others
        return f"becomes {value.kind}"
    old, new = decode_all(before), decode_all(after)
    return "set anew" if old.kind == new.kind else f"becomes {new.kind}"


def table(observed: Observations) -> str:
    """Return the table with its notes, as it stands in the README."""
    found = rows(observed)
    names = list(dict.fromkeys(each.note for row in found for each in row.cells if each.note is not None))
    lines = [" | ".join(("| part", "what is sent", *COLUMNS)) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    for part, group in groupby(found, key=lambda row: row.part):
        for row in group:
            cells = [f"{each.word} ({names.index(each.note) + 1})" if each.note else each.word for each in row.cells]
            lines.append(" | ".join((f"| {part}", ", ".join(row.names), *cells)) + " |")
    notes = [f"{number}. {NOTES[name]}" for number, name in enumerate(names, 1)]
    return "\n".join([*lines, "", *notes])
