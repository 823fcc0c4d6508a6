"""
The partition of a key, as Event Hubs and its SDKs compute it: a key has the same partition as in Azure.

Sources: Bob Jenkins, lookup3.c (public domain), hashlittle2 with both seeds zero; the buffered producers of
azure-sdk-for-net, azure-sdk-for-java and azure-sdk-for-js (PartitionResolver, partitionKeyToIdMapper).
"""

_MASK = 0xFFFFFFFF
_BLOCK = 12
# Each step of a round: the word that changes, the other operand, and the number of bits it is rotated by.
_MIX = ((0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4))
_FINAL = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))


def partition_of_key(partition_key: str, partitions: int) -> int:
    """Return the index of the partition of a key, of this number of *partitions*."""
    first, second = _hash_pair(partition_key.encode())
    short = (first ^ second) & 0xFFFF
    # The hash is a signed number of 16 bits, and the remainder truncates toward zero as in C#, Java and JavaScript.
    return abs(short - 0x10000 if short & 0x8000 else short) % partitions


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
