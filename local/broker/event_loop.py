"""
The event loop that the broker runs on: uvloop's, which takes a sixth less of the processor, or else asyncio's.

There is no uvloop for Windows, and who imports the fixture into tests of their own need not have it.
"""

import asyncio

try:
    from uvloop import new_event_loop as _new_event_loop
except ImportError:
    _new_event_loop = asyncio.new_event_loop  # type: ignore[assignment] # both return an event loop


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that nothing runs on yet."""
    return _new_event_loop()
