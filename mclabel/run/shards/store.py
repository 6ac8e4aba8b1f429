"""A folder or bucket in which files are created atomically and never overwritten.

`create` is the operation by which everything is committed. It creates a file exclusively, in a
local folder (`mclabel.run.shards.durable`) or, by `obstore`, in S3, Google Cloud Storage or Azure.
Only logs are appended to, and only summaries are replaced. If a bucket's reply to a creation is
lost, the retry finds the file that the first try created, and `create` returns False although this
process created the file. So after False callers read the existing file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, NotFoundError
from obstore.store import LocalStore, ObjectStore, from_url

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.core.plain_files import check_plain
from mclabel.run.shards.durable import create_durably, delete_partial_files, replace_durably

_RETRIES: Any = {
    "max_retries": 12,
    "backoff": {
        "init_backoff": timedelta(milliseconds=200),
        "max_backoff": timedelta(seconds=30),
        "base": 2,
    },
}
_PIECE = 1 << 25
"""Number of bytes of a large file that one request reads."""
_CLIENT: Any = {"timeout": timedelta(seconds=60), "connect_timeout": timedelta(seconds=10)}


class Store:
    """Files under one folder or URL."""

    def __init__(
        self,
        location: str,
        *,
        create: bool = False,
        retry_s: float = 240.0,
        was_reached: bool = False,
    ) -> None:
        """Open a folder or a bucket.

        Args:
            location: local folder, or a URL such as `s3://bucket/prefix`, whose credentials come
                from the environment.
            create: True creates the local folder if it is missing.
            retry_s: maximum number of seconds for which a request to a URL is retried.
            was_reached: True if another process has just reached the URL. Then the first request is
                retried for `retry_s` seconds like every other; if False, it fails after
                `FIRST_CONTACT_S` seconds.

        Raises:
            ShardError: the local folder is missing, or the URL is invalid.
        """
        if not location:
            raise ShardError(
                "'': the name must not be empty. Give a folder, or a URL such as s3://bucket/run"
            )
        self.location = location
        self.is_local = "://" not in location
        self._was_reached = was_reached or self.is_local
        if not self.is_local:
            retries: Any = {**_RETRIES, "retry_timeout": timedelta(seconds=retry_s)}
            client: Any = {**_CLIENT, **self._make_client_options()}
            try:
                self._store: ObjectStore = from_url(
                    location, config=None, retry_config=retries, client_options=client
                )
            except (BaseError, ValueError) as error:
                raise ShardError(
                    f"{location}: not a usable store URL: {error}. Give a URL such as "
                    "s3://bucket/run"
                ) from error
            return
        self._path = Path(location).absolute()
        if self._path.exists() and not self._path.is_dir():
            raise ShardError(
                f"{location}: is a file, must be a folder. Give the folder of a run, such as "
                "runs/quickstart/labels"
            )
        if not self._path.is_dir():
            if not create:
                raise ShardError(f"{location}: no such folder. Give an existing one")
            with self._raise_shard_errors(""):
                self._path.mkdir(parents=True, exist_ok=True)
        self._store = LocalStore(self._path)

    def create(self, name: str, content: bytes) -> bool:
        """Create a file; return False and change nothing if a file of this name exists.

        Raises:
            ShardError: the file cannot be written.
        """
        with self._raise_shard_errors(name):
            if self.is_local:
                return create_durably(self._path, name, content)
            try:
                obstore.put(self._store, name, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        with self._raise_shard_errors(name):
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except (NotFoundError, FileNotFoundError):
                return None

    def replace(self, name: str, content: IO[bytes]) -> None:
        """Write a file atomically, replacing any file of the same name.

        Args:
            name: name of the file, which only one process may write.
            content: stream that is read to its end.

        Raises:
            ShardError: the file cannot be written.
        """
        with self._raise_shard_errors(name):
            if self.is_local:
                replace_durably(self._path, name, content)
            else:
                obstore.put(self._store, name, content, mode="overwrite")

    def download(self, name: str, path: Path) -> bool:
        """Copy a file of the store to a local path in pieces; return False if it does not exist.

        Args:
            name: name of the file.
            path: local path to write to.

        Raises:
            ShardError: the file cannot be read, or changes while it is copied.
        """
        with self._raise_shard_errors(name), path.open("wb") as file:
            try:
                about = obstore.head(self._store, name)
            except (NotFoundError, FileNotFoundError):
                return False
            options: Any = {"if_match": about["e_tag"]} if about["e_tag"] else {}
            for start in range(0, about["size"], _PIECE):
                options["range"] = (start, min(start + _PIECE, about["size"]))
                file.write(obstore.get(self._store, name, options=options).bytes())
            return True

    def names(self, folder: str) -> list[str]:
        """Return the names of all files under `folder`, sorted."""
        return sorted(self.iter_names(folder))

    def iter_names(self, folder: str) -> Iterator[str]:
        """Yield the names of all files under `folder` in any order, while the store is being
        listed.
        """
        return (name for name, _ in self.sizes(folder))

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield the names of all files under `folder` and their sizes in bytes, in any order."""
        with self._raise_shard_errors(folder):
            for page in obstore.list(self._store, prefix=folder):
                yield from ((meta["path"], meta["size"]) for meta in page)

    def read_tails(self, names: Iterable[str], num_bytes: int) -> Iterator[tuple[str, bytes]]:
        """Yield the last bytes of local files, fewer if a file is shorter; skip missing files."""
        root = str(self._path)
        with self._raise_shard_errors("labels"):
            for name in names:
                check_plain(f"{root}/{name}", ShardError, name=self.location)
                try:
                    handle = os.open(f"{root}/{name}", os.O_RDONLY)
                except FileNotFoundError:
                    continue
                try:
                    size = os.lseek(handle, 0, os.SEEK_END)
                    yield name, os.pread(handle, num_bytes, max(0, size - num_bytes))
                finally:
                    os.close(handle)

    def append(self, name: str, content: bytes) -> None:
        """Append to a log with one writer process. On an object store, rewrite the whole file."""
        with self._raise_shard_errors(name):
            if self.is_local:
                with (self._path / name).open("ab") as file:
                    file.write(content)
                return
            obstore.put(self._store, name, (self.read(name) or b"") + content, mode="overwrite")

    def modified_times(self, folder: str) -> dict[str, datetime]:
        """Return the time of the last write to each file under `folder`, by the store's clock."""
        with self._raise_shard_errors(folder):
            pages = obstore.list(self._store, prefix=folder)
            return {meta["path"]: meta["last_modified"] for page in pages for meta in page}

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if it does not exist."""
        with self._raise_shard_errors(name), suppress(NotFoundError, FileNotFoundError):
            obstore.delete(self._store, name)

    def delete_folder(self, folder: str) -> None:
        """Delete a local folder if it is empty. An object store has no empty folders."""
        if not self.is_local:
            return
        with self._raise_shard_errors(folder):
            try:
                (self._path / folder).rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def delete_partial_files(self) -> None:
        """Delete partial files that killed processes have left in a local folder."""
        if self.is_local:
            delete_partial_files(self._path)

    @contextmanager
    def _raise_shard_errors(self, name: str) -> Iterator[None]:
        if not _is_valid_name(name):  # a damaged or hostile file of the run can contain any name
            raise ShardError(
                f"{self.location}: {name!r} is not a valid name of a file of the run, though "
                "another file refers to it. Delete the damaged file and run the job again"
            )
        if not self._was_reached:
            check_bucket_reachable(self.location, self._make_client_options())
            self._was_reached = True
        if self.is_local and name:
            check_plain(self._path / name, ShardError, name=self.location)
        try:
            yield
        except (BaseError, OSError) as error:
            raise ShardError(
                f"{self.location}/{name}: {type(error).__name__}: {describe_store_error(error)}. "
                "Committed blocks are safe. When the store works again, run the same command"
            ) from error

    def _make_client_options(self) -> dict[str, Any]:
        """Return the options of the HTTP client of a bucket, without its timeouts."""
        return {"allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")}


def _is_valid_name(name: Any) -> bool:
    """Return whether a value read from a file of the run is a valid name of a file in the run."""
    if not isinstance(name, str) or not name.isprintable():
        return False
    return not name or not {"", ".", ".."} & set(name.split("/"))


CHANGED = "damaged: its content has changed since it was written"
"""Fault of a file whose digest does not match its content, for messages."""
CUT_OFF = "damaged: it is cut off"
"""Fault of a truncated file, for messages."""


def make_damaged_file_error(store: Store, name: str, fault: str = CHANGED) -> DamagedFile:
    """Return the error to raise for a damaged file, with its remedy.

    Args:
        store: the run's store.
        name: name of the file in the store.
        fault: description of the damage, for the message.
    """
    return DamagedFile(store.location, name, fault, describe_damaged_file_remedy(name))


def describe_damaged_file_remedy(name: str) -> str:
    """Return the remedy for a damaged file, which depends on the kind of file that its name
    shows.
    """
    folder, _, rest = name.rpartition("/")
    match folder.split("/"):
        case ["labels"]:
            return "Delete it and run the job again, which labels its block again"
        case ["opinions"]:
            return "Delete it and run the job again, which judges its block again"
        case ["trees"]:
            return (
                f"Delete it and labels/{rest.partition('.')[0]}.parquet and run `mclabel search` "
                "again with the same settings, which searches its block again"
            )
        case ["rollouts"]:
            return (
                f"Labels can be read without it. To restore the rollouts, delete it and labels/"
                f"{rest.partition('.')[0]}.parquet and run the job again, which labels the block "
                "again"
            )
        case ["plan"]:
            return (
                "Restore it from a copy, or delete the whole folder plan/ and run the job again: "
                "it makes a new plan, keeps blocks with the same problems and labels others again"
            )
        case ["priors"]:
            return (
                "Delete it: labels that depend on it stay valid but cannot be regraded, and an "
                "unfinished job learns new priors"
            )
        case ["journals", *_]:
            return "You need not do anything: the job samples its content again"
        case ["drivers"] | ["rejects"]:
            return "Delete it: nothing depends on it"
        case _:
            return _SINGLE.get(name, "Restore it from a copy, or create it again")


_SINGLE = {
    "run.json": "Restore it from a copy, or choose another out=…",
    "spent.json": "Delete it: the job then counts what it spends from zero",
    "finished.json": "Delete it: the same command writes it again once the job has finished",
    "rejects.jsonl": "Run the job again, which writes it again",
    "progress.jsonl": "Delete it, or the damaged lines: it is only a log",
}


FIRST_CONTACT_S = 5
"""Maximum number of seconds for which the first request to a bucket is retried."""
_FIRST_RETRIES: Any = {
    "max_retries": 20,
    "retry_timeout": timedelta(seconds=FIRST_CONTACT_S),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(milliseconds=500),
        "base": 2,
    },
}
_TIMEOUTS: Any = {
    "timeout": timedelta(seconds=FIRST_CONTACT_S),
    "connect_timeout": timedelta(seconds=3),
}
MAX_REASON = 500
"""Maximum length of a store's own error message, in characters."""


