"""Coroutines that run concurrently; their errors are raised unchanged, not in groups."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*work: Coroutine[Any, Any, object]) -> None:
    """Run all of *work*; the first error cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as errors:
        first: Exception = errors
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def beside[T](background: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """Return what *work* returns and end *background*, whose error is raised when it comes first."""
    tending, working = asyncio.ensure_future(background), asyncio.ensure_future(work)
    try:
        await asyncio.wait((tending, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await tending
        return await working
    finally:
        for task in (tending, working):
            task.cancel()
        await asyncio.gather(tending, working, return_exceptions=True)
