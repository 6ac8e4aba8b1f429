"""An S3 server for benchmarks that lists large buckets fast.

It has only the operations that the benchmarks use. moto scans the whole bucket for every page, but
this server keeps its names sorted.
"""

from __future__ import annotations

import bisect
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

PAGE = 1000
PAGE_S = 0.05
"""Approximate time that S3 needs for one page of names."""


class LargeBucket:
    """Objects by name, and the handler of requests for them."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._names: list[str] = []
        self._lock = threading.Lock()
        self.num_pages = 0

    def put(self, name: str, content: bytes) -> None:
        """Add or replace an object. Adding objects in sorted order is fast."""
        with self._lock:
            if name not in self._objects:
                bisect.insort(self._names, name)
            self._objects[name] = content

    def answer(self, method: str, path: str, body: bytes, *, only_new: bool) -> tuple[int, bytes]:
        """Handle a request; return its status and content."""
        url = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        name = urllib.parse.unquote(url.path).lstrip("/").partition("/")[2]
        if method == "GET" and "list-type" in query:
            return 200, self._list(query)
        if method == "PUT":
            if only_new and name in self._objects:
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
            self.put(name, body)
            return 200, b""
        if method == "POST" and "delete" in query:
            keys = [part.partition("</Key>")[0] for part in body.decode().split("<Key>")[1:]]
            for key in keys:
                self._delete(key)
            deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode()
        if method == "DELETE":
            self._delete(name)
            return 204, b""
        if name not in self._objects:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        return 200, self._objects[name]

    def _delete(self, name: str) -> None:
        with self._lock:
            if self._objects.pop(name, None) is not None:
                del self._names[bisect.bisect_left(self._names, name)]

    def _list(self, query: dict[str, str]) -> bytes:
        self.num_pages += 1
        time.sleep(PAGE_S)
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        at = bisect.bisect_right(self._names, after) if after else 0
        at = max(at, bisect.bisect_left(self._names, prefix))
        page = [n for n in self._names[at : at + PAGE] if n.startswith(prefix)]
        more = len(page) == PAGE
        rows = "".join(
            f"<Contents><Key>{escape(n)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"0"</ETag><Size>{len(self._objects[n])}</Size></Contents>'
            for n in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"<KeyCount>{len(page)}</KeyCount>{token}{rows}</ListBucketResult>"
        ).encode()


@contextmanager
def serve(bucket: LargeBucket) -> Iterator[str]:
    """Serve a bucket and return the address of its server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            only_new = self.headers.get("if-none-match") == "*"
            status, content = bucket.answer(self.command, self.path, body, only_new=only_new)
            self.send_response(status)
            self.send_header("etag", '"0"')
            self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
