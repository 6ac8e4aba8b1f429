"""The manifest of a PRM, hashes of its weights, and thresholds of its scores.

The manifest is a file beside the weights. It records how solutions were encoded in training, so
that they are encoded in the same way for scoring.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from pydantic import Field, ValidationError

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.plain_files import check_plain, check_plain_folder
from mclabel.core.settings import MAX_TOKENS, Settings, describe_faults, rule
from mclabel.core.stats.bootstrap import compute_harmonic_mean
from mclabel.data.readers.judged import JudgedSolution
from mclabel.engines.chat import PromptParts
from mclabel.engines.hub import compute_weights_fingerprint
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.encode import StepEncoder, find_template_fault
from mclabel.prm.model.settings import HEAD_FILE, HeadName
from mclabel.run.shards.manifest import collect_package_versions

MANIFEST = "prm.json"
"""Name of the manifest file."""
FORMAT = 1
"""Version of the manifest's format."""


class PrmManifest(Settings):
    """The manifest of a saved PRM: all that is needed beside the weights to score solutions."""

    kind: Literal["prm", "orm"]
    """Kind of the model. An `orm` was trained on outcomes only, so only the score of the last step
    is meaningful."""
    head: HeadName
    """Name of the model's head."""
    step_token: str | None = Field(min_length=1)
    """Token after every step, at which the step is scored; None scores a step at its own last
    token."""
    template: str | None
    """Template of the prompt; None uses the tokenizer's chat template."""
    system: str | None
    """System message in the chat template; None omits it."""
    max_tokens: int = Field(ge=1, le=MAX_TOKENS)
    """Maximum number of tokens of an encoded solution, including the prompt."""

    @rule
    def _check_template_contains_problem_placeholder(self) -> str | None:
        return find_template_fault(self.template)

    @property
    def prompt_parts(self) -> PromptParts:
        """The parts of a prompt that surround the problem."""
        return PromptParts(template=self.template, system=self.system)

    def save(self, folder: Path) -> None:
        """Write the manifest to the folder of the weights."""
        (folder / MANIFEST).write_text(
            json.dumps({"format": FORMAT, **dict(self)}, indent=1) + "\n"
        )

    @classmethod
    def read(cls, folder: Path) -> PrmManifest:
        """Read the manifest in a folder.

        Raises:
            DataError: the folder holds no manifest, or an invalid one.
        """
        check_plain(folder / MANIFEST, DataError)
        try:
            content = json.loads((folder / MANIFEST).read_text())
            if content.pop("format") != FORMAT:
                raise ValueError(f"format must be {FORMAT}")
            return cls.model_validate(content)
        except FileNotFoundError:
            raise DataError(
                f"{folder}: holds no {MANIFEST}, so it is not a PRM. Give the output folder of "
                "`mclabel train`"
            ) from None
        except ValidationError as error:
            faults = describe_faults(cls, error, MANIFEST)
            raise DataError(
                f"{folder}/{MANIFEST}: not a PRM's manifest: {faults}. Copy the whole folder "
                "again, or train the PRM again"
            ) from error
        except (
            *(OSError, ValueError, KeyError, TypeError),
            *(AttributeError, RecursionError),
        ) as error:
            raise DataError(
                f"{folder}/{MANIFEST}: not a PRM's manifest: {type(error).__name__}: {error}. Copy "
                "the whole folder again, or train the PRM again"
            ) from error


def find_model_folder(path: str | Path) -> Path:
    """Return the folder of a PRM's weights.

    Args:
        path: output folder of a training run, or the folder of the weights itself.

    Raises:
        DataError: the training run has not finished, or the folder contains links or special files.
    """
    folder = Path(path)
    if folder.is_dir():
        check_plain_folder(folder, DataError)
    if (folder / "train.json").is_file() and not (folder / "model").is_dir():
        raise DataError(
            f"{folder}: its training has not finished. Run the same `mclabel train` "
            "command again to resume it"
        )
    return folder / "model" if (folder / "model").is_dir() else folder


def read_trained_blocks(path: str | Path) -> frozenset[str]:
    """Return the ids of the blocks of labels on which a PRM was trained; empty if not recorded.

    Args:
        path: output folder of a training run, or the folder `model` in it.
    """
    for folder in (Path(path), Path(path).parent):
        claim = folder / "train.json"
        if claim.is_file():
            check_plain(claim, DataError)
            try:
                recorded = json.loads(claim.read_text()).get("blocks", [])
                return frozenset(str(name) for names in recorded for name in names)
            except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
                raise DataError(
                    f"{claim}: damaged ({error}). Copy the whole folder again"
                ) from error
    return frozenset()


def compute_scorer_fingerprint(path: str | Path) -> str:
    """Return a hash of a scorer's weights, including those of the head.

    Args:
        path: folder of the scorer, as in `find_model_folder`.
    """
    folder = find_model_folder(path)
    parts = [folder, (folder / HEAD_FILE).parent]
    return "-".join(compute_weights_fingerprint(part) for part in parts if part.is_dir())


