"""Sends requests through the Batch API of OpenAI-compatible servers.

A batch is cheaper than single requests, but may take a day. Requests are collected in a file until
no new request arrives for a while or the file is full. Then the file is sent as a batch. When the
batch has ended, its output files hold the response of each request. No request is paid for twice;
see `BatchClient`.
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
from mclabel.engines.loading import RunFiles
from mclabel.engines.openai_answer import parse_json_object
from mclabel.engines.openai_batch_answers import AnswerFile, BatchReading
from mclabel.engines.openai_batch_calls import BatchRecords, CollectedRequests, new_batch_name
from mclabel.engines.settings import BatchSettings

logger = logging.getLogger(__name__)

_MISSING = (404, 405, 501)
"""HTTP statuses of a server that lacks the Batch API."""
BATCH_BYTES = 200_000_000
"""Maximum bytes of a batch's input file, which is OpenAI's limit."""
LOST_POLLS = 5
"""Number of polls in a row that do not find a batch, after which the batch counts as lost."""
FILE_POLLS = 20
"""Maximum number of attempts to read the output files of an ended batch."""


class BatchApiSettings(BatchSettings):
    """Settings of an engine that can use the Batch API."""

    batch: Annotated[bool, OPERATIONAL] = False
    """True to send requests through the server's Batch API."""
    batch_requests: Annotated[int, OPERATIONAL] = Field(50_000, ge=1, le=1_000_000)
    """Maximum number of requests in a batch."""
    batch_poll_s: Annotated[float, OPERATIONAL] = Field(30, gt=0, le=MAX_SECONDS)
    """Seconds between two polls of a batch. A batch is also sent after this time without a new
    request."""
    batch_wait_hours: Annotated[float, OPERATIONAL] = Field(48, gt=0, le=10_000)
    """Maximum hours to wait for a batch before the job stops."""


