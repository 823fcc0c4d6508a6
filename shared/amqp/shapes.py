"""
Sections that look alike from message to message, and what a walk over the first of them has found out.

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
type Cut = Callable[[bytes], tuple[bytes, ...]]


class _Shape[Found](NamedTuple):
    """Which bits of a section belong to its shape, what they are, and what was found out of it; None for no shape."""

    mask: int
    bits: int
    found: Found | None


class Shapes[Found]:
    """The shapes of one kind of section, learned as they come; so many of them, no more are learned."""

    def __init__(self, walk: Callable[[bytes], tuple[Sequence[Part], Found] | None]) -> None:
        """
        Learn from *walk*, which looks at a section and returns its parts and what else it has found out.

        Shape: the parts follow each other up to the section's end. What is found out must follow from the section's
               length, what stands before the first part, and the bytes that belong to the shape. None for a section
               that has to be walked over each time.
        """
        self._walk = walk
        self._shapes: dict[int, list[_Shape[Found]]] = {}

    def find(self, section: bytes) -> Found | None:
        """Return what the walk has found out of a section like this; raises what the walk raises."""
        shapes = self._shapes.get(len(section))
        if shapes is None:
            if len(self._shapes) == _LENGTHS or len(section) > _LONGEST:
                return None
            shapes = self._shapes[len(section)] = []
        number = int.from_bytes(section)
        for mask, bits, found in shapes:
            if number & mask == bits:
                return found
        if len(shapes) == _SHAPES_OF_A_LENGTH:
            return None
        walked = self._walk(section)
        if walked is not None and walked[0] and walked[0][-1][2] == len(section):
            mask, learned = _mask(walked[0]), walked[1]
            shapes.append(_Shape(mask, number & mask, learned))
            return learned
        # What has no shape takes a place too, so that not every section of this length is looked into for one.
        shapes.append(_Shape(0, -1, None))
        return None


def cut_into(parts: Sequence[Part]) -> Cut:
    """Return what cuts a section into *parts*."""
    first = parts[0][0] if parts else 0
    return struct.Struct("".join([f"{first}x", *(f"{stop - start}s" for start, _, stop in parts)])).unpack


def _mask(parts: Sequence[Part]) -> int:
    masks = [b"\xff" * parts[0][0]]
    masks += [b"\xff" * (content - start) + bytes(stop - content) for start, content, stop in parts]
    return int.from_bytes(b"".join(masks))
