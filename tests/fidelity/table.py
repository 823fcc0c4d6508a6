"""The results of the journeys as a table: one row for specimens with the same results, a note for each change."""

from collections.abc import Iterable, Mapping, Sequence
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
from tests.fidelity.journeys import AZURE, BODY, ENVELOPE, FIVE_HOPS, GRID, STORAGE, WIRE, Journey, Observations
from tests.fidelity.parts import changes, is_same_value, parts
from tests.fidelity.specimens import SPECIMENS, Specimen

KEPT = "kept"
NOT_THERE = "-"
REFUSED = "**refused**"
_EMPTY_DATA = sections.data(b"")
_CREATION_TIME = "field 9"
# The places of the time to live, and those where session and partition key are converted.
_LIFE = {"header 2", f"property {TIME_TO_LIVE}"}
_KEYS = {
    *("annotation x-opt-partition-key", "field 10"),
    *(f"property {name}" for name in (SERVICE_BUS_SESSION_ID, SERVICE_BUS_PARTITION_KEY)),
    *(f"property {name}" for name in (EVENT_HUBS_SESSION_ID, EVENT_HUBS_PARTITION_KEY)),
}
_LEFT_OUT = ("absolute-expiry-time", "x-opt-scheduled-enqueue-time", "x-opt-via-partition-key")

_HOST = "Azure's host, 1 and 5 hops"
# The title of each column, and the journeys whose results must be equal.
COLUMNS: dict[str, list[Journey]] = {
    "SB → SB": [Journey(WIRE, "SS")],
    "SB → EH": [Journey(WIRE, "SE")],
    "EH → SB": [Journey(WIRE, "ES")],
    "EH → EH": [Journey(WIRE, "EE")],
    "5 hops": [Journey(WIRE, kinds) for kinds in FIVE_HOPS],
    _HOST: [Journey(AZURE, kinds) for kinds in ("SS", "EE", *FIVE_HOPS)],
    "in envelopes": [Journey(ENVELOPE, "SS"), Journey(STORAGE, "SS"), Journey(GRID, "SS")],
}
_BODY_ONLY = Journey(BODY, "SS")

NOTES = {
    "service": "Refused or not delivered by the service that it is sent to: Service Bus accepts no binary, list, map"
    " or array as a property and assigns missing message ids; Event Hubs keeps no header; neither keeps "
    "first-acquirer.",
    "aside": "As an application property `repl-sb-…` of the same type; restored when the event returns to Service Bus.",
    "key": "The session id becomes the partition key on the other side; a `repl-sb-…` or `repl-eh-…` property "
    "holds the original until the way back.",
    "encoded": "As text, with the encoding in the property `repl-encoding-NAME`; decoded on the way back.",
    "id": "Busway assigns an id that is the same at every redelivery.",
    "target": "Left out by Busway. The target computes `absolute-expiry-time` from the time to live, unless that is "
    "above 49.7 days: then it is kept. The other two would take effect twice.",
    "hop": "Left out: delivery annotations are for one hop (AMQP 1.0, part 3, 3.2.2). A lock token is among them.",
    "host": "Azure's host changes it before Busway receives the message.",
    "created": "Azure's host replaces `creation-time` if there is a time to live.",
    "refused": "The host cannot read it or pass it to a function "
    "([hub-sources.md](hub-sources.md#poison-for-the-host)). An event is retried forever and its partition "
    "waits; a message ends in the source's dead-letter queue, and what was received with it is delivered later. "
    "Nothing is lost, nothing is sent.",
}


class Cell(NamedTuple):
    """A result in one word, and the name of the note that explains it."""

    word: str
    note: str | None = None


class Row(NamedTuple):
    """One row: all specimens of one part with the same results."""

    part: str
    names: tuple[str, ...]
    cells: tuple[Cell, ...]


def rows(observed: Observations) -> list[Row]:
    """Return the rows of the table; raises AssertionError if a change has no note or journeys of a column disagree."""
    results: dict[tuple[str, tuple[Cell, ...]], list[str]] = {}
    for key, specimen in SPECIMENS.items():
        cells = tuple(_common(column, journeys, key, observed) for column, journeys in COLUMNS.items())
        results.setdefault((specimen.part, cells), []).append(specimen.name)
    found = [Row(part, tuple(names), cells) for (part, cells), names in results.items()]
    order = list(dict.fromkeys(specimen.part for specimen in SPECIMENS.values()))
    return sorted(found, key=lambda row: order.index(row.part))


def _common(column: str, journeys: Iterable[Journey], key: str, observed: Observations) -> Cell:
    results = {cell(journey, key, observed) for journey in journeys}
    # A part that one service does not deliver is observed on the journeys from the other.
    delivered = {result for result in results if result.word != NOT_THERE} or results
    assert len(delivered) == 1, f"{column}: {SPECIMENS[key]}: {results}"
    return delivered.pop()


