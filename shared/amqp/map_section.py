"""Sections that are maps (annotations, application properties, footer): entries read and edited among raw bytes."""

import struct
from collections.abc import Callable, Iterator, Mapping

from shared.amqp.codec import decode, encode
from shared.amqp.scan import Entry, compound_content, extent_bytes, join_map, map_entries, walk_map
from shared.amqp.sections import descriptor
from shared.amqp.shapes import Part, Shapes
from shared.amqp.values import Malformed, Value, string

_SIZE_AND_COUNT = struct.Struct(">II")
# The position of the entries after descriptor, format code, size and count, the last two of four bytes each.
WIDE_CONTENT = 12


def entries(section: bytes) -> list[Entry]:
    """Return the entries of an encoded section, no entries for an absent section."""
    return map_entries(section, descriptor(section, 0)[1], len(section)) if section else []


def content(section: bytes) -> tuple[int, int, int]:
    """Return the number of values in an encoded section, keys included, and where they start and stop."""
    return compound_content(section, descriptor(section, 0)[1], len(section))


def walk(section: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the entries of an encoded section as `shared.amqp.scan.walk_map` does, none for an absent one."""
    return walk_map(section, descriptor(section, 0)[1], len(section)) if section else iter(())


class Names:
    """
    The positions of the entries of an encoded section, by key without regard to case; of equal keys, the first.

    The section is walked over once, and only up to the requested key; a section of a known shape is not walked over at
    all. Raises Malformed where the walk finds that the section is not a map.
    """

    def __init__(self, section: bytes) -> None:
        """Prepare; nothing is read yet."""
        self._section = section
        self._known = _NAMES.find(section)
        if self._known is None:
            self._folded = section.lower()
            self._walk = walk(section)
            self._found: dict[bytes, tuple[int, int]] = {}

    def find(self, key: str) -> tuple[int, int] | None:
        """Return where the entry whose key in lower case is *key* starts, and where its value does."""
        wanted = key.encode()
        if len(wanted) != len(key):
            return self._find_beyond_ascii(key)
        if self._known is not None:
            return self._known.get(wanted)
        found = self._found
        # No walk for a key whose bytes do not occur in the section.
        if wanted not in found and wanted in self._folded:
            # bytes.lower changes ASCII letters only, so that positions stay the same.
            folded = self._folded
            for start, key_start, value_start, _ in self._walk:
                each = folded[key_start:value_start]
                if each not in found:
                    found[each] = (start, value_start)
                    if each == wanted:
                        break
        return found.get(wanted)

    def _find_beyond_ascii(self, key: str) -> tuple[int, int] | None:
        for each, start, value_start, _ in entries(self._section):
            if each is not None and each.lower() == key:
                return start, value_start
        return None

    def spelling(self, key: str) -> str | None:
        """Return the key whose lower case is *key* in its original spelling."""
        found = self.find(key)
        return None if found is None else str(decode(self._section, found[0])[0].payload)


def _names_of(section: bytes) -> tuple[list[Part], Mapping[bytes, tuple[int, int]]] | None:
    """Return the entries of a section and their positions by their keys in lower case."""
    parts: list[Part] = []
    names: dict[bytes, tuple[int, int]] = {}
    try:
        for start, key_start, value_start, stop in walk(section):
            extent = extent_bytes(section[value_start])
            if extent is None or not key_start:
                return None
            parts.append((start, value_start + extent, stop))
            names.setdefault(section[key_start:value_start].lower(), (start, value_start))
    except Malformed:
        # The requested key may precede the malformed part.
        return None
    return parts, names


_NAMES = Shapes(_names_of)


def entry(section: bytes, name: str) -> Value | None:
    """Return the value of *name*, None if it is missing."""
    if name.encode() not in section:
        return None
    for key, _, value_start, stop in entries(section):
        if key == name:
            return decode(section, value_start, stop)[0]
    return None


def edited(
    section: bytes, prefix: bytes, changes: Mapping[str, Value | None], encoded_key: Callable[[str], Value]
) -> bytes:
    """
    Return the section with *changes*, in which None removes an entry; empty if no entry is left.

    Other entries keep their bytes and their position; new ones are appended, with keys from *encoded_key*.
    """
    pairs = []
    left = dict(changes)
    for key, start, value_start, stop in entries(section):
        if key is None or key not in changes:
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