def make_step_encoder(
    text: PolicyText, manifest: PrmManifest, *, end_token_ids: Collection[int] = ()
) -> StepEncoder:
    """Return the encoder of a PRM.

    Args:
        text: tokenizer and prompt template of the PRM's base.
        manifest: manifest of the PRM.
        end_token_ids: ids of control tokens in the base's configuration. Error messages do not
            suggest them as step tokens.

    Raises:
        ConfigError: the tokenizer lacks the step token, or the token has another function.
    """
    identity = None
    if manifest.step_token is not None:
        identity = text.token_id(manifest.step_token)
        if identity is None or not text.is_one_token(manifest.step_token):
            raise _make_step_token_error(
                text, manifest, "is not a token of this model's tokenizer", end_token_ids
            )
        if text.has_existing_meaning(identity):
            raise _make_step_token_error(
                text,
                manifest,
                "it cannot mark the end of a step, because the model uses it in prompts, or to "
                "begin, end, separate or pad texts",
                end_token_ids,
            )
    return StepEncoder(text, step_id=identity, max_tokens=manifest.max_tokens)


def _make_step_token_error(
    text: PolicyText, manifest: PrmManifest, fault: str, end_token_ids: Collection[int]
) -> ConfigError:
    """Return an error about the step token that suggests usable tokens.

    Args:
        text: tokenizer of the base model.
        manifest: manifest with the step token.
        fault: clause that says what is wrong with the step token.
        end_token_ids: ids of tokens that must not be suggested.
    """
    unused = ", ".join(text.list_unused_tokens(end_token_ids)[:8])
    if text.step_token not in (None, manifest.step_token):
        remedy = (
            f"Its tokenizer reserves {text.step_token} for steps: pass step_token=null to use it"
        )
    elif unused:
        remedy = (
            f"Set step_token to an unused special token ({unused}), or add a token with "
            "add_step_token=true"
        )
    else:
        remedy = "Add the token with add_step_token=true"
    return ConfigError(
        f"step_token={manifest.step_token!r}: {fault}. {remedy}, or use head=likelihood, which "
        "needs no step token"
    )


def write_provenance(path: Path, **about: Any) -> None:
    """Write a JSON file that says how results were made, with the versions of packages.

    Args:
        path: path of the JSON file to write.
        **about: settings that made the results, including `trust_remote_code`, but no secrets.
    """
    path.write_text(
        json.dumps({**about, "versions": collect_package_versions()}, indent=1) + "\n",
        encoding="utf-8",
    )


def hash_weights(prm: str) -> str | None:
    """Return a hash of a PRM's weights; None if `prm` is a name and not a folder."""
    return compute_scorer_fingerprint(prm) if Path(prm).is_dir() else None


def strip_credentials(url: str) -> str:
    """Return the scheme, host and port of a URL, without a user name or password."""
    parts = urlsplit(url)
    return parts._replace(
        netloc=parts.netloc.rpartition("@")[2], path="", query="", fragment=""
    ).geturl()


def find_first_score_below(scores: Sequence[float], threshold: float) -> int | None:
    """Return the index of the first score below the threshold, from 0; None if there is none."""
    return next((i for i, score in enumerate(scores) if score < threshold), None)


def find_best_threshold(
    rows: Sequence[JudgedSolution], scores: Mapping[str, Sequence[float]]
) -> float:
    """Return the threshold of step scores with the highest F1, by an exact search.

    A step is predicted wrong if its score is below the threshold. For each solution, the thresholds
    with a correct prediction form one interval. Without a wrong step, the interval ends at the
    solution's lowest score. With a wrong step, it begins above that step's score and ends at the
    lowest score before it. The threshold lies in the middle between two neighbouring scores. If
    several thresholds are equally good, the lowest is returned, which predicts the fewest errors.

    Args:
        rows: judged solutions, some with and some without a wrong step.
        scores: step scores of each solution, by solution id. Solutions without scores are ignored.

    Raises:
        DataError: there are no scored solutions with a wrong step, or none without.
    """
    rows = [row for row in rows if row.id in scores]
    wrong = sum(row.first_error is not None for row in rows)
    if not 0 < wrong < len(rows):
        raise DataError(
            f"{wrong} scored solutions with a wrong step and {len(rows) - wrong} without: the "
            "threshold is chosen by F1, which needs both. Set a threshold"
        )
    levels = np.array(sorted({score for row in rows for score in scores[row.id]}))
    # Threshold k predicts that the scores levels[:k] are wrong. `edges` marks where the interval of
    # each solution begins (+1) and ends (-1), so that a cumulative sum counts correct predictions.
    edges = np.zeros((2, len(levels) + 2))
    for row in rows:
        mine, error = scores[row.id], row.first_error
        first = 0 if error is None else np.searchsorted(levels, mine[error]) + 1
        before = mine if error is None else mine[:error]
        last = np.searchsorted(levels, min(before)) if before else len(levels)
        if first <= last:
            edges[int(error is None), first] += 1
            edges[int(error is None), last + 1] -= 1
    hits = edges.cumsum(1)[:, :-1]
    best = int(compute_harmonic_mean(hits[0] / wrong, hits[1] / (len(rows) - wrong)).argmax())
    if best == len(levels):
        return float(np.nextafter(levels[-1], inf))
    if best == 0:
        return float(levels[0])
    middle = float(levels[best - 1] + levels[best]) / 2
    return middle if middle > levels[best - 1] else float(levels[best])
