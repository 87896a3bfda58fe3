"""A TCP proxy in front of one Kafka broker that can be told to misbehave: cut, refuse, delay, throttle, swallow an answer, lose a request.

Brokers advertise the proxy's port (`stack.kafka_cluster`, ``proxied``), so that every client of that listener goes through it.
Frames are Kafka's: a size of 4 bytes, then for requests API key, API version and correlation id, for answers the correlation id
(https://kafka.apache.org/protocol.html). All proxies of a process share one thread; their methods may be called from any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from stack.ports import LOOPBACK

PRODUCE, END_TXN = 0, 26
_CHUNK = 64 << 10
_THROTTLED_CHUNK = 8 << 10  # so that the connections of a throttled line take turns
_BUFFER = 0.2  # seconds that a throttled line holds in its buffers; then it takes no more, and the client waits


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="proxies", daemon=True).start()
    return loop


class Proxy:
    """Listens on ``port`` and passes on to ``upstream``, both on loopback. ``frames`` is off for a line that is encrypted.

    ``counted`` gets the requests so far by API key; several proxies may share one. Without ``frames`` none is seen.
    """

    def __init__(self, port: int, upstream: int, *, frames: bool = True, counted: Counter[int] | None = None) -> None:
        self.port, self.upstream, self.frames = port, upstream, frames
        self._delay = 0.0
        self._rate: float | None = None
        self._free_at = [0.0, 0.0]  # when the throttled line is free again in each direction, on the monotonic clock
        self._swallow: dict[int, int] = {}  # API key -> how many of its answers still to swallow
        self.swallowed = 0  # answers swallowed so far
        self._lose: dict[int, int] = {}  # API key -> how many requests from now on it loses the next one
        self.lost = 0  # requests lost so far
        self._counted: Counter[int] = Counter() if counted is None else counted
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self.accept()

    def accept(self) -> None:
        """Take connections (again)."""
        _call(self._listen())

    def refuse(self) -> None:
        """Cut every connection and take none until `accept`: connecting is refused as by a port that nobody listens on."""
        _call(self._close())

    def cut(self) -> None:
        """End every connection now; clients may connect anew at once."""
        _call(self._cut())

    def delay(self, seconds: float) -> None:
        """Hand everything on this much later, in either direction; 0 ends it."""
        self._delay = seconds

    def throttle(self, bytes_per_second: float | None) -> None:
        """Bound what all connections carry together in either direction; None ends it."""
        self._rate = bytes_per_second

    def swallow(self, api_key: int, count: int = 1) -> None:
        """Cut the connection instead of passing on the next ``count`` answers to requests with this API key."""
        self._swallow[api_key] = count

    def lose(self, api_key: int, after: int) -> None:
        """Pass on ``after`` requests with this API key, at least one, and then lose one: the broker does not get it, and the client gets
        the answer to the one before again. So a broker behaves that forgets what it has acknowledged.
        """
        self._lose[api_key] = after

    def behave(self) -> None:
        """End every misbehaviour; established connections stay."""
        self._delay, self._rate = 0.0, None
        self._swallow.clear()
        self._lose.clear()
        self.accept()

    def close(self) -> None:
        self.refuse()

    async def _listen(self) -> None:
        if self._server is None:
            listening = socket.create_server((LOOPBACK, self.port))
            # Otherwise the kernel holds megabytes for a line that carries some kilobytes a second.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
            self._server = await asyncio.start_server(self._connected, sock=listening, limit=_CHUNK)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _cut(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self.upstream, limit=_CHUNK)
        except OSError:
            writer.close()
            return
        link = _Link(self, writer, up_writer)
        self._links.add(link)
        try:
            await asyncio.gather(
                link.pump(reader, up_writer, 0, link.request), link.pump(up_reader, writer, 1, link.answer)
            )
        except (OSError, EOFError):
            pass
        finally:
            link.cut()
            self._links.discard(link)

    def count(self, api_key: int) -> None:
        self._counted[api_key] += 1

    def wants(self, api_key: int) -> bool:
        """Whether the answer to a request with this API key is to be swallowed; counts it."""
        left = self._swallow.get(api_key, 0)
        if left:
            self._swallow[api_key] = left - 1
            self.swallowed += 1
        return left > 0

    def may_lose(self, api_key: int) -> bool:
        """Whether one of the next requests with this API key is to be lost."""
        return api_key in self._lose

    def loses(self, api_key: int) -> bool:
        """Whether to lose this request, which is not the first one; counts it."""
        self._lose[api_key] -= 1
        if self._lose[api_key]:
            return False
        del self._lose[api_key]
        self.lost += 1
        return True

    @property
    def most(self) -> int:
        """The bytes that one connection passes on at a time."""
        return _THROTTLED_CHUNK if self._rate else _CHUNK

    def due(self, size: int, way: int) -> tuple[float, float]:
        """When these bytes, read now, may go on (monotonic), and for how many seconds no more may be read."""
        now = time.monotonic()
        if not self._rate:
            return now + self._delay, 0.0
        self._free_at[way] = free_at = max(now, self._free_at[way]) + size / self._rate
        return free_at + self._delay, max(0.0, free_at - now - _BUFFER)


Whole = Callable[[bytes], Coroutine[Any, Any, bool]]  # gets a frame without its size; returns whether to pass it on


class _Link:
    """One client's connection and ours to the broker."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._asked: dict[int, int] = {}  # correlation id -> API key, of requests that wait for their answer
        self._newest: dict[int, asyncio.Future[bytes]] = {}  # API key -> the answer to its newest request
        self._wanted: dict[int, asyncio.Future[bytes]] = {}  # the same by correlation id
        self._due = [asyncio.Queue[tuple[float, bytes]](256) for _ in range(2)]  # what is passed on in each direction

    def cut(self) -> None:
        for writer in (self._client, self._broker):
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    def request(self, head: bytes) -> Whole | None:
        api_key, _, correlation = struct.unpack(">hhi", head)
        self._proxy.count(api_key)
        if self._proxy.may_lose(api_key):
            if api_key in self._newest and self._proxy.loses(api_key):
                return self._lose
            self._newest[api_key] = self._wanted[correlation] = asyncio.get_running_loop().create_future()
        self._asked[correlation] = api_key
        return None

    def answer(self, head: bytes) -> Whole | None:
        (correlation,) = struct.unpack_from(">i", head)
        if self._proxy.wants(self._asked.pop(correlation, -1)):
            raise EOFError
        return self._remember if correlation in self._wanted else None

    async def _lose(self, request: bytes) -> bool:
        api_key, _, correlation = struct.unpack_from(">hhi", request)
        answer = await self._newest[api_key]
        await self._take(struct.pack(">ii", len(answer) + 4, correlation) + answer, 1)
        return False

    async def _remember(self, answer: bytes) -> bool:
        (correlation,) = struct.unpack_from(">i", answer)
        self._wanted.pop(correlation).set_result(answer[4:])
        return True

    async def _take(self, data: bytes, way: int) -> None:
        due, pause = self._proxy.due(len(data), way)
        await self._due[way].put((due, data))
        if pause:
            await asyncio.sleep(pause)

    async def pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        way: int,
        note: Callable[[bytes], Whole | None],
    ) -> None:
        """Pass frames on, each when it is due, until one side ends."""
        passing = asyncio.ensure_future(_pass_on(self._due[way], writer))
        try:
            while not self._proxy.frames:
                if not (data := await reader.read(self._proxy.most)):
                    raise EOFError
                await self._take(data, way)
            while True:
                await self._frame(reader, way, note)
        finally:
            passing.cancel()
            self.cut()

    async def _frame(self, reader: asyncio.StreamReader, way: int, note: Callable[[bytes], Whole | None]) -> None:
        size = await reader.readexactly(4)
        left = struct.unpack(">i", size)[0]
        head = await reader.readexactly(min(left, 8))
        left -= len(head)
        if whole := note(head.ljust(8, b"\0")):
            frame = head + await reader.readexactly(left)
            if await whole(frame):
                await self._take(size + frame, way)
            return
        await self._take(size + head, way)
        while left > 0:
            if not (data := await reader.read(min(left, self._proxy.most))):
                raise EOFError
            left -= len(data)
            await self._take(data, way)


async def _pass_on(queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    while True:
        due, data = await queue.get()
        wait = due - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        with contextlib.suppress(OSError):
            writer.write(data)
            await writer.drain()


def _call(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run_coroutine_threadsafe(coroutine, _loop()).result(30)
