"""Sections that are maps (annotations, application properties, footer): entries read and edited among raw bytes."""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from shared.amqp.codec import comparable, decode, encode
from shared.amqp.scan import Entry, Positions, compound_content, extent_bytes, join_map, walk_map, with_keys
from shared.amqp.sections import descriptor
from shared.amqp.shapes import Part, Shapes
from shared.amqp.values import Malformed, Value, string
from shared.errors import MessageRejected

_SIZE_AND_COUNT = struct.Struct(">II")
WIDE_CONTENT = 12
"""The position of the entries after descriptor, format code, size and count, the last two of four bytes each."""


def entries(section: bytes) -> list[Entry]:
    """Return the entries of an encoded section, no entries for an absent section."""
    return with_keys(section, walk(section))


def content(section: bytes) -> tuple[int, int, int]:
    """Return the number of values in an encoded section, keys included, and where they start and stop."""
    return compound_content(section, descriptor(section, 0)[1], len(section))


def walk(section: bytes) -> Iterable[Positions]:
    """Return the positions of the entries of an encoded section as `shared.amqp.scan.walk_map`, none for no section."""
    if not section:
        return ()
    known = _KNOWN.find(section)
    return walk_map(section, descriptor(section, 0)[1], len(section)) if known is None else known.by_key.values()


def by_key(section: bytes, name: str) -> Mapping[object, Positions]:
    """
    Return the positions of the entries of the section *name* by the texts of their keys.

    Raises Malformed if two entries have the same key, or if the section is not a map: two readers would understand such
    a section differently. Strings and symbols with the same text are the same key.
    """
    if not section:
        return {}
    known = _KNOWN.find(section)
    if known is not None:
        return known.by_key
    found: dict[object, Positions] = {}
    for positions in walk(section):
        start, key_start, value_start, _ = positions
        key = section[key_start:value_start] if key_start else comparable(decode(section, start)[0])
        if key in found:
            raise Malformed(f"{name}: two entries have the same key, expected each key once")
        found[key] = positions
    return found


class _Known(NamedTuple):
    """The entries of a section whose shape is known."""

    by_key: Mapping[object, Positions]
    by_name: Mapping[bytes, Sequence[tuple[int, int]]]
    """Where each starts and its value does, by its key in lower case."""


def _shape(section: bytes) -> tuple[list[Part], _Known] | None:
    """Return the entries of a section, None if a key is not text, or is there twice without regard to case."""
    parts: list[Part] = []
    by_key: dict[object, Positions] = {}
    by_name: dict[bytes, Sequence[tuple[int, int]]] = {}
    for positions in walk_map(section, descriptor(section, 0)[1], len(section)):
        start, key_start, value_start, stop = positions
        extent, key = extent_bytes(section[value_start]), section[key_start:value_start]
        if extent is None or not key_start or key.lower() in by_name:
            return None
        parts.append((start, value_start + extent, stop))
        by_key[key] = positions
        by_name[key.lower()] = ((start, value_start),)
    return parts, _Known(by_key, by_name)


_KNOWN = Shapes(_shape)


class AmbiguousName(MessageRejected):
    """A name that a rule, signature or editor reads without regard to case, and that a message has in two spellings."""

    def __init__(self, name: str) -> None:
        """Name it as the reader does."""
        super().__init__("AmbiguousName", f"two properties are named {name} in different case, expected one")


class Names:
    """
    The positions of the entries of an encoded section, by key without regard to case.

    The section is walked over once, unless its shape is known. Raises Malformed for a section that is not a map.
    """

    def __init__(self, section: bytes) -> None:
        """Prepare; nothing is read yet."""
        self._section = section
        known = _KNOWN.find(section) if section else None
        self._found = None if known is None else known.by_name

    def find(self, key: str) -> tuple[int, int] | None:
        """
        Return where the entry whose key in lower case is *key* starts, and where its value does.

        Raises AmbiguousName if two entries have this key.
        """
        found = self._all(key)
        if len(found) > 1:
            raise AmbiguousName(key)
        return found[0] if found else None

    def spellings(self, key: str) -> list[str]:
        """Return the keys whose lower case is *key* in their original spelling, in the order of the entries."""
        return [str(decode(self._section, start)[0].payload) for start, _ in self._all(key)]

    def _all(self, key: str) -> Sequence[tuple[int, int]]:
        wanted = key.encode()
        if len(wanted) != len(key):
            # bytes.lower changes ASCII letters only.
            return [(start, at) for name, start, at, _ in entries(self._section) if name and name.lower() == key]
        if self._found is None:
            found: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
            for start, key_start, value_start, _ in walk(self._section):
                if key_start:
                    found[self._section[key_start:value_start].lower()].append((start, value_start))
            self._found = found
        return self._found.get(wanted, ())


def entry(section: bytes, name: str) -> Value | None:
    """Return the value of *name*, None if it is missing."""
    if name.encode() not in section:
        return None
    for key, _, value_start, stop in entries(section):
        if key == name:
            return decode(section, value_start, stop)[0]
    return None


def edited(
    section: bytes,
    prefix: bytes,
    changes: Mapping[str, Value | None],
    encoded_key: Callable[[str], Value],
    *,
    in_any_case: bool = False,
) -> bytes:
    """
    Return the section with *changes*, in which None removes an entry; empty if no entry is left.

    Other entries keep their bytes and their position; new ones are appended, with keys from *encoded_key*. With
    *in_any_case*, other spellings of a changed name are removed.
    """
    pairs = []
    left = dict(changes)
    replaced = frozenset(map(str.lower, changes)) if in_any_case else frozenset()
    for key, start, value_start, stop in entries(section):
        if key is None or key not in changes:
            if not replaced or key is None or key.lower() not in replaced:
                pairs.append(section[start:stop])
        elif key in left and (value := left.pop(key)) is not None:
            pairs.append(section[start:value_start] + encode(value))
    pairs += [encode(encoded_key(name)) + encode(value) for name, value in left.items() if value is not None]
    return join_map(prefix, pairs, len(pairs)) if pairs else b""


def renamed(section: bytes, prefix: bytes, name_of: Callable[[str], str | None]) -> bytes:
    """
    Return the section with its textual keys as *name_of* returns them, None for an entry to remove.

    Values keep their bytes and entries their positions; empty if no entry is left.
    """
    pairs = []
    is_changed = False
    for key, start, value_start, stop in entries(section):
        name = key if key is None else name_of(key)
        if name == key:
            pairs.append(section[start:stop])
            continue
        is_changed = True
        if name is not None:
            pairs.append(encode(string(name)) + section[value_start:stop])
    if not is_changed:
        return section
    return join_map(prefix, pairs, len(pairs)) if pairs else b""


def appended(section: bytes, prefix: bytes, pairs: bytes, count: int) -> bytes:
    """Return the section with *count* encoded pairs appended, without reading its entries."""
    if not section:
        return join_map(prefix, (pairs,), count)
    values, start, stop = content(section)
    if values % 2:
        raise Malformed(f"map section: {values} values, expected pairs")
    return b"%b\xd1%b%b%b" % (
        prefix,
        _SIZE_AND_COUNT.pack(stop - start + len(pairs) + 4, values + 2 * count),
        section[start:stop],
        pairs,
    )
