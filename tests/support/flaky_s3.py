"""A real S3 server (moto's) behind a proxy that fails on demand."""

from __future__ import annotations

import http.client
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

import pytest

from mclabel.run.shards import store

Fault = Literal["ok", "503", "drop", "lose answer", "stall"]


class _QuietServer(ThreadingHTTPServer):
    """A server that does not report clients that disconnect, since tests kill them."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class FlakyS3:
    """The proxy; its function `fault` chooses the fault of each request."""

    def __init__(self, target: str) -> None:
        self.fault: Callable[[str, str], Fault] = lambda method, path: "ok"
        self.num_requests = 0
        self.asked: set[tuple[str, str, str]] = set()
        """Command, path and range of each request. A request that is repeated after a lost
        connection counts once.
        """
        self.stall_s = 30.0
        self._released = threading.Event()
        host, port = target.removeprefix("http://").split(":")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def _serve(self) -> None:
                outer.num_requests += 1
                outer.asked.add((self.command, self.path, self.headers.get("range") or ""))
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                fault = outer.fault(self.command, self.path)
                if fault == "stall":
                    outer._released.wait(outer.stall_s)
                if fault in ("drop", "stall"):
                    self.close_connection = True
                    self.connection.close()
                    return
                if fault == "503":
                    self.send_response(503)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                upstream = http.client.HTTPConnection(host, int(port))
                headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                content = answer.read()
                if fault == "lose answer":
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = answer.getheader("content-length")
                size = length if self.command == "HEAD" and length else str(len(content))
                self.send_header("content-length", size)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def flaky_s3(bucket: str) -> Iterator[FlakyS3]:
    """Start an S3 server with one bucket, behind a proxy."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto logs one line per request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    proxy = FlakyS3(f"http://{host}:{port}")
    try:
        boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        ).create_bucket(Bucket=bucket)
        yield proxy
    finally:
        proxy.close()
        server.stop()


def s3_environment(proxy: FlakyS3) -> dict[str, str]:
    """Return the environment in which `s3://` addresses lead to the proxy."""
    return {
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def retry_soon(patch: pytest.MonkeyPatch) -> None:
    """Let stores retry failed requests after milliseconds, with the usual number of retries."""
    backoff = {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(seconds=1)}
    patch.setitem(store._RETRIES, "backoff", {**backoff, "base": 2})
