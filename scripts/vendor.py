"""Download the vendored JavaScript: KaTeX for the package, and axe-core for the tests.

    python scripts/vendor.py

This command downloads the pinned versions from the npm registry and compares their checksums. It
writes the files that are used, with their licences. It also writes a SHA256SUMS, which a test
compares with the files.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mclabel" / "show" / "static" / "vendor"
TESTS = ROOT / "tests" / "report" / "vendor"


@dataclass(frozen=True, kw_only=True)
class Vendored:
    """Pinned version and used files of an npm package."""

    name: str
    version: str
    integrity: str
    """SHA-512 of the package in base64, as in the registry."""
    target: Path
    files: tuple[str, ...]
    """Patterns of the used paths in the package; files are written without a leading `dist/`."""


VENDORED = (
    Vendored(
        name="katex",
        version="0.19.1",
        integrity="jG8uKntjSEcm2EpQOh0XturpPuuC9r3Sq5HLHdsFdWZT27E672SF19QEi+of0/YeOy15lDgRhKvr5614uRrEfA==",
        target=PACKAGE / "katex",
        files=("LICENSE", "dist/katex.min.js", "dist/katex.min.css", "dist/fonts/*.woff2"),
    ),
    Vendored(
        name="axe-core",
        version="4.14.1",
        integrity="FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        target=TESTS / "axe-core",
        files=("LICENSE", "axe.min.js"),
    ),
)


def main() -> None:
    for one in VENDORED:
        shutil.rmtree(one.target, ignore_errors=True)
        content = _download_package(one)
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        if digest != one.integrity:
            raise SystemExit(f"{one.name}@{one.version}: sha512 {digest}, pinned {one.integrity}")
        _extract_files(one, content)
        print(f"{one.name} {one.version} -> {one.target.relative_to(ROOT)}")
    for folder in (PACKAGE, TESTS):
        (folder / "SHA256SUMS").write_text(
            "".join(f"{line}\n" for line in compute_checksums(folder))
        )


def compute_checksums(folder: Path) -> list[str]:
    """Return one line per vendored file under a folder, with its checksum and path, by path."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    return [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(folder)}" for p in files]


def _download_package(one: Vendored) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            ["npm", "pack", "--silent", f"{one.name}@{one.version}"], cwd=scratch, check=True
        )
        return next(Path(scratch).glob("*.tgz")).read_bytes()


def _extract_files(one: Vendored, content: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            inside = Path(member.name).relative_to("package")
            if not any(inside.match(pattern) for pattern in one.files):
                continue
            file = archive.extractfile(member)
            assert file is not None
            parts = inside.parts[1:] if inside.parts[0] == "dist" else inside.parts
            path = one.target.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.read())


if __name__ == "__main__":
    main()
