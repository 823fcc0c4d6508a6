"""Sections that are maps (annotations, application properties, footer): entries read and edited among raw bytes."""

from collections.abc import Callable, Mapping

from shared.amqp.codec import decode, encode
from shared.amqp.scan import Entry, compound_content, join_map, map_entries
from shared.amqp.sections import descriptor
from shared.amqp.values import Malformed, Value


def entries(section: bytes) -> list[Entry]:
    """Return the entries of an encoded section, none of an absent one."""
    return map_entries(section, descriptor(section, 0)[1], len(section)) if section else []


def entry(section: bytes, name: str) -> Value | None:
    """Return the value under *name*, None when there is none."""
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
    Return the section with *changes*, in which None removes an entry; empty when no entry is left.

    Entries that are not named keep their bytes and their place; new ones come last, with keys made by *encoded_key*.
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


def appended(section: bytes, prefix: bytes, pairs: bytes, count: int) -> bytes:
    """Return the section with *count* encoded pairs behind its entries, which are not looked at."""
    if not section:
        return join_map(prefix, (pairs,), count)
    values, start, stop = compound_content(section, descriptor(section, 0)[1], len(section))
    if values % 2:
        raise Malformed(f"map section: {values} values, expected pairs")
    return join_map(prefix, (section[start:stop], pairs), values // 2 + count)