def request_id(body: Mapping[str, Any], seed: int) -> str:
    """Return the id of a request: a digest of its body and its seed.

    Args:
        body: body of the request: prompt, sampling parameters and limits.
        seed: seed that distinguishes requests with the same body which need separate responses,
            such as several votes on one prompt.
    """
    text = json.dumps([body, seed], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class BatchClient:
    """Sends requests to one server in batches, and records them in the run.

    The id of a request is a digest of its content. Equal requests are therefore sent once and share
    the response. The ids of a batch's requests are recorded before the batch is made, and the
    server's id of the batch afterwards. If a job is killed in between, the next run searches the
    server's list for a batch of the same input file. So no request is paid for twice, with one
    exception: the server may create a batch only after the next run has searched the list.
    """

    def __init__(
        self, endpoints: Endpoints, keep: RunFiles | None, settings: Any, *, api: str
    ) -> None:
        """Prepare to send requests; `start` reads the batches of earlier processes.

        Args:
            endpoints: client of the single server.
            keep: store of the run's files; None without a run.
            settings: settings of the engine.
            api: name of the API, `completions` or `chat`.

        Raises:
            EngineError: `keep` is None, so batches could not be recorded.
        """
        if keep is None:
            raise EngineError(
                "policy.engine.batch=true: batches are recorded in the folder of a run, and this "
                "command has no such folder. Leave out policy.engine.batch"
            )
        self._endpoints, self._records, self._settings = endpoints, BatchRecords(keep), settings
        self._url, self._address = settings.endpoints[0], calls.ADDRESSES[api]
        self._gathered, self._gathered_at = CollectedRequests(), 0.0
        self._answers = AnswerFile(endpoints, self._url, settings.retry_s)
        self._sent: dict[str, str] = {}
        """Maps the id of a request to the name of its batch, until the batch's result is read."""
        self._waiting: dict[str, asyncio.Future[None]] = {}
        """Maps the id of a request to a future that is done once the request has to look for its
        response, or is to be sent again."""
        self._running: dict[str, asyncio.Task[None]] = {}
        """Maps the name of a batch to the task that sends it or waits for it. The name "" belongs
        to the task that sends collected requests."""
        self._num_empty = 0
        """Number of batches in a row that ended without any answer."""
        self._num_unprocessed: Counter[str] = Counter()
        """Maps the id of a request to the number of completed batches that left it unprocessed."""
        self.num_signs = 0
        """Number of status reports on batches from the server."""

    async def start(self) -> None:
        """Check that the server has the Batch API, and read the records of earlier batches.

        Raises:
            EngineError: the server lacks the Batch API or does not answer, or a record is damaged.
        """
        await self._call_when_free(lambda client: calls.list_batches(client, None, 1))
        self._sent |= await self._records.read_added_batches()
        self._run("", self._send_when_quiet())

    async def fetch_answer(self, body: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Return the server's response, which may take a day.

        Args:
            body: body of the request.
            seed: see `request_id`.

        Raises:
            RequestFailed: the request failed finally.
            EngineError: a whole batch failed, did not end in time, or its answers cannot be read.
        """
        key = request_id(body, seed)
        while key not in self._answers:
            if (waiter := self._waiting.get(key)) is None:
                waiter = self._waiting[key] = asyncio.get_running_loop().create_future()
                waiter.add_done_callback(_retrieve_error)
                try:
                    self._collect_request(key, body)
                except OSError as error:
                    del self._waiting[key]
                    raise _disk_error(error) from error
                except RefusedError:
                    del self._waiting[key]
                    raise
            await asyncio.shield(waiter)
        return parse_json_object(self._answers.get(key), self._address)

    def discard_answer(self, body: Mapping[str, Any], seed: int, why: str) -> None:
        """Drop the answer of a busy server, so that the next `answer` sends the request again.

        Args:
            body: body of the request.
            seed: see `request_id`.
            why: message of the server.

        Raises:
            RequestFailed: the request was left unprocessed too often.
        """
        key = request_id(body, seed)
        if (failure := self._count_unprocessed(key, why)) is not None:
            raise failure
        self._answers.discard_answer(key)

    def _count_unprocessed(self, key: str, why: str) -> RequestFailed | None:
        """Count that a request was left unprocessed.

        Return None if the request may be sent again, or its error after `BAD_TRIES` batches.
        """
        self._num_unprocessed[key] += 1
        if self._num_unprocessed[key] < BAD_TRIES:
            return None
        words = self._endpoints.clean_message(why)
        return RequestFailed(
            f"the request was not processed in {BAD_TRIES} batches. The server's last message: "
            f"{words}"
        )

    async def close(self) -> None:
        """Stop waiting for batches. They continue on the server."""
        tasks = list(self._running.values())
        if num_open := len(self._running.keys() - {""}):
            logger.warning(
                "%d batches have not ended. They continue at %s. Run the same command again to "
                "wait for them; no request in them is sent twice",
                num_open,
                self._url,
            )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._gathered.file.close()
        self._answers.close()

    # Requests

    def _collect_request(self, key: str, body: Mapping[str, Any]) -> None:
        if (name := self._sent.get(key)) is not None:
            self._follow(name)
            return
        if key in self._gathered.lines:
            return  # an equal request, whose caller was cancelled, is collected already
        line = calls.request_row(key, self._address, body)
        if len(line) > BATCH_BYTES:
            raise RefusedError(
                f"policy.engine.batch=true: a request has {len(line):,} bytes, but a batch can "
                f"have at most {BATCH_BYTES:,}. Set policy.engine.batch=false, or shorten the "
                "prompt"
            )
        if self._gathered.num_bytes + len(line) > BATCH_BYTES:
            self._send_gathered()
        self._gathered.add(key, line)
        self._gathered_at = time.monotonic()
        if len(self._gathered.lines) >= self._settings.batch_requests:
            self._send_gathered()

    async def _send_when_quiet(self) -> None:
        """Send the collected requests whenever no new request has arrived for `batch_poll_s`.

        Run until cancelled.
        """
        wait_s = self._settings.batch_poll_s
        while True:
            await asyncio.sleep(wait_s / 4)
            if self._gathered.lines and time.monotonic() - self._gathered_at >= wait_s:
                self._send_gathered()

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, CollectedRequests()
        name = new_batch_name()
        self._sent |= dict.fromkeys(gathered.lines, name)
        self._run(name, self._send(name, gathered))

    def _follow(self, name: str) -> None:
        if name not in self._running:
            self._run(name, self._resume(name))

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as error:  # passed on to the callers that wait for the requests
                if isinstance(error, OSError):
                    error = _disk_error(error)
                for key in [key for key in self._waiting if name in ("", self._sent.get(key))]:
                    self._wake_caller(key, error)
            finally:
                del self._running[name]

        self._running[name] = asyncio.create_task(run())

    def _wake_caller(self, key: str, error: Exception | None = None) -> None:
        waiter = self._waiting.pop(key, None)
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    # Batches

    async def _send(self, name: str, gathered: CollectedRequests) -> None:
        """Send the collected requests as a batch, and wait for the batch.

        Requests that other workers have sent already are left out; this worker waits for their
        batches instead.
        """
        earlier = await self._records.read_added_batches()
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
        file_id = await self._call_when_free(
            lambda client: calls.upload_input_file(client, name, gathered.file)
        )
        gathered.file.close()
        await self._records.record_requests(name, file_id, keys)
        batch_id = await self._call_when_free(
            calls.make_batch_creator(name, file_id, self._address)
        )
        await self._records.record_batch_id(name, batch_id)
        logger.info("batch %s: sent %d requests (server's id: %s)", name, len(keys), batch_id)
        await self._wait(name, batch_id, keys, is_ours=True)

    async def _resume(self, name: str) -> None:
        """Wait for a batch that an earlier process or another worker sent."""
        file_id, keys = await self._records.read_requests(name)
        batch_id = await self._records.batch_id(name)
        if batch_id is None:
            batch_id = await self._call_when_free(
                lambda client: calls.find_batch(client, name, file_id)
            )
            if batch_id is None:
                self._settle(name, keys, {})
                return
            await self._records.record_batch_id(name, batch_id)
        await self._wait(name, batch_id, keys, is_ours=False)

    async def _wait(self, name: str, batch_id: str, keys: list[str], *, is_ours: bool) -> None:
        """Wait until a batch has ended, and deliver its results.

        Args:
            name: mclabel's name of the batch.
            batch_id: the server's id of the batch.
            keys: ids of the requests in the batch.
            is_ours: True if this process sent the batch.
        """
        settings, begun = self._settings, time.monotonic()
        while calls.batch_status(batch := await self._poll(name, batch_id)) not in calls.ENDED:
            if time.monotonic() - begun >= settings.batch_wait_hours * 3600:
                raise EngineError(
                    f"policy.engine.batch_wait_hours={settings.batch_wait_hours:g}: the batch "
                    f"{batch_id} at {self._url} has not ended within this time. Its status is "
                    f"{batch.get('status')}. Run the same command again to wait; no "
                    "request in the batch is sent twice"
                )
            await asyncio.sleep(settings.batch_poll_s)
        await self._deliver_results(name, batch, batch_id, keys, is_ours=is_ours)

    async def _poll(self, name: str, batch_id: str) -> dict[str, Any]:
        """Return the current state of a batch.

        Raises:
            EngineError: the server no longer has the batch, or does not answer.
        """
        status_text, shown = "", f"the batch {batch_id} at {self._url}"
        for num_left in reversed(range(LOST_POLLS)):
            try:
                batch: dict[str, Any] = await self._call_with_retries(
                    lambda client: calls.retrieve_batch(client, batch_id)
                )
            except RefusedError as error:
                status_text = str(error)
            except RequestFailed as error:
                raise EngineError(f"policy.engine.batch=true: {shown}: {error}") from error
            else:
                self.num_signs += 1
                if calls.batch_status(batch):
                    return batch
                status_text = (
                    f"the server's answer is {self._endpoints.clean_message(json.dumps(batch))}"
                )
            if num_left:
                await asyncio.sleep(self._settings.batch_poll_s)
        raise EngineError(
            f"policy.engine.batch=true: {shown} was not found in {LOST_POLLS} polls: "
            f"{status_text}. Look for the batch in the server's list and run the command again. "
            f"Or delete batches/{name}.* in the run, to send and pay for the requests again"
        )

    async def _deliver_results(
        self,
        name: str,
        batch: Mapping[str, Any],
        batch_id: str,
        keys: list[str],
        *,
        is_ours: bool,
    ) -> None:
        """Deliver the results of an ended batch; unprocessed requests are sent again.

        Args:
            name: mclabel's name of the batch.
            batch: state of the batch.
            batch_id: the server's id of the batch.
            keys: ids of the requests in the batch.
            is_ours: True if this process sent the batch.
        """
        # Requests that are also in a later batch wait for that batch.
        keys = [key for key in keys if self._sent.get(key) == name]
        reading = await self._read_files(name, batch, batch_id, keys)
        failures = {
            key: failure
            for key, failure in reading.failures.items()
            # an account that lacked credit for an earlier process's batch may have credit now
            if is_ours or isinstance(failure, RequestFailed)
        }
        status, shown = calls.batch_status(batch), f"{batch_id} at {self._url}"
        if status == "completed":
            for key, why in reading.unprocessed.items():
                if (failure := self._count_unprocessed(key, why)) is not None:
                    failures[key] = failure
        num_found = sum(key in self._answers for key in keys)
        num_again = len(keys) - num_found - len(failures)
        is_empty = num_again and not num_found and status != "completed"
        self._num_empty = self._num_empty + 1 if is_empty else 0
        if status == "failed" and not num_found:
            await self._records.delete(name)
            raise EngineError(
                f"policy.engine.batch=true: the batch {shown} has failed: "
                f"{self._endpoints.clean_message(calls.failure_reason(batch))}. The service "
                "does not charge for its requests. Correct the cause and run the command again. If "
                "the batch exceeds a limit, lower policy.engine.batch_requests"
            )
        if num_again:
            logger.warning(
                "the batch %s is %s: %d of its %d requests have answers, %d failed. The remaining "
                "%d requests are sent again in a new batch",
                shown,
                status,
                num_found,
                len(keys),
                len(failures),
                num_again,
            )
        if self._num_empty >= BAD_TRIES:
            raise EngineError(
                f"policy.engine.batch=true: {self._num_empty} batches in a row had no answers. The "
                f"last batch, {shown}, is {status}. Check the server's list of batches, or leave "
                "out policy.engine.batch"
            )
        self._settle(name, keys, failures)

    def _settle(self, name: str, keys: list[str], failures: Mapping[str, Exception]) -> None:
        """Wake the requests of an ended batch.

        A request with a failure raises it. Any other request takes its response, or is sent again
        if it has no response.
        """
        for key in keys:
            if self._sent.get(key) == name:
                del self._sent[key]
                self._wake_caller(key, failures.get(key))

    async def _read_files(
        self, name: str, batch: Mapping[str, Any], batch_id: str, keys: list[str]
    ) -> BatchReading:
        """Read the output files of an ended batch.

        The files may appear some time after the end, so reading is repeated.

        Raises:
            EngineError: the files cannot be read, or lack answers that the server counts.
        """
        wanted = frozenset(keys)
        for num_left in reversed(range(FILE_POLLS)):
            reading = await self._answers.read(batch, wanted)
            failures, faults = reading.failures, reading.faults
            answered = [key for key in keys if key in self._answers or key in failures]
            missing = wanted.difference(answered, reading.unprocessed)
            lacks_answers = bool(faults) or calls.num_completed(batch) > len(answered)
            was_cut_off = calls.batch_status(batch) in calls.ENDED - {"completed"}
            if not missing or (was_cut_off and not lacks_answers):
                return reading
            if not (num_left and reading.may_pass):
                break
            await asyncio.sleep(self._settings.batch_poll_s)
            batch = await self._poll(name, batch_id)
        if lacks_answers or not reading.num_rows:
            raise EngineError(
                f"policy.engine.batch=true: the batch {batch_id} at {self._url} is "
                f"{calls.batch_status(batch)}, but {len(missing):,} of its answers cannot be read: "
                f"{'; '.join(faults) or 'the output files lack them'}. Run the same command again "
                "to read them; no request in the batch is sent twice. To send and pay for the "
                f"requests again, delete batches/{name}.* in the run"
            )
        no_row = RequestFailed(f"the files of the batch {batch_id} have no row for the request")
        reading.failures |= dict.fromkeys(missing, no_row)
        return reading

    async def _call_when_free(self, request: Request) -> Any:
        """Call the Batch API and return the response; retry while the server is busy.

        Raises:
            EngineError: the call failed. Such an error concerns the whole API, not single requests.
        """
        try:
            return await self._call_with_retries(request)
        except RefusedError as error:
            status = getattr(error.__cause__, "status_code", None)
            if status not in _MISSING:
                raise EngineError(str(error)) from error
            raise EngineError(
                f"policy.engine.batch=true: {self._url} has no Batch API, or no longer has the "
                f"files of the run's batches (HTTP {status}). Leave out policy.engine.batch, set "
                "policy.engine.endpoints to the server that made the batches, or delete batches/ "
                "in the run to send and pay for their requests again"
            ) from error
        except RequestFailed as error:
            raise EngineError(str(error)) from error

    async def _call_with_retries(self, request: Request) -> Any:
        """Send one call of the Batch API; retry while the server is busy."""
        return await self._endpoints.send_request(request, home=0, retry_s=self._settings.retry_s)


def _retrieve_error(waiter: asyncio.Future[None]) -> None:
    """Read the error of a future, so that asyncio does not report it as never retrieved."""
    if not waiter.cancelled():
        waiter.exception()


def _disk_error(error: OSError) -> EngineError:
    return EngineError(
        f"policy.engine.batch=true: {error}. Requests and answers are stored in "
        f"{tempfile.gettempdir()}. Free disk space there, or set TMPDIR to another folder"
    )
