"""A client's raw connection under asyncio, which sees how it ends."""

import asyncio
import re
import socket
import struct

from chaos.answers import Answer

STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class Ended(Exception):
    """The other side has closed (`closed`) or reset (`reset`) the connection."""


class Garbled(Exception):
    """What came is no HTTP."""


class Connection:
    def __init__(self, sock):
        self.sock = sock
        self.loop = asyncio.get_running_loop()
        self.buffer = b""
        self.pause_s = 0.0  # before each read
        self.piece = 65536

    @classmethod
    async def open(cls, address, receive_buffer=0):
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    async def send(self, data):
        """An answer may come before all is sent: its reader finds how the connection ended."""
        try:
            await self.loop.sock_sendall(self.sock, data)
        except OSError:
            pass

    async def _more(self):
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        try:
            data = await self.loop.sock_recv(self.sock, self.piece)
        except OSError as error:
            raise Ended("reset") from error
        if not data:
            raise Ended("closed")
        self.buffer += data

    async def _until(self, mark):
        start = 0
        while (at := self.buffer.find(mark, start)) < 0:
            start = max(0, len(self.buffer) - len(mark))
            await self._more()
        taken, self.buffer = self.buffer[: at + len(mark)], self.buffer[at + len(mark) :]
        return taken

    async def _into(self, body, count):
        while count > 0:
            if not self.buffer:
                await self._more()
            piece = self.buffer[:count]
            self.buffer = self.buffer[len(piece) :]
            body += piece
            count -= len(piece)

    async def first_bytes(self, count):
        """So many bytes of an answer, or fewer where it ends."""
        try:
            while len(self.buffer) < count:
                await self._more()
        except Ended:
            pass

    async def ended(self):
        """How the connection ends; what comes before is thrown away."""
        try:
            while True:
                self.buffer = b""
                await self._more()
        except Ended as end:
            return str(end)

    async def answer(self, method="POST"):
        answer = Answer()
        body = bytearray()
        try:
            await self._read(answer, body, method)
            answer.ending = "whole"
        except Ended as end:
            answer.ending = str(end)
            answer.began = answer.began or bool(self.buffer)
            # Only a clean close is an end, and only where nothing else says one.
            if answer.framing == "close" and answer.ending == "closed":
                answer.ending = "whole"
        answer.body = bytes(body)
        return answer

    async def _read(self, answer, body, method):
        status = 100
        while 100 <= status < 200 and status != 101:
            head = await self._until(b"\r\n\r\n")
            if not (found := STATUS_LINE.match(head)):
                raise Garbled(repr(head[:200]))
            status = int(found.group(1))
        lines = head.decode("latin-1").split("\r\n")[1:-2]
        fields = {name.lower(): value.strip() for name, _, value in (l.partition(":") for l in lines)}
        if len(fields) != len(lines):
            raise Garbled(repr(head))
        answer.status, answer.fields, answer.began = status, fields, True
        if status == 101:
            answer.framing = "close"
            await self._until_end(body)
        elif method == "HEAD" or status in (204, 304):
            answer.framing = "none"
        elif "transfer-encoding" in fields:
            answer.framing = "chunked"
            await self._chunks(body)
        elif "content-length" in fields:
            answer.framing = "length"
            await self._into(body, int(fields["content-length"]))
        else:
            answer.framing = "close"
            await self._until_end(body)

    async def _until_end(self, body):
        while True:
            body += self.buffer
            self.buffer = b""
            await self._more()

    async def _chunks(self, body):
        while True:
            line = await self._until(b"\r\n")
            try:
                size = int(line, 16)
            except ValueError as error:
                raise Garbled(repr(line[:80])) from error
            if size == 0:
                break
            await self._into(body, size)
            if (end := await self._until(b"\r\n")) != b"\r\n":
                raise Garbled(repr(end[:80]))
        if (end := await self._until(b"\r\n")) != b"\r\n":
            raise Garbled(repr(end[:80]))

    def half_close(self):
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


async def ask(address, method, target, body=b""):
    """One request on a connection of its own, for the admin port and replicas: (status, body)."""
    connection = await Connection.open(address)
    try:
        await connection.send(
            b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
            % (method.encode(), target.encode(), len(body), body)
        )
        answer = await connection.answer(method)
        if answer.ending != "whole":
            raise ConnectionError(f"{method} {target}: {answer.ending}")
        return answer.status, answer.body
    finally:
        connection.close()
