"""
A TCP proxy that adds the delay of a distance: what it receives leaves in the same order, this much later.

    python -m benchmarks.delaying_proxy PORT OF_TARGET MILLISECONDS_EACH_WAY

It prints `ready` and runs until it is killed. The bandwidth is that of the machine.
"""

import asyncio
import sys

_CHUNK = 1 << 18
# What is on the way at once; a sender that is faster than the receiver waits, as with a full TCP window.
_MOST_CHUNKS = 4096


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_seconds: float) -> None:
    """Copy one direction until its end."""
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_CHUNKS)

    async def arrive() -> None:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async def depart() -> None:
        data = b"started"
        while data:
            data = await reader.read(_CHUNK)
            await on_the_way.put((loop.time() + delay_seconds, data))

    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(arrive())
            both.create_task(depart())
    except* OSError:
        pass  # a side has closed its connection; the other is closed below
    finally:
        writer.close()


async def serve(port: int, target: int, delay_seconds: float) -> None:
    """Listen on *port* of the loopback interface and pass everything to the port *target*."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", target, limit=_CHUNK)
        await asyncio.gather(_carry(reader, to_writer, delay_seconds), _carry(to_reader, writer, delay_seconds))

    server = await asyncio.start_server(connect, "127.0.0.1", port, limit=_CHUNK)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    _port, _target, _milliseconds = sys.argv[1:]
    asyncio.run(serve(int(_port), int(_target), float(_milliseconds) / 1000))
