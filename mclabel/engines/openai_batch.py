"""The Batch API of OpenAI-compatible servers, for requests that may take a day at a lower price.

Requests are collected in a file until no more come or it is full; then a batch is made of it, and
each request fetches its response from the batch's files. Nothing is paid twice (see `Batches`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any

from pydantic import Field

from mclabel.core.errors import EngineError, RequestFailed
from mclabel.core.settings import MAX_SECONDS, OPERATIONAL
from mclabel.engines import openai_batch_calls as calls
from mclabel.engines.endpoints import BAD_TRIES, Endpoints, RefusedError, Request
from mclabel.engines.loading import Keep
from mclabel.engines.openai_answer import json_object
from mclabel.engines.openai_batch_answers import Answers, Reading
from mclabel.engines.openai_batch_calls import Gathered, Records, new_name
from mclabel.engines.settings import BatchSettings

logger = logging.getLogger(__name__)

_MISSING = (404, 405, 501)
"""HTTP statuses of servers for addresses that they do not have."""
BATCH_BYTES = 200_000_000
"""Largest file of a batch, which is OpenAI's limit."""
LOST_POLLS = 5
"""Polls in a row without a batch after which it is lost."""
FILE_POLLS = 20
"""Polls of a batch that has ended after which its files are not read any more."""


class BatchApiSettings(BatchSettings):
    """Settings of an engine that can ask in batches."""

    batch: Annotated[bool, OPERATIONAL] = False
    """True to use the server's Batch API."""
    batch_requests: Annotated[int, OPERATIONAL] = Field(50_000, ge=1, le=1_000_000)
    """Most requests in a batch."""
    batch_poll_s: Annotated[float, OPERATIONAL] = Field(30, gt=0, le=MAX_SECONDS)
    """Seconds between two polls of a batch, and without a new request before a batch is sent."""
    batch_wait_hours: Annotated[float, OPERATIONAL] = Field(48, gt=0, le=10_000)
    """Hours to wait for a batch before the job stops."""


