"""The extras of this distribution, and the error if one is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from busway_clients.errors import MissingExtra


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Make a failing import inside name the extra that installs the package."""
    try:
        yield
    except ImportError as error:
        text = f"{error.name} is not installed: run pip install 'busway-clients[{name}]'"
        raise MissingExtra(text, name=error.name, path=error.path) from error
