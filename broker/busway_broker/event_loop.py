"""
The event loop of the broker: uvloop, which saves a sixth of the CPU time, or asyncio's where it is not installed.

uvloop does not run on Windows, and projects that use only the test fixture need not install it.
"""

import asyncio

try:
    from uvloop import new_event_loop as _new_event_loop
except ImportError:
    _new_event_loop = asyncio.new_event_loop  # type: ignore[assignment] # both return an event loop


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop."""
    return _new_event_loop()
