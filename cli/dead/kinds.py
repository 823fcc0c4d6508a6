"""What the two commands work on, and how their problems end them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cli.output import fail
from shared.config.files import Configuration
from shared.errors import BuswayError, ConfigError
from shared.resend.places import Place, dead_letter_queue, dead_letter_queues, rejects_of, rejects_queues


class Kind(NamedTuple):
    """Dead letters, or rejected messages: the command's name, what its argument names, and what the tasks name."""

    command: str
    place: Callable[[str, Configuration], Place]
    places: Callable[[Configuration], list[Place]]


DEAD = Kind("dead", dead_letter_queue, dead_letter_queues)
REJECTS = Kind("rejects", rejects_of, rejects_queues)


@contextlib.contextmanager
def problems() -> Iterator[None]:
    """End the command with one line for each problem that the block raises."""
    try:
        yield
    except ConfigError as error:
        fail(error.problems)
    except BuswayError as error:
        fail([error])