def request_id(body: Mapping[str, Any], seed: int) -> str:
    """Name of a request: a digest of its body (prompt, sampling, limits) and its seed.

    Args:
        body: body of the request.
        seed: seed that differs between requests which must have responses of their own, such as the
            votes on one prompt.
    """
    text = json.dumps([body, seed], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Batches:
    """Sends requests to one server in batches, and records them in the run.

    A request is identified by a digest of its content, so equal requests are sent once, and a
    response is found by any of them. The requests in a file are recorded before its batch is made,
    and the batch's id after: a job that was killed between the two looks through the server's list
    for a batch of that file. So nothing is paid twice, unless a server makes a batch of a request
    that reached it only after the next run has looked.
    """

    def __init__(self, endpoints: Endpoints, keep: Keep | None, settings: Any, *, api: str) -> None:
        """Prepare to ask; `start` looks what earlier processes have asked.

        Args:
            endpoints: endpoints of the single server.
            keep: store of the run's files.
            settings: settings of the engine.
            api: API to ask, `completions` or `chat`.

        Raises:
            EngineError: there is no run.
        """
        if keep is None:
            raise EngineError(
                "policy.engine.batch=true: batches are remembered in the folder of a run, and this "
                "command has none. Leave out policy.engine.batch"
            )
        self._endpoints, self._records, self._settings = endpoints, Records(keep), settings
        self._url, self._address = settings.endpoints[0], calls.ADDRESSES[api]
        self._gathered, self._gathered_at = Gathered(), 0.0
        self._answers = Answers(endpoints, self._url, settings.retry_s)
        self._sent: dict[str, str] = {}
        """The batch that a request is in, while it is not known how that ended."""
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._num_empty = 0
        """Batches in a row that brought nothing."""
        self._num_unprocessed: Counter[str] = Counter()
        """Number of completed batches in which each request was left unprocessed."""
        self.num_signs = 0
        """Number of status reports on batches from the server."""

    async def start(self) -> None:
        """See that the server has the API, and read what was asked before.

        Raises:
            EngineError: it has not.
        """
        await self._call(lambda client: calls.listed(client, None, 1))
        self._sent |= await self._records.news()
        self._run("", self._send_when_quiet())

    async def answer(self, body: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Return the server's response, which may take a day.

        Args:
            body: body of the request.
            seed: see `request_id`.

        Raises:
            RequestFailed: the request failed, and is not to be asked again.
            EngineError: the server has failed a whole batch, has not ended one in time, or does
                not give the answers of one.
        """
        key = request_id(body, seed)
        while key not in self._answers:
            if (waiter := self._waiting.get(key)) is None:
                waiter = self._waiting[key] = asyncio.get_running_loop().create_future()
                waiter.add_done_callback(_look)
                try:
                    self._ask(key, body)
                except OSError as error:
                    del self._waiting[key]
                    raise _no_room(error) from error
                except RefusedError:
                    del self._waiting[key]
                    raise
            await asyncio.shield(waiter)
        return json_object(self._answers.get(key), self._address)

    def forget(self, body: Mapping[str, Any], seed: int, why: str) -> None:
        """Drop an answer of a busy server: the request is asked again the next time.

        Raises:
            RequestFailed: the request has failed too often.
        """
        key = request_id(body, seed)
        if (failure := self._again(key, why)) is not None:
            raise failure
        self._answers.forget(key)

    def _again(self, key: str, why: str) -> RequestFailed | None:
        """Count that a request was not processed; return its failure once that is final."""
        self._num_unprocessed[key] += 1
        if self._num_unprocessed[key] < BAD_TRIES:
            return None
        words = self._endpoints.shown(why)
        return RequestFailed(f"not processed in {BAD_TRIES} batches, the last time: {words}")

    async def close(self) -> None:
        """End all waiting here. Batches go on at the server."""
        tasks = list(self._running.values())
        if num_open := len(self._running.keys() - {""}):
            logger.warning(
                "%d batches have not ended: they go on at %s. Run the same command again to wait "
                "for them; nothing in them is asked twice",
                num_open,
                self._url,
            )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._gathered.file.close()
        self._answers.close()

    # Requests

    def _ask(self, key: str, body: Mapping[str, Any]) -> None:
        if (name := self._sent.get(key)) is not None:
            self._follow(name)
            return
        if key in self._gathered.lines:
            return  # of somebody who was cancelled
        line = calls.request_row(key, self._address, body)
        if len(line) > BATCH_BYTES:
            raise RefusedError(
                f"policy.engine.batch=true: a request of {len(line):,} bytes does not fit into the "
                f"{BATCH_BYTES:,} bytes of a batch. Set batch=false, or shorten the prompt"
            )
        if self._gathered.num_bytes + len(line) > BATCH_BYTES:
            self._send_gathered()
        self._gathered.add(key, line)
        self._gathered_at = time.monotonic()
        if len(self._gathered.lines) >= self._settings.batch_requests:
            self._send_gathered()

    async def _send_when_quiet(self) -> None:
        """Send collected requests once no more come; run until cancelled."""
        wait_s = self._settings.batch_poll_s
        while True:
            await asyncio.sleep(wait_s / 4)
            if self._gathered.lines and time.monotonic() - self._gathered_at >= wait_s:
                self._send_gathered()

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, Gathered()
        name = new_name()
        self._sent |= dict.fromkeys(gathered.lines, name)
        self._run(name, self._send(name, gathered))

    def _follow(self, name: str) -> None:
        if name not in self._running:
            self._run(name, self._resume(name))

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as error:  # it is raised where the requests are waited for
                if isinstance(error, OSError):
                    error = _no_room(error)
                for key in [key for key in self._waiting if name in ("", self._sent.get(key))]:
                    self._wake(key, error)
            finally:
                del self._running[name]

        self._running[name] = asyncio.create_task(run())

    def _wake(self, key: str, error: Exception | None = None) -> None:
        waiter = self._waiting.pop(key, None)
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    # Batches

    async def _send(self, name: str, gathered: Gathered) -> None:
        """Make a batch of what was gathered, but for what other workers have asked, and wait."""
        earlier = await self._records.news()
        elsewhere = gathered.lines.keys() & earlier.keys()
        self._sent |= {key: other for key, other in earlier.items() if key not in self._sent}
        for key in elsewhere:
            self._sent[key] = earlier[key]
            self._follow(earlier[key])
        if elsewhere:
            gathered = gathered.without(set(elsewhere))
        if not (keys := list(gathered.lines)):
            gathered.file.close()
            return
        file_id = await self._call(lambda client: calls.upload(client, name, gathered.file))
        gathered.file.close()
        await self._records.note_asked(name, file_id, keys)
        batch_id = await self._call(calls.creating(name, file_id, self._address))
        await self._records.note_batch(name, batch_id)
        logger.info("batch %s: %d requests are sent (%s)", name, len(keys), batch_id)
        await self._wait(name, batch_id, keys, is_ours=True)

    async def _resume(self, name: str) -> None:
        """Wait for a batch of an earlier process, or of another worker."""
        file_id, keys = await self._records.asked(name)
        batch_id = await self._records.batch_id(name)
        if batch_id is None:
            batch_id = await self._call(lambda client: calls.find(client, name, file_id))
            if batch_id is None:
                self._settle(name, keys, {})
                return
            await self._records.note_batch(name, batch_id)
        await self._wait(name, batch_id, keys, is_ours=False)

    async def _wait(self, name: str, batch_id: str, keys: list[str], *, is_ours: bool) -> None:
        """Wait until a batch has ended, and hand out what it brings."""
        settings, begun = self._settings, time.monotonic()
        while calls.status_of(batch := await self._poll(name, batch_id)) not in calls.ENDED:
            if time.monotonic() - begun >= settings.batch_wait_hours * 3600:
                raise EngineError(
                    f"policy.engine.batch_wait_hours={settings.batch_wait_hours:g}: the batch "
                    f"{batch_id} at {self._url} has not ended in that time, it is "
                    f"{batch.get('status')}. Run the same command again to wait on; nothing in it "
                    "is asked twice"
                )
            await asyncio.sleep(settings.batch_poll_s)
        await self._take(name, batch, batch_id, keys, is_ours=is_ours)

    async def _poll(self, name: str, batch_id: str) -> dict[str, Any]:
        """Return a batch as it is now.

        Raises:
            EngineError: the server has no such batch any more, or does not answer.
        """
        status_text, shown = "", f"the batch {batch_id} at {self._url}"
        for num_left in reversed(range(LOST_POLLS)):
            try:
                batch: dict[str, Any] = await self._request(
                    lambda client: calls.retrieve(client, batch_id)
                )
            except RefusedError as error:
                status_text = str(error)
            except RequestFailed as error:
                raise EngineError(f"policy.engine.batch=true: {shown}: {error}") from error
            else:
                self.num_signs += 1
                if calls.status_of(batch):
                    return batch
                status_text = f"its answer is {self._endpoints.shown(json.dumps(batch))}"
            if num_left:
                await asyncio.sleep(self._settings.batch_poll_s)
        raise EngineError(
            f"policy.engine.batch=true: {shown} was not found in {LOST_POLLS} polls: "
            f"{status_text}. Look for it in the server's list of batches and run the command "
            "again, or delete "
            f"batches/{name}.* in the run to ask, and pay, its requests again"
        )

    async def _take(
        self,
        name: str,
        batch: Mapping[str, Any],
        batch_id: str,
        keys: list[str],
        *,
        is_ours: bool,
    ) -> None:
        """Hand out what a batch that has ended brings; what it did not process is asked again."""
        keys = [key for key in keys if self._sent.get(key) == name]  # others are in a later batch
        reading = await self._read_files(name, batch, batch_id, keys)
        failures = {
            key: failure
            for key, failure in reading.failures.items()
            # what an account lacked in an earlier process, it may have now
            if is_ours or isinstance(failure, RequestFailed)
        }
        status, shown = calls.status_of(batch), f"{batch_id} at {self._url}"
        if status == "completed":
            for key, why in reading.unprocessed.items():
                if (failure := self._again(key, why)) is not None:
                    failures[key] = failure
        num_found = sum(key in self._answers for key in keys)
        num_again = len(keys) - num_found - len(failures)
        is_empty = num_again and not num_found and status != "completed"
        self._num_empty = self._num_empty + 1 if is_empty else 0
        if status == "failed" and not num_found:
            await self._records.delete(name)
            raise EngineError(
                f"policy.engine.batch=true: the batch {shown} has failed: "
                f"{self._endpoints.shown(calls.why(batch))}. Nothing in it is paid. Correct "
                "that, or lower policy.engine.batch_requests if it is a limit, and run the command "
                "again"
            )
        if num_again:
            logger.warning(
                "the batch %s is %s: %d of its %d requests have answers, %d failed. The other %d "
                "are asked again in a new batch",
                shown,
                status,
                num_found,
                len(keys),
                len(failures),
                num_again,
            )
        if self._num_empty >= BAD_TRIES:
            raise EngineError(
                f"policy.engine.batch=true: {self._num_empty} batches in a row brought no answer; "
                f"the last one, {shown}, is {status}. See the server's list of batches, or leave "
                "out policy.engine.batch"
            )
        self._settle(name, keys, failures)

    def _settle(self, name: str, keys: list[str], failures: Mapping[str, Exception]) -> None:
        """Wake the requests of an ended batch: they look for a response, or are sent again."""
        for key in keys:
            if self._sent.get(key) == name:
                del self._sent[key]
                self._wake(key, failures.get(key))

    async def _read_files(
        self, name: str, batch: Mapping[str, Any], batch_id: str, keys: list[str]
    ) -> Reading:
        """Read the answers of a batch that has ended; its files may be there some time later.

        Raises:
            EngineError: the files cannot be read.
        """
        wanted = frozenset(keys)
        for num_left in reversed(range(FILE_POLLS)):
            reading = await self._answers.read(batch, wanted)
            failures, faults = reading.failures, reading.faults
            answered = [key for key in keys if key in self._answers or key in failures]
            missing = wanted.difference(answered, reading.unprocessed)
            lacks_answers = bool(faults) or calls.num_completed(batch) > len(answered)
            was_cut_off = calls.status_of(batch) in calls.ENDED - {"completed"}
            if not missing or (was_cut_off and not lacks_answers):
                return reading
            if not (num_left and reading.may_pass):
                break
            await asyncio.sleep(self._settings.batch_poll_s)
            batch = await self._poll(name, batch_id)
        if lacks_answers or not reading.num_rows:
            raise EngineError(
                f"policy.engine.batch=true: the batch {batch_id} at {self._url} is "
                f"{calls.status_of(batch)}, but {len(missing):,} of its answers cannot be read: "
                f"{'; '.join(faults) or 'the files that it names lack them'}. Run the same command "
                "again to read them; nothing in it is asked twice. To pay for its requests again, "
                f"delete batches/{name}.* in the run"
            )
        no_row = RequestFailed(f"the files of the batch {batch_id} have no row for the request")
        reading.failures |= dict.fromkeys(missing, no_row)
        return reading

    async def _call(self, request: Request) -> Any:
        """Call the batch API and return the response; try again while the server is busy.

        Raises:
            EngineError: it does not; that is no failure of the requests in a batch.
        """
        try:
            return await self._request(request)
        except RefusedError as error:
            status = getattr(error.__cause__, "status_code", None)
            if status not in _MISSING:
                raise EngineError(str(error)) from error
            raise EngineError(
                f"policy.engine.batch=true: {self._url} has no Batch API, or no longer what the "
                f"run's batches need (HTTP {status}). Leave out policy.engine.batch, give the "
                "server that made them, or delete batches/ in the run to ask, and pay, again"
            ) from error
        except RequestFailed as error:
            raise EngineError(str(error)) from error

    async def _request(self, request: Request) -> Any:
        """Send a request of the API itself, again while the server is busy."""
        return await self._endpoints.ask(request, home=0, retry_s=self._settings.retry_s)


def _look(waiter: asyncio.Future[None]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not waiter.cancelled():
        waiter.exception()


def _no_room(error: OSError) -> EngineError:
    return EngineError(
        f"policy.engine.batch=true: {error}. Requests and answers are kept in "
        f"{tempfile.gettempdir()}: make room there, or set TMPDIR to another folder"
    )
