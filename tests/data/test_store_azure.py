"""The store on Azure, tested with the Azurite emulator.

Azurite comes from the makers of Azure: npm install azurite, `azurite-blob` on the PATH.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from mclabel.run.shards.store import Store
from tests.support.ports import free_port

pytestmark = pytest.mark.azure

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key of every Azurite account, which is not a secret."""
CONTAINER = "container"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment in which `az://container` is on a local Azurite server."""
    port = free_port()
    folder = tmp_path_factory.mktemp("azurite")
    command = ["azurite-blob", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    server = subprocess.Popen([*command, "--location", str(folder), "--blobPort", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not accepts_connections(port):
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        make_container(url)
        yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}
    finally:
        server.terminate()
        server.wait()


def accepts_connections(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_container(url: str) -> None:
    """Create the container by a signed request, because obstore cannot create containers."""
    date, version = formatdate(usegmt=True), "2021-08-06"
    headers = f"x-ms-date:{date}\nx-ms-version:{version}\n"
    resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signed = "PUT" + "\n" * 12 + headers + resource
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    request = urllib.request.Request(
        f"{url}/{ACCOUNT}/{CONTAINER}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": version,
            "Content-Length": "0",
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201


@pytest.fixture(autouse=True)
def environment(azure: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in azure.items():
        monkeypatch.setenv(name, value)


def test_create_read_append_list_delete(tmp_path: Path) -> None:
    store = Store(f"az://{CONTAINER}/plain")
    assert store.create("labels/a", b"one") and not store.create("labels/a", b"two")
    assert store.read("labels/a") == b"one" and store.read("labels/none") is None
    store.append("log", b"x")
    store.append("log", b"y")
    assert store.read("log") == b"xy"
    assert store.download("labels/a", tmp_path / "a") and not store.download(
        "none", tmp_path / "none"
    )
    assert (tmp_path / "a").read_bytes() == b"one"
    assert abs(store.modified_times("labels")["labels/a"].timestamp() - time.time()) < 600
    store.delete("labels/a")
    store.delete("labels/a")
    assert store.names("labels") == [] and store.names("") == ["log"]
