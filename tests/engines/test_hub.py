"""Models from a hub, for which a local server speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mclabel.domains.arith import bundled_model

COMMIT = "c" * 40
FILES = {p.name: p.read_bytes() for p in bundled_model("policy").iterdir() if p.is_file()}
FILES["original/consolidated.00.safetensors"] = b"the same weights again"
FILES["README.md"] = b"no part of a model"


class Hub(ThreadingHTTPServer):
    """A hub that has arith/policy; arith/gated is gated, and all other models are missing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.downloads: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0].removeprefix("/api/models")
        if path.startswith("/arith/gated"):
            self._send_answer(403, b"", {"X-Error-Code": "GatedRepo"})
        elif not path.startswith("/arith/policy"):
            self._send_answer(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif "no-such" in path:
            self._send_answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif "/resolve/" in path:
            self._send_file(path.split("/resolve/")[1].split("/", 1)[1])
        else:
            rows = [{"rfilename": name} for name in FILES]
            tree = [
                {"type": "file", "path": n, "size": len(b), "oid": "0"} for n, b in FILES.items()
            ]
            body = (
                tree
                if "/tree/" in path
                else {"id": "arith/policy", "sha": COMMIT, "siblings": rows}
            )
            self._send_answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _send_file(self, name: str) -> None:
        if name not in FILES:
            self._send_answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        content = FILES[name]
        if self.command == "GET":
            self.server.downloads[name] += 1
        tag = hashlib.sha256(content).hexdigest()
        self._send_answer(200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'})

    def _send_answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, content in headers.items():
            self.send_header(name, content)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def in_child(hub: Hub, cache: Path, code: str, before: str = "") -> subprocess.Popen[str]:
    """Run Python code in its own process, because the hub's client reads its environment once."""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(cache)}
    environment |= {
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    environment.pop("HF_TOKEN", None)
    program = (
        f"{before}\n"
        "from mclabel.core.errors import MclabelError\n"
        "from mclabel.engines.hub import fetch_model, resolve_model_commit\n"
        f"try:\n    print({code})\nexcept MclabelError as error:\n    print('refused:', error)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    )


def read_output(child: subprocess.Popen[str]) -> str:
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    return output.strip()


def test_engines_of_a_node_download_a_model_once(hub: Hub, tmp_path: Path) -> None:
    code = f"fetch_model('arith/policy', revision='{COMMIT}')"
    (folder,) = {read_output(child) for child in [in_child(hub, tmp_path, code) for _ in range(2)]}
    assert (Path(folder) / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    wanted = {name for name in FILES if "/" not in name and name != "README.md"}
    assert set(hub.downloads) == wanted
    assert set(hub.downloads.values()) == {1}


def test_a_tokenizer_alone_brings_no_weights(hub: Hub, tmp_path: Path) -> None:
    folder = read_output(
        in_child(hub, tmp_path, "fetch_model('arith/policy', revision=None, weights=False)")
    )
    assert (Path(folder) / "tokenizer.json").is_file()
    assert not list(Path(folder).glob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("resolve_model_commit('arith/policy', revision='main')", COMMIT),
        (
            "resolve_model_commit('arith/gated', revision=None)",
            "the model is gated. Ask for access",
        ),
        (
            "resolve_model_commit('arith/missing', revision=None)",
            "the Hugging Face Hub has no such model, or",
        ),
        (
            "resolve_model_commit('arith/policy', revision='no-such')",
            "has no such commit, branch or tag",
        ),
        (
            "resolve_model_commit('arith model', revision=None)",
            "neither a folder nor a Hugging Face name",
        ),
    ],
)
def test_what_the_hub_answers_is_one_clear_message(
    hub: Hub, tmp_path: Path, code: str, message: str
) -> None:
    assert message in read_output(in_child(hub, tmp_path, code))


def test_a_hub_that_cannot_be_reached(hub: Hub, tmp_path: Path) -> None:
    hub.shutdown()
    hub.server_close()
    # removes the pauses between the client's attempts
    at_once = "import time; time.sleep = lambda seconds: None"
    answer = read_output(
        in_child(hub, tmp_path, "resolve_model_commit('arith/policy', revision=None)", at_once)
    )
    assert answer.startswith("refused: policy.model='arith/policy': ")
    assert "cannot be reached" in answer
