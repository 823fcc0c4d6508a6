"""Frames that several steps of a run use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame

Keep = Callable[[DataFrame], DataFrame]
"""Returns a frame that is computed once, when it is first used."""


@contextmanager
def keeping() -> Iterator[Keep]:
    """Yield what keeps frames in memory and on disk until the context ends."""
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    try:
        yield keep
    finally:
        for frame in kept:
            frame.unpersist()


def cut(frame: DataFrame) -> DataFrame:
    """
    Return *frame*, computed now, without the steps that led to it.

    Spark analyses and optimizes all steps of a frame for each further step and each action: for few records, that takes
    the time.
    """
    return frame.localCheckpoint()