@dataclass(frozen=True, kw_only=True)
class _ServiceVariables:
    """Environment variables that configure a kind of object store."""

    endpoint: tuple[str, ...]
    """Names of environment variables that set the store's address; the first that is set counts."""
    default: str
    """Description of the store's address if none of these variables is set, for messages."""
    credentials: str
    """Names of environment variables that set the credentials, for messages."""


_S3 = _ServiceVariables(
    endpoint=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    default="Amazon's own address",
    credentials="AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
)
_AZURE = _ServiceVariables(
    endpoint=("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    default="Azure's own address",
    credentials="AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
)
_SERVICES: Mapping[str, _ServiceVariables] = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _ServiceVariables(
        endpoint=(), default="Google's own address", credentials="GOOGLE_APPLICATION_CREDENTIALS"
    ),
    **dict.fromkeys(("az", "adl", "azure", "abfs", "abfss"), _AZURE),
}
_answered: set[tuple[str, str, str]] = set()
"""Scheme, name and address of each bucket that has answered a request of this process."""


def check_bucket_reachable(location: str, client: Mapping[str, Any]) -> None:
    """Check that a bucket answers, unless it has answered this process before.

    Later requests are retried for minutes. The first request fails after `FIRST_CONTACT_S` seconds,
    because retries would not help against a misspelt endpoint, a missing network or missing
    credentials.

    Args:
        location: URL in the bucket; locations that are not in an object store are not checked.
        client: options of the client, without its timeouts.

    Raises:
        ShardError: the bucket has not answered within `FIRST_CONTACT_S` seconds.
    """
    url = urlsplit(location)
    service = _SERVICES.get(url.scheme)
    if service is None:
        return
    named = (os.environ.get(name) for name in service.endpoint)
    address = next(filter(None, named), service.default)
    bucket = (url.scheme, url.netloc, address)
    if bucket in _answered:
        return
    options: Any = {**client, **_TIMEOUTS}
    store = from_url(location, config=None, retry_config=_FIRST_RETRIES, client_options=options)
    try:
        obstore.head(store, "run.json")
    except GenericError as error:
        raise ShardError(
            f"{location}: the store cannot be reached, or accepts no request, at {address} "
            f"({describe_store_error(error)}). Nothing was written. Check the network, the name of "
            f"the bucket, the address ({' or '.join(service.endpoint) or 'which is fixed'}) and "
            f"the credentials ({service.credentials}) in the environment"
        ) from error
    except (BaseError, FileNotFoundError):
        pass  # the bucket has answered, even if the file does not exist or must not be read
    _answered.add(bucket)


def describe_store_error(error: Exception) -> str:
    """Return a store's error message as one line, without the client's debug output."""
    return " ".join(str(error).partition("Debug source")[0].split())[:MAX_REASON]
