"""HTTP/1.1 by the byte: a client that sends what it is told, and a replica that does.

Both keep the raw bytes that they saw, so that a test can compare to the byte.
"""

import json
import socket
import ssl
import struct
import threading
import urllib.parse

TIMEOUT_S = 20


class Gone(Exception):
    """The other side closed the connection, or never sent what was awaited."""


class Reader:
    """Reads a socket up to a mark, a length or the end."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()
        self.taken = []  # All bytes taken since this was last cleared.

    def fill(self):
        try:
            more = self.sock.recv(65536)
        except (ConnectionError, ssl.SSLEOFError) as error:
            raise Gone(f"{error} after {self.buffer!r:.200}") from error
        if not more:
            raise Gone(f"closed after {self.buffer!r:.200}")
        self.buffer += more

    def take(self, size):
        while len(self.buffer) < size:
            self.fill()
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        self.taken.append(taken)
        return taken

    def until(self, mark):
        while mark not in self.buffer:
            self.fill()
        return self.take(self.buffer.index(mark) + len(mark))

    def rest(self):
        """All up to the end of the connection, and whether that end was an orderly one."""
        try:
            while True:
                self.fill()
        except Gone as gone:
            rest = bytes(self.buffer)
            self.buffer.clear()
            return rest, not isinstance(gone.__cause__, (ConnectionResetError, ssl.SSLEOFError))

    def chunked(self, on_piece=None):
        """A chunked body: (raw bytes, decoded bytes, trailers)."""
        raw = decoded = b""
        while True:
            line = self.until(b"\r\n")
            raw += line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            piece = self.take(size + 2)
            raw += piece
            decoded += piece[:-2]
            if on_piece:
                on_piece(piece[:-2])
        trailers = b""
        while (line := self.until(b"\r\n")) != b"\r\n":
            trailers += line
        return raw + trailers + b"\r\n", decoded, parse_fields(trailers)


def parse_fields(text):
    """[(name, value)] as they stand, names in lower case."""
    lines = [line.decode("latin-1") for line in text.split(b"\r\n") if line]
    return [(name.lower(), value.strip()) for name, _, value in (l.partition(":") for l in lines)]


class Message:
    """A request or a response: `start` line, `fields`, `body`, and the bytes they came as."""

    def __init__(self, raw_head):
        self.raw_head = raw_head
        start, _, fields = raw_head.partition(b"\r\n")
        self.start = start.decode("latin-1")
        self.fields = parse_fields(fields)
        self.raw_body = self.body = b""
        self.trailers = []
        self.complete = False

    def all(self, name):
        return [value for key, value in self.fields if key == name.lower()]

    def __getitem__(self, name):
        values = self.all(name)
        return values[0] if values else None

    @property
    def json(self):
        return json.loads(self.body)

    def read_body(self, reader, no_body=False, until_close=False, on_piece=None):
        if no_body:
            pass
        elif "chunked" in (self["transfer-encoding"] or "").lower():
            self.raw_body, self.body, self.trailers = reader.chunked(on_piece)
        elif self["content-length"] is not None:
            self.raw_body = self.body = reader.take(int(self["content-length"]))
        elif until_close:
            self.raw_body, self.complete = reader.rest()
            self.body = self.raw_body
            return
        self.complete = True


class Request(Message):
    @property
    def method(self):
        return self.start.split(" ")[0]

    @property
    def target(self):
        return self.start.split(" ")[1]


class Response(Message):
    @property
    def status(self):
        return int(self.start.split(" ")[1])


class Client:
    """A raw connection to a server's URL."""

    def __init__(self, url, receive_buffer=None, tls=None):
        parts = urllib.parse.urlsplit(url)
        self.host = parts.netloc
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect((parts.hostname, parts.port))
        if tls:  # An ssl.SSLContext. An end without close_notify is an error, not an end.
            self.sock = tls.wrap_socket(
                self.sock, server_hostname=parts.hostname, suppress_ragged_eofs=False
            )
        self.reader = Reader(self.sock)

    def send(self, data):
        self.sock.sendall(data)
        return self

    def request(self, method, target, body=b"", fields=(), chunks=None, version="1.1"):
        """Sends a request; `body` a dict becomes JSON, `chunks` a chunked body."""
        lines = [f"{method} {target} HTTP/{version}", f"Host: {self.host}"]
        if isinstance(body, dict):
            body = json.dumps(body).encode()
            lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in fields]
        if chunks is not None:
            lines.append("Transfer-Encoding: chunked")
            body = b"".join(chunk(piece) for piece in chunks) + b"0\r\n\r\n"
        elif body or method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def post(self, target, body, fields=(), **more):
        return self.request("POST", target, body, fields, **more)

    def chat(self, stream=False, fields=(), **more):
        return self.post("/v1/chat/completions", chat_body(stream=stream, **more), fields)

    def head(self):
        """The next response's head alone."""
        while True:
            response = Response(self.reader.until(b"\r\n\r\n"))
            if response.status != 100:
                return response

    def response(self, method="POST", on_piece=None):
        """The next response, whole. `complete` is false where the connection ended too early."""
        response = self.head()
        self.reader.taken.clear()
        no_body = method == "HEAD" or response.status in (101, 204, 304)
        try:
            response.read_body(self.reader, no_body, until_close=True, on_piece=on_piece)
        except Gone:
            response.raw_body = b"".join(self.reader.taken) + self.reader.buffer
        return response

    def get(self, target, fields=()):
        return self.request("GET", target, fields=fields).response("GET")

    def closed(self):
        """True once the other side has ended the connection; bytes before that are an error."""
        rest, _ = self.reader.rest()
        assert rest == b"", rest
        return True

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def chat_body(model="m1", stream=False, text="hi", **more):
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return {**body, **({"stream": True} if stream else {}), **more}


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text, name=None):
    """A chat completion event with one piece of text."""
    data = {"id": "c1", "object": "chat.completion.chunk", "model": "m1"}
    data["choices"] = [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    return b"data: " + json.dumps(data).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Connection:
    """What a replica's script does with one request on one connection."""

    def __init__(self, sock, number):
        self.sock = sock
        self.number = number
        self.reader = Reader(sock)
        self.open = True

    def send(self, data):
        self.sock.sendall(data)

    def json(self, status, body, fields=()):
        self.text(status, json.dumps(body).encode(), [("Content-Type", "application/json"), *fields])

    def text(self, status, body, fields=(("Content-Type", "text/plain"),)):
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        self.send(
            f"HTTP/1.1 {status} Status\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")
            + body
        )

    def stream(self, pieces, end=True):
        """An event stream, a chunk a piece."""
        self.send(EVENT_STREAM)
        for piece in pieces:
            self.send(chunk(piece))
        if end:
            self.send(b"0\r\n\r\n")

    def end(self):
        """Ends TLS as it should be, with close_notify; the connection is then closed."""
        self.sock = self.reader.sock = self.sock.unwrap()
        self.close()

    def wait_closed(self, timeout_s=TIMEOUT_S):
        """True once the router has closed this connection."""
        self.sock.settimeout(timeout_s)
        try:
            while self.sock.recv(65536):
                pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self):
        self.open = False
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()

    def reset(self):
        self.open = False
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def answer_ok(connection, request):
    connection.json(200, {"id": "c1", "object": "chat.completion", "choices": []})


