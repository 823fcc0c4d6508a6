"""
The shapes of sections: what is known of a section because an earlier one had the same structure.

The shape of a section is what determines where its parts start and stop: format codes and lengths, and the keys of a
map. It is learned by walking over the first section that has it. Later ones are recognised by comparing these bytes all
at once: the section is read as one large number, and a mask removes everything else.

Measured with benchmarks/worker_cost.py: without it a copy takes 19 µs longer for a message with five properties, and
83 µs for one with fifty.
"""

import struct
from collections.abc import Callable, Sequence

# Bounds the memory for shapes to 2 MB: each takes twice the length of a section.
_LENGTHS = 128
_SHAPES_OF_A_LENGTH = 4
_LONGEST = 2048

# Where a part of a section starts, up to where it belongs to the shape, and where it stops.
type Part = tuple[int, int, int]
type Cut = Callable[[bytes], tuple[bytes, ...]]


# The bits of a section that belong to its shape, their values, and the result of the walk; None for no shape. A tuple,
# because unpacking a NamedTuple takes longer.
type _Shape[Found] = tuple[int, int, Found | None]


class Shapes[Found]:
    """The shapes of one kind of section, learned from the sections themselves up to a limit."""

    def __init__(self, walk: Callable[[bytes], tuple[Sequence[Part], Found] | None]) -> None:
        """
        Learn from *walk*, which returns the parts of a section and a result.

        Shape: the parts follow each other up to the section's end. The result must follow from the section's length,
               the bytes before the first part, and the bytes that belong to the shape. None for a section without a
               shape, which has to be walked over each time.
        """
        self._walk = walk
        self._shapes: dict[int, list[_Shape[Found]]] = {}

    def find(self, section: bytes) -> Found | None:
        """Return the result of the walk over a section of this shape, None without one; raises what the walk raises."""
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
            shapes.append((mask, number & mask, learned))
            return learned
        # A section without a shape uses up a place too, so that not every section of this length is examined.
        shapes.append((0, -1, None))
        return None


def cut_into(parts: Sequence[Part]) -> Cut:
    """Return a function that cuts a section into *parts*."""
    first = parts[0][0] if parts else 0
    return struct.Struct("".join([f"{first}x", *(f"{stop - start}s" for start, _, stop in parts)])).unpack


def _mask(parts: Sequence[Part]) -> int:
    masks = [b"\xff" * parts[0][0]]
    masks += [b"\xff" * (content - start) + bytes(stop - content) for start, content, stop in parts]
    return int.from_bytes(b"".join(masks))
