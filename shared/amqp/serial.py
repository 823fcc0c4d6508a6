"""
Serial numbers of 32 bits, with which AMQP counts transfers and deliveries.

Source: RFC 1982; OASIS AMQP 1.0, part 2, sections 2.5.6 and 2.6.7.
"""

from collections.abc import Collection

SERIAL = 0xFFFFFFFF


def difference(left: int, right: int) -> int:
    """Return left minus right."""
    distance = (left - right) & SERIAL
    return distance - 0x1_0000_0000 if distance & 0x8000_0000 else distance


def left_of(granted: int, counted: int, used: int) -> int:
    """
    Return what is left of a window or credit of which this end has used up to number *used*.

    The peer had *counted* up to that number when it *granted* it: what was in flight has used some already. That may be
    more than a peer grants that wants less than before; a peer that counts ahead gets the largest credit at most.
    """
    return min(max(granted - difference(used, counted), 0), SERIAL)


def numbers_between(first: int, last: int, pending: Collection[int]) -> list[int]:
    """Return the numbers of *pending* from first to last, a range of any size, which the peer chooses."""
    if 0 <= last - first < len(pending):
        return [number for number in range(first, last + 1) if number in pending]
    return [number for number in pending if difference(number, first) >= 0 <= difference(last, number)]
