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
    for file in among:
        by_size[file.task, file.role, file.file.size].append(file)
    wanted = {(file.task, file.role, file.file.size) for file in files if file.file.size}
    found: dict[str, JournalFile] = {}
    for key in wanted:
        if len(by_size[key]) > 1:
            found |= _full_copies(storage, by_size[key])
    found |= _partial_copies(storage, [file for file in files if file.file.path not in found], among)
    return {file.file.path: found[file.file.path] for file in files if file.file.path in found}


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
            file for file in among if (file.task, file.role) == (one.task, one.role) and file.file.size > one.file.size
        ]
        sums = _sums(storage, [one, *longer], one.file.size)
        same = [file for file in longer if sums[file.file.path] == sums[one.file.path]]
        if same:
            found[one.file.path] = min(same, key=lambda each: each.file.path)
    return found


def _full_copies(storage: Storage, alike: Sequence[JournalFile]) -> dict[str, JournalFile]:
    """Return the copies among files of one task, role and size."""
    sums = _sums(storage, alike, alike[0].file.size)
    contents: dict[str, list[JournalFile]] = defaultdict(list)
    for file in alike:
        contents[sums[file.file.path]].append(file)
    found: dict[str, JournalFile] = {}
    for same in contents.values():
        # The original is in the hour that its name contains.
        original = min(same, key=lambda each: (each.hour != each.made_in, len(each.name), each.file.path))
        found |= {file.file.path: original for file in same if file is not original}
    return found


def _sums(storage: Storage, files: Iterable[JournalFile], size: int) -> dict[str, str]:
    """Return a checksum of the first *size* bytes of each of *files*, by its path."""
    paths = [file.file.path for file in files]
    with ThreadPoolExecutor(_CONCURRENT) as pool:
        return dict(zip(paths, pool.map(lambda path: storage.digest(path, size), paths), strict=True))


def copy_problems(files: Sequence[JournalFile], originals: Mapping[str, JournalFile]) -> list[Problem]:
    """Return a problem for each of *files* that find_copies() found; a copy makes no hour unreliable."""
    return [
        Problem("duplicated-file", file.file.path, _text(file, original), file.task, file.role)
        for file in files
        if (original := originals.get(file.file.path)) is not None
    ]


def _text(copy: JournalFile, original: JournalFile) -> str:
    what = "a copy" if copy.file.size == original.file.size else "a partial copy"
    return f"{what} of {original.state.path}; read once"