# What the router asks of its own accord.
PROBED = ("/health", "/metrics", "/prometheus/metrics", "/v1/models")


class Replica:
    """A server for the router to speak to; `script(connection, request)` answers each request.

    Health, metrics and the model list are answered by themselves: set `healthy`, `metrics` (bytes
    or None for 404) and `models` (ids, a ready dict, or a status), or take the probes over with
    `probe_script`. `requests` holds all other requests.
    `read_bodies = False` leaves the body of a request for the script to read.
    """

    def __init__(self, script=answer_ok, models=("m1",), port=0, tls=None):
        self.script = script
        self.models = models
        self.healthy = True
        self.metrics = None
        self.read_bodies = True
        self.probe_script = None
        self.probes = []
        self.requests = []
        self.connections = 0
        self.arrived = threading.Condition()
        self.errors = []
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.tls = tls  # An ssl.SSLContext; None: plain HTTP.
        self.handshake_errors = []
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.authority = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            connection = Connection(sock, self.connections)
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        if self.tls:
            try:
                connection.sock = self.tls.wrap_socket(connection.sock, server_side=True)
            except OSError as error:
                self.handshake_errors.append(error)
                self._open.discard(connection)
                return connection.sock.close()
            connection.reader.sock = connection.sock
        try:
            while connection.open:
                request = Request(connection.reader.until(b"\r\n\r\n"))
                connection.reader.taken.clear()
                if self._answered_by_itself(connection, request):
                    continue
                if self.read_bodies:
                    request.read_body(connection.reader)
                request.connection = connection
                request.resumed = self.tls and connection.sock.session_reused
                with self.arrived:
                    self.requests.append(request)
                    self.arrived.notify_all()
                self.script(connection, request)
        except (Gone, OSError):
            pass
        except Exception as error:  # A script's own fault must reach the test.
            self.errors.append(error)
        finally:
            self._open.discard(connection)
            connection.close()

    def _answered_by_itself(self, connection, request):
        path = request.target.split("?")[0]
        if request.method != "GET" or path not in PROBED:
            return False
        with self.arrived:
            self.probes.append(request)
            self.arrived.notify_all()
        if self.probe_script:
            self.probe_script(connection, request)
        elif path == "/health":
            connection.text(200 if self.healthy else 503, b"")
        elif path != "/v1/models":
            known = path == "/metrics" and self.metrics is not None
            connection.text(200 if known else 404, self.metrics if known else b"")
        elif isinstance(self.models, int):
            connection.json(self.models, {"error": "no list"})
        elif isinstance(self.models, dict):
            connection.json(200, self.models)
        else:
            data = [{"id": name, "object": "model"} for name in self.models]
            connection.json(200, {"object": "list", "data": data})
        return True

    def wait_probes(self, count, timeout_s=TIMEOUT_S):
        """Until there were so many of what the router asks of its own accord."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.probes) >= count, timeout_s), (
                f"{len(self.probes)} of {count} probes came"
            )

    def wait_requests(self, count=1, timeout_s=TIMEOUT_S):
        """The requests so far, once there are at least `count`."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, timeout_s), (
                f"{len(self.requests)} of {count} requests came"
            )
        return self.requests

    def close(self):
        """Stops listening and cuts every connection: a dead process."""
        # Wakes the accepting thread, which otherwise keeps the listener open.
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        for connection in list(self._open):
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        assert not self.errors, self.errors
