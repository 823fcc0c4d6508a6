"""Raw files whose content is a copy of another file, under another name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.files import JournalFile
from busway_reconcile.storage import Storage

_CONCURRENT = 8


def find_copies(storage: Storage, files: Sequence[JournalFile], among: Sequence[JournalFile]) -> dict[str, JournalFile]:
    """Return the paths of those *files* that are copies of another file in *among*, each with its original."""
    by_size: dict[tuple[str, str, int], list[JournalFile]] = defaultdict(list)
    for each in among:
        by_size[each.task, each.role, each.file.size].append(each)
    wanted = {(each.task, each.role, each.file.size) for each in files if each.file.size}
    found: dict[str, JournalFile] = {}
    for key in wanted:
        if len(by_size[key]) > 1:
            found |= _full_copies(storage, by_size[key])
    found |= _partial_copies(storage, [each for each in files if each.file.path not in found], among)
    return {each.file.path: found[each.file.path] for each in files if each.file.path in found}


def _partial_copies(
    storage: Storage, files: Sequence[JournalFile], among: Sequence[JournalFile]
) -> dict[str, JournalFile]:
    """Return those *files* in an hour that their name does not have whose content is the beginning of another file."""
    found = {}
    for one in files:
        # A writer names a file after the hour in which it makes it: a file elsewhere was moved or copied.
        if one.hour == one.made_in or not one.file.size:
            continue
        longer = [
            each for each in among if (each.task, each.role) == (one.task, one.role) and each.file.size > one.file.size
        ]
        sums = _sums(storage, [one, *longer], one.file.size)
        same = [each for each in longer if sums[each.file.path] == sums[one.file.path]]
        if same:
            found[one.file.path] = min(same, key=lambda each: each.file.path)
    return found


def _full_copies(storage: Storage, alike: Sequence[JournalFile]) -> dict[str, JournalFile]:
    """Return the copies among files of one task, role and size."""
    sums = _sums(storage, alike, alike[0].file.size)
    contents: dict[str, list[JournalFile]] = defaultdict(list)
    for each in alike:
        contents[sums[each.file.path]].append(each)
    found: dict[str, JournalFile] = {}
    for same in contents.values():
        # The original is in the hour that its name contains.
        original = min(same, key=lambda each: (each.hour != each.made_in, len(each.name), each.file.path))
        found |= {each.file.path: original for each in same if each is not original}
    return found


def _sums(storage: Storage, files: Iterable[JournalFile], size: int) -> dict[str, str]:
    """Return a checksum of the first *size* bytes of each of *files*, by its path."""
    paths = [each.file.path for each in files]
    with ThreadPoolExecutor(_CONCURRENT) as pool:
        return dict(zip(paths, pool.map(lambda path: storage.digest(path, size), paths), strict=True))


def copy_problems(files: Sequence[JournalFile], originals: Mapping[str, JournalFile]) -> list[Problem]:
    """Return a problem for each of *files* that find_copies() found; a copy makes no hour unreliable."""
    return [
        Problem("duplicated-file", each.file.path, _text(each, original), each.task, each.role)
        for each in files
        if (original := originals.get(each.file.path)) is not None
    ]


def _text(copy: JournalFile, original: JournalFile) -> str:
    what = "a copy" if copy.file.size == original.file.size else "a partial copy"
    return f"{what} of {original.state.path}; read once"
