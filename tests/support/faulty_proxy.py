"""An HTTP proxy that does to an S3 server's traffic what bad networks and busy servers do."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_UPSTREAM_TIMEOUT_S = 60.0
_DELAY_S = 0.05
_DROPPED_HEADERS = {"connection", "expect", "keep-alive", "transfer-encoding"}


class Fault(Enum):
    """What happens to a request or to its answer."""

    SLOW_DOWN = "503 SlowDown, before any effect"
    UNAVAILABLE = "503 ServiceUnavailable, before any effect"
    INTERNAL = "500 InternalError, before any effect"
    CONFLICT = "409 ConditionalRequestConflict, before any effect"
    DROPPED = "connection closed before any effect"
    LOST = "connection closed after the effect, without an answer"
    TORN = "connection closed in the middle of the answer's body"
    DELAYED = "answered late"


_ANSWERS = {
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.INTERNAL: (500, "InternalError"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
}

ONE_IN_FIVE: Mapping[Fault, float] = {
    Fault.SLOW_DOWN: 0.005,  # clients wait a second after it
    Fault.UNAVAILABLE: 0.035,
    Fault.INTERNAL: 0.04,
    Fault.DROPPED: 0.04,
    Fault.LOST: 0.04,
    Fault.TORN: 0.02,
    Fault.DELAYED: 0.02,
}


class FaultyProxy:
    """Made by `faulty_proxy`.

    Attributes
    ----------
    endpoint : str
        URL for clients.
    fired : Counter of Fault
        Faults that happened so far.
    """

    def __init__(self, upstream: str, chances: Mapping[Fault, float], seed: int) -> None:
        self.fired: Counter[Fault] = Counter()
        self._upstream = urlsplit(upstream).netloc
        self._chances = dict(chances)
        self._random = random.Random(seed)
        self._planned: list[tuple[Fault, str, str]] = []
        self._lock = threading.Lock()
        self.server = _Server(self)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def once(self, fault: Fault, method: str, text: str = "", times: int = 1) -> None:
        """Plan a fault for the next requests of this method with `text` in their target."""
        with self._lock:
            self._planned += [(fault, method, text)] * times

    @property
    def planned(self) -> int:
        """Planned faults that no request has met yet."""
        return len(self._planned)

    def draw(self, method: str, target: str) -> Fault | None:
        """What happens to the next request."""
        with self._lock:
            for plan in self._planned:
                if plan[1] == method and plan[2] in target:
                    self._planned.remove(plan)
                    return plan[0]
            chance = self._random.random()
            for fault, share in self._chances.items():
                chance -= share
                if chance < 0:
                    return fault
        return None

    def count(self, fault: Fault) -> None:
        """It happened."""
        with self._lock:
            self.fired[fault] += 1

    def forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any, bytes]:
        """Status, headers and body of the server's answer. The signature covers the Host header,
        so all headers go on as they came."""
        connection = http.client.HTTPConnection(self._upstream, timeout=_UPSTREAM_TIMEOUT_S)
        try:
            connection.putrequest(
                request.command, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                if name.lower() not in _DROPPED_HEADERS:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


@contextmanager
def faulty_proxy(
    upstream: str, chances: Mapping[Fault, float] | None = None, seed: int = 0
) -> Iterator[FaultyProxy]:
    """A proxy in front of the server at the URL `upstream`, for the length of the block.

    Parameters
    ----------
    upstream : str
        URL of the server.
    chances : mapping of Fault to float, optional
        Share of the requests that each fault hits; none by default.
    seed : int
        Of the drawing.
    """
    proxy = FaultyProxy(upstream, chances or {}, seed)
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        thread.join()
        proxy.server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, proxy: FaultyProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or a server that is down: both are part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _handle(self) -> None:
        proxy, body = self.server.proxy, self._request_body()
        fault = proxy.draw(self.command, self.path)
        if fault in _ANSWERS:
            proxy.count(fault)
            self._answer(*_error(*_ANSWERS[fault]))
        elif fault is Fault.DROPPED:
            proxy.count(fault)
            self._hang_up()
        else:
            self._forward(body, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _forward(self, body: bytes, fault: Fault | None) -> None:
        proxy = self.server.proxy
        try:
            status, headers, content = proxy.forward(self, body)
        except OSError:  # the server is down
            self._hang_up()
            return
        if fault is Fault.LOST:
            proxy.count(fault)
            self._hang_up()
        elif fault is Fault.TORN and len(content) > 1:
            proxy.count(fault)
            self._answer(status, headers, content, sent=len(content) // 2)
            self._hang_up()
        else:
            if fault is Fault.DELAYED:
                proxy.count(fault)
                time.sleep(_DELAY_S)
            self._answer(status, headers, content)

    def _request_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = bytearray()
        while nbytes := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(nbytes)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return bytes(body)

    def _answer(self, status: int, headers: Any, content: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {*_DROPPED_HEADERS, "content-length"}:
                self.send_header(name, value)
        nbytes = headers.get("Content-Length") if self.command == "HEAD" else len(content)
        if status != 204 and nbytes is not None:
            self.send_header("Content-Length", str(nbytes))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:sent])

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    content = f"<Error><Code>{code}</Code><Message>A planned fault.</Message></Error>".encode()
    return status, {"Content-Type": "application/xml"}, content
