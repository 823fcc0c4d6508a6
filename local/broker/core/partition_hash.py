"""
The hash of a partition key that Event Hubs and its SDKs use: a key has the same partition as in Azure.

Source: Bob Jenkins, lookup3.c (public domain), hashlittle2 with both seeds zero.
"""

_MASK = 0xFFFFFFFF
_BLOCK = 12
# Each step of a round: the word that changes, the other operand, and the number of bits it is rotated by.
_MIX = ((0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4))
_FINAL = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))


def partition_hash(partition_key: str) -> int:
    """Return a signed number of 16 bits; the partition is its remainder by the number of partitions."""
    first, second = _hash_pair(partition_key.encode())
    short = (first ^ second) & 0xFFFF
    return short - 0x10000 if short & 0x8000 else short


def _hash_pair(data: bytes) -> tuple[int, int]:
    words = [(0xDEADBEEF + len(data)) & _MASK] * 3
    position = 0
    while len(data) - position > _BLOCK:
        _add(words, data[position : position + _BLOCK])
        for changed, other, bits in _MIX:
            words[changed] = ((words[changed] - words[other]) & _MASK) ^ _rotated(words[other], bits)
            words[other] = (words[other] + words[3 - changed - other]) & _MASK
        position += _BLOCK
    if position == len(data):
        return words[2], words[1]
    _add(words, data[position:].ljust(_BLOCK, b"\0"))
    for changed, other, bits in _FINAL:
        words[changed] = ((words[changed] ^ words[other]) - _rotated(words[other], bits)) & _MASK
    return words[2], words[1]


def _add(words: list[int], block: bytes) -> None:
    for index in range(3):
        words[index] = (words[index] + int.from_bytes(block[4 * index : 4 * index + 4], "little")) & _MASK


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _MASK
