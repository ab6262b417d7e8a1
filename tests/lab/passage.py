"""A way to an address that a test can close by ending this: run in a namespace as a module, it
passes TCP connections to `PORT` on to `HOST:PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(1 << 16):
            sink.write(chunk)
            await sink.drain()
    sink.close()


async def _serve(port: int, host: str, far_port: int) -> None:
    async def pass_on(near: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            far, requests = await asyncio.open_connection(host, far_port)
        except OSError:
            answers.close()
            return
        await asyncio.gather(_pump(near, requests), _pump(far, answers))

    async with await asyncio.start_server(pass_on, port=port) as server:
        print("passing", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    own_port, _, address = sys.argv[1].partition(":")
    host, _, far = address.rpartition(":")
    asyncio.run(_serve(int(own_port), host, int(far)))
