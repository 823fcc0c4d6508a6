"""A write that was torn, by a kill or a full disk: the broker starts, and has exactly what it had acknowledged."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.tests.unit.stored_namespace import CONFIG, StorageFolder, encoded, picture
from busway_broker.core.content import read_content
from busway_broker.core.event import read_event
from busway_broker.storage.namespace_storage import NamespaceStorage
from shared.clock import ManualClock

HEADER_SIZE, FRAME_HEADER_SIZE, PAGE_SIZE = 32, 24, 4096
FRAME_SIZE = FRAME_HEADER_SIZE + PAGE_SIZE
MARK = "hostile"


def first_page_of_a_database() -> bytes:
    return b"SQLite format 3\x00" + struct.pack(">HBBBBBB", PAGE_SIZE, 2, 2, 0, 64, 32, 32) + bytes(PAGE_SIZE - 24)


def leaf_page() -> bytes:
    """Return a page of a table that claims to have a thousand cells, at offsets outside it."""
    return struct.pack(">BHHHB", 13, 0xFFFF, 1000, 0xFFFF, 0xFF) + b"\xff\xfe" * 2044


def frame_of_the_former_log() -> bytes:
    return b"busway broker data 1\n" + struct.pack(">II", 5, 0x36DDE3C6) + b"valid"


class AcknowledgedStates:
    """A namespace that is stored commit by commit, and what it had acknowledged at each size of the log."""

    def __init__(self, folder: StorageFolder) -> None:
        self.folder = folder
        self.storage = folder.open()
        self.states = [(folder.log.stat().st_size, picture(self.storage.namespace))]

    def acknowledge(self) -> None:
        self.storage.commit()
        self.states.append((self.folder.log.stat().st_size, picture(self.storage.namespace)))

    def publish(self, name: str, body: bytes) -> None:
        namespace = self.storage.namespace
        namespace.queue("plain").publish(read_content(encoded(f"{MARK}-{name}", body=body)))
        namespace.topic("topic").publish(read_content(encoded(f"{MARK}-{name}", body=body)))
        namespace.hub("hub").partitions[0].append([read_event(encoded(name, body=body))])
        self.acknowledge()

    def at(self, size: int) -> dict[str, object]:
        """Return what was acknowledged when the log had *size* bytes."""
        return [state for length, state in self.states if length <= size][-1]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StorageFolder]:
    with StorageFolder.in_use(tmp_path) as folder:
        yield folder


@pytest.fixture
def acknowledged(folder: StorageFolder) -> AcknowledgedStates:
    states = AcknowledgedStates(folder)
    states.publish("ordinary", b"an ordinary body")
    states.publish("database", first_page_of_a_database())
    states.publish("page", leaf_page())
    states.publish("former log", frame_of_the_former_log())
    # Frames of this very log, with its salts and with checksums that were valid where they were.
    log = folder.log.read_bytes()
    states.publish("frame", log[HEADER_SIZE : HEADER_SIZE + FRAME_SIZE])
    states.publish("last frames", log[-2 * FRAME_SIZE :])
    states.publish("whole log", log)
    states.publish("empty", b"")
    return states


def opened(folder: StorageFolder, log: bytes, path: Path) -> NamespaceStorage:
    """Open the database of *folder* with another log, as the broker does at its start."""
    path.mkdir()
    (path / folder.database.name).write_bytes(folder.database.read_bytes())
    (path / folder.log.name).write_bytes(log)
    return NamespaceStorage(path, CONFIG, ManualClock(folder.clock.now()), is_synced=False)


def offsets(log: bytes, states: AcknowledgedStates) -> list[int]:
    """Return where to tear: around each commit, around some frames, and at random."""
    chance = random.Random(12)
    frames = chance.sample(range(HEADER_SIZE, len(log) + 1, FRAME_SIZE), 10)
    edges = [*frames, *(size for size, _ in states.states)]
    near = {edge + by for edge in edges for by in (-1, 0, 1, FRAME_HEADER_SIZE)}
    found = near | {chance.randrange(len(log)) for _ in range(10)}
    begun = states.states[0][0]
    return sorted(each for each in found if begun <= each <= len(log))


def test_log_that_ends_anywhere_gives_exactly_what_was_acknowledged(
    folder: StorageFolder, acknowledged: AcknowledgedStates, tmp_path: Path
) -> None:
    log = folder.log.read_bytes()
    cuts = offsets(log, acknowledged)
    assert len(cuts) > 50
    for number, cut in enumerate(cuts):
        storage = opened(folder, log[:cut], tmp_path / f"cut-{number}")
        try:
            assert picture(storage.namespace) == acknowledged.at(cut), cut
        finally:
            storage.close()


@pytest.mark.parametrize("tail", ["zeros", "noise", "frames of the log", "bodies"])
def test_log_with_garbage_at_its_end_gives_exactly_what_was_acknowledged(
    tail: str, folder: StorageFolder, acknowledged: AcknowledgedStates, tmp_path: Path
) -> None:
    log = folder.log.read_bytes()
    chance = random.Random(7)
    fillers = {
        "zeros": bytes(len(log)),
        "noise": chance.randbytes(len(log)),
        # What a file system may leave where a write did not arrive: what was there before.
        "frames of the log": log[HEADER_SIZE:] + log[HEADER_SIZE:],
        "bodies": (first_page_of_a_database() + leaf_page()) * (len(log) // PAGE_SIZE + 1),
    }
    for number, (size, state) in enumerate(acknowledged.states):
        # The next write was torn after a part of its first frame.
        kept = min(size + FRAME_HEADER_SIZE + 100, len(log)) if size < len(log) else size
        torn = log[:kept] + fillers[tail][: max(len(log) - kept, 3 * FRAME_SIZE)]
        storage = opened(folder, torn, tmp_path / f"torn-{number}")
        try:
            assert picture(storage.namespace) == state, size
        finally:
            storage.close()


def test_broker_that_starts_after_a_torn_write_accepts_and_keeps_messages(
    folder: StorageFolder, acknowledged: AcknowledgedStates, tmp_path: Path
) -> None:
    log = folder.log.read_bytes()
    size, state = acknowledged.states[-3]
    storage = opened(folder, log[: size + FRAME_HEADER_SIZE + 7], tmp_path / "torn")
    assert picture(storage.namespace) == state
    storage.namespace.queue("plain").publish(read_content(encoded("afterwards", body=log)))
    storage.commit()
    expected = picture(storage.namespace)
    storage.close()
    again = NamespaceStorage(tmp_path / "torn", CONFIG, ManualClock(folder.clock.now()), is_synced=False)
    assert picture(again.namespace) == expected
    again.close()


def test_bodies_like_pages_and_frames_are_kept_as_they_are(
    folder: StorageFolder, acknowledged: AcknowledgedStates
) -> None:
    for _ in range(2):
        assert picture(folder.reopen().namespace) == acknowledged.states[-1][1]
    bodies = [message.content.bare for message in folder.reopen().namespace.store("plain").messages.values()]
    assert any(first_page_of_a_database() in body for body in bodies)
    assert any(leaf_page() in body for body in bodies)