def cell(journey: Journey, key: str, observed: Observations) -> Cell:
    """Return the result of a specimen on a journey."""
    specimen = SPECIMENS[key]
    delivered = observed.delivered[journey.kinds[0]].get(key)
    if delivered is None:
        return Cell(NOT_THERE, "service")
    before = parts(delivered)
    if parts(specimen.encode(key)).keys() - before.keys():
        return Cell(NOT_THERE, "service")
    if key in observed.withheld[journey]:
        return Cell("rejected", "text") if journey.mode == BODY else Cell(REFUSED, "refused")
    found = changes(before, parts(observed.arrived[journey][key]))
    if journey.mode == BODY:
        return _result_of_body(specimen, found)
    if journey.mode == AZURE:
        # The host writes values with other widths; Busway alone does not change them.
        found = {place: each for place, each in found.items() if not is_same_value(place, *each)}
    return _result(specimen, journey.mode, found)


def _result(specimen: Specimen, mode: str, found: Mapping[str, tuple[bytes, bytes]]) -> Cell:
    beside = {place for place in found if place != specimen.place}
    if specimen.place not in found:
        return _result_elsewhere(specimen, beside)
    before, after = found[specimen.place]
    if f"property {ENCODING}p" in beside:
        return Cell("text", "encoded")
    if not after and _is_mapped(beside):
        return Cell("property", "aside")
    assert beside <= {_CREATION_TIME, *_LIFE}, (specimen, mode, found)
    if specimen.name == "no message-id":
        return Cell("gets one", "id")
    if specimen.part == "delivery annotation":
        return Cell("dropped", "hop")
    if specimen.name in _LEFT_OUT:
        return Cell("dropped", "target")
    assert mode == AZURE, f"Busway changed {specimen}: {found}"
    return Cell(_word(specimen, before, after), "created" if specimen.place == _CREATION_TIME else "host")


def _result_of_body(specimen: Specimen, found: Mapping[str, tuple[bytes, bytes]]) -> Cell:
    """Return the result of a specimen of which only the body was sent."""
    if specimen.place not in found:
        return Cell(KEPT)
    before, after = found[specimen.place]
    return Cell(
        _word(specimen, before, after) if specimen.place == "body" else "replaced" if after else "dropped", "body"
    )


def _result_elsewhere(specimen: Specimen, beside: set[str]) -> Cell:
    """Return the result of a specimen whose own place is unchanged."""
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
        if value.kind == "timestamp":
            return "1 ms earlier"
        return f"becomes {value.kind}"
    old, new = decode_all(before), decode_all(after)
    if old.kind == "timestamp" == new.kind and specimen.place != _CREATION_TIME:
        return "1 ms earlier"
    return "replaced" if old.kind == new.kind else f"becomes {new.kind}"


def table(observed: Observations) -> str:
    """Return the table of what is not kept everywhere, with its notes, as docs/fidelity.md shows it."""
    found = [row for row in rows(observed) if any(each != Cell(KEPT) for each in row.cells)]
    names = list(dict.fromkeys(each.note for row in found for each in row.cells if each.note is not None))
    by_host = [row for row in found if all(each == Cell(KEPT) for each in _without_host(row.cells))]
    elsewhere = [row for row in found if row not in by_host]
    lines = [" | ".join(("| part", "what is sent", *COLUMNS)) + " |", "|---" * (2 + len(COLUMNS)) + "|"]
    for row in elsewhere:
        cells = (_shown(each, names) for each in row.cells)
        lines.append(" | ".join((f"| {row.part}", ", ".join(row.names), *cells)) + " |")
    host = [*COLUMNS].index(_HOST)
    changed = [f"- {row.part}, {', '.join(row.names)}: {_shown(row.cells[host], names)}" for row in by_host]
    notes = [f"{number}. {NOTES[name]}" for number, name in enumerate(names, 1)]
    kept = [specimen.name for key, specimen in SPECIMENS.items() if cell(_BODY_ONLY, key, observed) == Cell(KEPT)]
    body = f"A route with `via: binding` and `body_only` keeps {', '.join(kept)}, and nothing else."
    return "\n".join(
        [
            "What is not in a table, and where a cell is empty, is kept.",
            *("", *lines, "", "Only Azure's host changes:", "", *changed, "", *notes, "", body),
        ]
    )


def _without_host(cells: Sequence[Cell]) -> list[Cell]:
    return [each for column, each in zip(COLUMNS, cells, strict=True) if column != _HOST]


def _shown(result: Cell, names: list[str]) -> str:
    if result == Cell(KEPT):
        return ""
    return f"{result.word} ({names.index(result.note) + 1})" if result.note else result.word
