# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The encoding of one .NET object as Azure's host writes it.

Lists and maps have the short form up to 254 bytes and 254 values. Arrays always have sizes of 32 bits, and an array of
arrays becomes an array of lists.

Source: the encodings of Azure/azure-amqp, Microsoft.Azure.Amqp/Amqp/Encoding, tag v2.7.1.
"""

from collections.abc import Iterable

from host.dotnet_decoder import READERS
from host.dotnet_values import Array, BinaryKey, CannotBind, Described, List, Map, Object, ObjectArray

_SHORT = 0xFF
_SURROGATES = range(0xD800, 0xE000)


def encode(value: Object) -> bytes:
    """Return the bytes that .NET writes; CannotBind where it fails."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, List):
        return list_of([encode(item) for item in value.items])
    if isinstance(value, Map):
        return map_of(b"".join(_parts(value)), 2 * len(value.entries))
    if isinstance(value, Described):
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    if isinstance(value, BinaryKey):
        return value.content
    return b"\xf0" + _array(value)


def list_of(items: list[bytes]) -> bytes:
    """Return a list of encoded items."""
    return _compound(0xC0, b"".join(items), len(items)) if items else b"\x45"


def map_of(content: bytes, count: int) -> bytes:
    """Return a map of joined keys and values; *count* is the number of both."""
    return _compound(0xC1, content, count)


def items_of(array: Array | ObjectArray) -> list[Object]:
    """Return the elements of an array."""
    if isinstance(array, ObjectArray):
        return array.items
    if array.code == 0x56:
        return [b"\x41" if byte else b"\x42" for byte in array.content]
    if array.code == 0x73:
        _check_chars(array.content)
    items: list[Object] = []
    position = 0
    for _ in range(array.count):
        width = len(array.content) // array.count
        if array.code >= 0xB0:
            width = 4 + int.from_bytes(array.content[position : position + 4])
        encoded = bytes((array.code,)) + array.content[position : position + width]
        items.append(READERS[array.code](encoded, 1, len(encoded))[0])
        position += width
    return items


def _compound(small: int, content: bytes, count: int) -> bytes:
    if len(content) < _SHORT and count < _SHORT:
        return b"%c%c%c%b" % (small, len(content) + 1, count, content)
    return b"%c%b" % (small + 0x10, _wide(content, count))


def _wide(content: bytes, count: int) -> bytes:
    return (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


def _parts(value: Map) -> Iterable[bytes]:
    for key, item in value.entries.items():
        yield encode(key)
        yield encode(item)


def _array(array: Array | ObjectArray) -> bytes:
    """Return an array without its format code."""
    if isinstance(array, ObjectArray):
        if array.code == 0x00 and array.items:
            raise CannotBind("an array of described values")
        content, count = b"".join([_object_element(item) for item in array.items]), len(array.items)
    else:
        if array.code == 0x73:
            _check_chars(array.content)
        content, count = array.content, array.count
    return (len(content) + 5).to_bytes(4) + count.to_bytes(4) + bytes((array.code,)) + content


def _object_element(item: Object) -> bytes:
    """Return an element of an array of lists or maps, without its format code and always with 32 bits."""
    if isinstance(item, Map):
        return _wide(b"".join(_parts(item)), 2 * len(item.entries))
    items = item.items if isinstance(item, List) else items_of(item)  # type: ignore[arg-type] # lists, maps or arrays
    return _wide(b"".join([encode(item) for item in items]), len(items))


def _check_chars(content: bytes) -> None:
    if any(int.from_bytes(content[at : at + 4]) in _SURROGATES for at in range(0, len(content), 4)):
        raise CannotBind("a char above U+FFFF in an array, of which .NET kept half")
