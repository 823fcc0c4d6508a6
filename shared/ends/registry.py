"""The kinds of ends: one for each folder beside this file that has a `kind.py`."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from shared.ends.kind import Kind


@cache
def names() -> frozenset[str]:
    """Return the names of all kinds; imports none of them."""
    return frozenset(path.parent.name.replace("_", "-") for path in Path(__file__).parent.glob("*/kind.py"))


@cache
def kind(name: str) -> Kind:
    """Return the kind of this *name*, and import it; raises KeyError if it is unknown."""
    if name not in names():
        raise KeyError(name)
    found: Kind = import_module(f"shared.ends.{name.replace('-', '_')}.kind").KIND
    return found


def kinds(which: Callable[[Kind], bool] = lambda _: True) -> list[Kind]:
    """Return all kinds of which *which* is true, in the order in which people read them."""
    return sorted(filter(which, map(kind, names())), key=lambda found: found.rank)
