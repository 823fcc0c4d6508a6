"""The extras of this distribution: what an import says that lacks one."""

from collections.abc import Iterator
from contextlib import contextmanager

from busway_clients.errors import MissingExtra


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Let the imports inside name the extra that brings what they lack."""
    try:
        yield
    except ImportError as error:
        text = f"{error.name}: is not installed, expected the extra {name} (pip install 'busway-clients[{name}]')"
        raise MissingExtra(text, name=error.name, path=error.path) from error
