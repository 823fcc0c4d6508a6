"""What the two commands work on, and how their problems end them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cli.dead.places import Place, dead_letter_queue, rejects_of
from cli.output import fail
from shared.config.files import Configuration
from shared.errors import BuswayError, ConfigError


class Kind(NamedTuple):
    """Dead letters, or rejected messages: the command's name, and what its argument names."""

    command: str
    place: Callable[[str, Configuration], Place]


DEAD = Kind("dead", dead_letter_queue)
REJECTS = Kind("rejects", rejects_of)


@contextlib.contextmanager
def problems() -> Iterator[None]:
    """End the command with one line for each problem that the block raises."""
    try:
        yield
    except ConfigError as error:
        fail(error.problems)
    except BuswayError as error:
        fail([error])
