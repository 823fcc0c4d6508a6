"""
No deletion, swap, alteration or insertion in a chained sequence goes unnoticed, with restarts at any point.

The end of a sequence is the one thing that can be cut off: what is tampered with here ends with the genuine last
message.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.values import string
from shared.message.message import Message
from shared.stores.blobs import Blob
from tests.chained import arrived, carried, chainer, linked, order, store_settings, verifier

APP = store_settings(Path(tempfile.gettempdir()) / "unused.db")


class InMemory:
    """A store that outlives the editors."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    async def read_all(self, name: str) -> Any:
        return self.kept.get(name)

    async def write_version(self, name: str, content: bytes, version: str | None) -> Any:
        known = self.kept.get(name)
        assert (known.version if known else None) == version
        self.kept[name] = Blob(content, str(int(version or 0) + 1))
        return self.kept[name].version


def stored(each: Any, store: Any) -> Any:
    each._sequences._documents = store
    return each


batches = st.lists(st.integers(1, 4), min_size=2, max_size=5)


def in_batches(items: Any, sizes: list[int]) -> Any:
    start = 0
    for size in sizes:
        yield start, items[start : start + size]
        start += size
    if items[start:]:
        yield start, items[start:]


def chain_of(count: int, sizes: list[int], redelivered: Any) -> Any:
    """Return a chain that was created in batches, some of them delivered twice, with a restart before each."""
    store = InMemory()
    made: dict[int, Message] = {}
    for start, numbers in in_batches(range(1, count + 1), sizes):
        for _ in range(2 if start % 2 == redelivered else 1):
            links = linked(stored(chainer(APP), store), [order(number) for number in numbers])
            made.update(zip(numbers, links, strict=True))
    return [made[number] for number in range(1, count + 1)]


def verdicts(links: Any, sizes: list[int]) -> list[str]:
    """Return the results of a verifier that restarts for each batch."""
    store, text = InMemory(), []
    for start, batch in in_batches(arrived(links), sizes):
        if batch:
            text += carried(stored(verifier(APP), store), arrived(batch, start + 1))
    return text


@given(batches, batches, st.integers(0, 2), st.data())
def test_a_whole_chain_passes_with_redeliveries(
    sizes: list[int], others: Any, redelivered: Any, data: st.DataObject
) -> None:
    links = chain_of(sum(sizes), sizes, redelivered)
    repeated = data.draw(st.integers(0, len(links) - 1))
    later = data.draw(st.integers(repeated + 1, len(links)))
    assert verdicts(links, others) == ["passes"] * len(links)
    with_repetition = [*links[:later], links[repeated], *links[later:]]
    assert verdicts(with_repetition, others) == ["passes"] * len(with_repetition)


@given(batches, batches, st.sampled_from(["delete", "swap", "alter", "alter link", "insert", "exchange"]), st.data())
def test_any_tampering_is_detected(sizes: list[int], others: Any, what: Any, data: st.DataObject) -> None:
    links = chain_of(sum(sizes), sizes, 0)
    tampered = [link.copy() for link in links]
    index = data.draw(st.integers(0, len(links) - 2))
    match what:
        case "delete":
            count = data.draw(st.integers(1, len(links) - 1 - index))
            del tampered[index : index + count]
        case "swap":
            other = (
                data.draw(st.integers(0, len(links) - 2).filter(lambda each: each != index)) if len(links) > 2 else 1
            )
            tampered[index], tampered[other] = tampered[other], tampered[index]
        case "alter":
            tampered[index].body = data.draw(st.binary(max_size=9).filter(lambda body: body != links[index].body))
        case "alter link":
            value = links[index].application_property("repl-chain").payload
            place = data.draw(st.integers(0, len(value) - 1))
            letter = data.draw(st.sampled_from("Aa0-_.").filter(lambda letter: letter != value[place]))
            changed = value[:place] + letter + value[place + 1 :]
            tampered[index].set_properties({"repl-chain": string(changed)})
        case "insert":
            tampered.insert(index, order(1000))
        case "exchange":
            # The link of another message on this one's content.
            other = data.draw(st.integers(0, len(links) - 1).filter(lambda each: each != index))
            tampered[index].set_properties({"repl-chain": links[other].application_property("repl-chain")})
    text = verdicts(tampered, others)
    assert any(verdict != "passes" for verdict in text), text
    genuine = {link.encode() for link in links}
    passed = [each.encode() for each, verdict in zip(tampered, text, strict=True) if verdict == "passes"]
    # What passes is the genuine sequence from its beginning, without a gap.
    assert set(passed) <= genuine
    assert passed == [link.encode() for link in links[: len(passed)]]
