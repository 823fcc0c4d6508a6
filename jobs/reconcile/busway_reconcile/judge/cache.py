"""Frames that several steps of a run use."""

from types import TracebackType
from typing import Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame


class Cache:
    """Keeps frames in memory and on disk until it is closed."""

    def __init__(self, *, explains: bool = False) -> None:
        """Keep nothing yet; with *explains*, print the plan of each frame to keep."""
        self._kept: list[DataFrame] = []
        self._explains = explains

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return *frame*, computed once."""
        if self._explains:
            frame.explain("formatted")
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def cut(self, frame: DataFrame) -> DataFrame:
        """
        Return *frame*, computed now, without the steps that led to it.

        Spark analyses and optimizes all steps of a frame for each further step and each action: for few records, that
        takes the time.
        """
        if self._explains:
            frame.explain("formatted")
        return frame.localCheckpoint()

    def __enter__(self) -> Self:
        """Return the cache."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release all frames."""
        for frame in self._kept:
            frame.unpersist()
