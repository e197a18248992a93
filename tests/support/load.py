"""Many streams at once, by plain sockets under asyncio."""

import asyncio
import dataclasses
import json
import resource
import urllib.parse


def allow_many_files():
    """Room for two thousand connections, here and in the processes started from here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclasses.dataclass
class Stream:
    status: int = 0
    body: bytes = b""
    complete: bool = False

    @property
    def good(self):
        return self.status == 200 and self.complete and b"[DONE]" in self.body


async def stream(url, prompt, max_tokens, on_first_byte=None, model="sim"):
    """One streamed chat on a connection of its own."""
    parts = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = {
        "model": model,
        "stream": True,
        "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": prompt}],
    }
    data = json.dumps(body).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
    )
    result = Stream()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        result.status = int(head.split(b" ")[1])
        if b"chunked" not in head.lower():
            length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
            result.body = await reader.readexactly(int(length))
            result.complete = True
            return result
        while size := int(await reader.readuntil(b"\r\n"), 16):
            result.body += (await reader.readexactly(size + 2))[:-2]
            if on_first_byte:
                on_first_byte()
                on_first_byte = None
        await reader.readexactly(2)
        result.complete = True
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
    return result
