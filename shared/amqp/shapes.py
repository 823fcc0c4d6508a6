"""
Sections that look alike from message to message, cut into their parts without a walk.

The shape of a section is what says where its parts begin and end: format codes and lengths, and of a map the keys. It
is learned by walking over the first section that has it. The next ones are recognised by these bytes all at once: read
as one large number, of which a mask leaves nothing else. That takes a fraction of the time of a walk.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

# What is kept of shapes stays below 2 MB: twice a section's length for each.
_LENGTHS = 128
_SHAPES_OF_A_LENGTH = 4
_LONGEST = 2048

# Where a part of a section starts, up to where it belongs to the shape, and where it stops.
type Part = tuple[int, int, int]


class _Shape(NamedTuple):
    """Which bits of a section belong to its shape, what they are, and what cuts such a section into its parts."""

    mask: int
    bits: int
    cut: Callable[[bytes], tuple[bytes, ...]]


# Takes the place of a shape where a section has none, so that not every section of its length is looked into for one.
_NONE = _Shape(0, -1, lambda _: ())


class Shapes:
    """The shapes of one kind of section, learned as they come; so many of them, no more are learned."""

    def __init__(self, parts: Callable[[bytes], Sequence[Part] | None]) -> None:
        """
        Learn from *parts*, which walks over a section.

        Shape: the parts follow each other up to the section's end; where they are must be told by what stands before
               them and by the bytes said to belong to the shape. None for a section that is none of these.
        """
        self._parts = parts
        self._shapes: dict[int, list[_Shape]] = {}

    def cut(self, section: bytes) -> tuple[bytes, ...] | None:
        """Return the parts of *section*, None where it has to be walked over; raises what the walk raises."""
        shapes = self._shapes.get(len(section))
        if shapes is None:
            if len(self._shapes) == _LENGTHS or len(section) > _LONGEST:
                return None
            shapes = self._shapes[len(section)] = []
        number = int.from_bytes(section)
        for mask, bits, cut in shapes:
            if number & mask == bits:
                return cut(section)
        if len(shapes) == _SHAPES_OF_A_LENGTH:
            return None
        shape = _shape(section, self._parts(section))
        shapes.append(shape)
        return None if shape is _NONE else shape.cut(section)


def _shape(section: bytes, parts: Sequence[Part] | None) -> _Shape:
    if not parts:
        return _NONE
    first = parts[0][0]
    masks, formats = [b"\xff" * first], [f"{first}x"]
    for start, content, stop in parts:
        masks.append(b"\xff" * (content - start) + bytes(stop - content))
        formats.append(f"{stop - start}s")
    mask = int.from_bytes(b"".join(masks))
    return _Shape(mask, int.from_bytes(section) & mask, struct.Struct("".join(formats)).unpack)
