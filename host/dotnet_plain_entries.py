# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""The entries of map sections that the conversion by Azure's host does not change, copied without decoding."""

from host.dotnet_decoder import READERS

# The width of a value that does not change; -1 for one that only its reader changes, 0 for the others.
_PLAIN_WIDTHS = [
    *(0 for _ in range(0x40)),
    *(
        {0x40: 1, 0x41: 1, 0x42: 1, 0x43: 1, 0x44: 1, 0x50: 2, 0x51: 2, 0x54: 2, 0x55: 2, 0x60: 3, 0x61: 3}.get(code)
        or {0x72: 5, 0x82: 9, 0x98: 17}.get(code)
        or (-1 if code in {0x52, 0x53, 0x56, 0x70, 0x71, 0x73, 0x80, 0x81, 0x83, 0x94, 0xA1, 0xB1} else 0)
        for code in range(0x40, 0x100)
    ),
]


def plain_entries(payload: bytes, position: int, stop: int, count: int, key_code: int) -> dict[bytes, bytes] | None:
    """
    Return the entries of a map section if `properties_of` would not change them, else None.

    In nearly all messages the keys are text of one type and the values are simple; for them this is twice as fast.
    """
    entries: dict[bytes, bytes] = {}
    long_code = key_code + 0x10
    for _ in range(0, count, 2):
        text = position + 2
        if text > stop:
            return None
        code = payload[position]
        if code == key_code:
            start = text + payload[position + 1]
            key = payload[position:start]
        elif code == long_code:
            text = position + 5
            start = text + int.from_bytes(payload[position + 1 : text])
            key = b"%c%c%b" % (key_code, start - text, payload[text:start]) if start - text <= 0xFF else b""
        else:
            return None
        if start >= stop or not key or not payload[text:start].isascii():
            return None
        code = payload[start]
        width = _PLAIN_WIDTHS[code]
        if width > 0:
            position = start + width
            entries[key] = payload[start:position]
        elif width < 0:
            entries[key], position = READERS[code](payload, start + 1, stop)  # type: ignore[assignment] # it is bytes
        else:
            return None
    return entries if position <= stop else None
