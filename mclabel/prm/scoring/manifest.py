"""The file beside a scorer's weights, so that it scores as it was trained."""

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
from mclabel.core.settings import MAX_TOKENS, Settings, joined_faults, rule
from mclabel.core.stats.bootstrap import harmonic_mean
from mclabel.data.readers.judged import JudgedSolution
from mclabel.engines.hub import weights_fingerprint
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.encode import StepEncoder, template_fault
from mclabel.prm.model.settings import HEAD_FILE, HeadName
from mclabel.run.shards.manifest import versions

MANIFEST = "prm.json"
FORMAT = 1


class PrmManifest(Settings):
    """Everything that a saved PRM needs beside its weights to score as it was trained."""

    kind: Literal["prm", "orm"]
    """An `orm` was trained on outcomes alone: only its last score means something."""
    head: HeadName
    step_token: str | None = Field(min_length=1)
    """Follows every step; None scores at each step's last token."""
    template: str | None
    """Template of the prompt; None is the tokenizer's chat template."""
    system: str | None
    max_tokens: int = Field(ge=1, le=MAX_TOKENS)
    """Most tokens of an encoded solution."""

    @rule
    def _a_template_holds_the_problem(self) -> str | None:
        return template_fault(self.template)

    def save(self, folder: Path) -> None:
        """Write it beside the weights."""
        content = {"format": FORMAT, **dict(self)}
        (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> PrmManifest:
        """Read it.

        Raises:
            DataError: the folder holds no PRM of this format.
        """
        check_plain(folder / MANIFEST, DataError)
        try:
            content = json.loads((folder / MANIFEST).read_text())
            if content.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            return cls.model_validate(content)
        except FileNotFoundError:
            raise DataError(
                f"{folder}: holds no {MANIFEST}. Give the `out` of `mclabel train`"
            ) from None
        except ValidationError as error:
            faults = joined_faults(cls, error, MANIFEST)
            raise DataError(
                f"{folder}/{MANIFEST}: not a PRM's manifest: {faults}. Copy the whole folder "
                "again, or train it again"
            ) from error
        except (
            *(OSError, ValueError, KeyError, TypeError),
            *(AttributeError, RecursionError),
        ) as error:
            raise DataError(
                f"{folder}/{MANIFEST}: not a PRM's manifest: {type(error).__name__}: {error}. Copy "
                "the whole folder again, or train it again"
            ) from error


def model_folder(path: str | Path) -> Path:
    """The folder of the weights, of the `out` of a training run or of the folder itself.

    Raises:
        DataError: its training has not ended, or it holds something else than plain files.
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


def trained_blocks(path: str | Path) -> frozenset[str]:
    """Ids of the blocks of labels that a PRM was trained on; none where that is not recorded.

    Args:
        path: `out` of a training run, or its folder `model`.
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


def scorer_fingerprint(path: str | Path) -> str:
    """A hash that changes with a scorer's weights, its head's among them.

    Args:
        path: folder of the scorer, as in `model_folder`.
    """
    folder = model_folder(path)
    parts = [folder, (folder / HEAD_FILE).parent]
    return "-".join(weights_fingerprint(part) for part in parts if part.is_dir())


def step_encoder(
    text: PolicyText, manifest: PrmManifest, *, ends: Collection[int] = ()
) -> StepEncoder:
    """The encoder of a PRM.

    Args:
        text: text of its base.
        manifest: manifest of the PRM.
        ends: ids that the base's configuration names, of which no step token is suggested.

    Raises:
        ConfigError: the tokenizer lacks the step token.
    """
    identity = None
    if manifest.step_token is not None:
        identity = text.token_id(manifest.step_token)
        if identity is None or not text.is_one_token(manifest.step_token):
            raise _unfit(text, manifest, "is not a token of this model's tokenizer", ends)
        if text.reads(identity):
            raise _unfit(
                text,
                manifest,
                "its model's prompts use it, or it begins, ends, separates or fills up texts, so "
                "it cannot mark the end of a step",
                ends,
            )
    return StepEncoder(text, step_id=identity, max_tokens=manifest.max_tokens)


def _unfit(
    text: PolicyText, manifest: PrmManifest, fault: str, ends: Collection[int]
) -> ConfigError:
    """Return what is wrong with the step token, and which ones would do."""
    unused = ", ".join(text.unused_tokens(ends)[:8])
    if text.step_token not in (None, manifest.step_token):
        remedy = (
            f"Its tokenizer reserves {text.step_token} for steps: pass step_token=null to use it"
        )
    elif unused:
        remedy = (
            f"Name a special token without a use ({unused}), or add one with add_step_token=true"
        )
    else:
        remedy = "Add one with add_step_token=true"
    return ConfigError(
        f"step_token={manifest.step_token!r}: {fault}. {remedy}, or use head=likelihood, which "
        "needs no step token"
    )


def write_provenance(path: Path, **about: Any) -> None:
    """Write a record.

    Args:
        path: path of its JSON file.
        **about: what made the results; no secrets. Whether code of a model was trusted
            (`trust_remote_code`) belongs to it.
    """
    content = {**about, "versions": versions()}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def weights_of(prm: str) -> str | None:
    """A hash of a PRM's weights; None if it is no folder but a name."""
    return scorer_fingerprint(prm) if Path(prm).is_dir() else None


def server_address(url: str) -> str:
    """The scheme, host and port of a URL, without the password that it may hold."""
    parts = urlsplit(url)
    return parts._replace(
        netloc=parts.netloc.rpartition("@")[2], path="", query="", fragment=""
    ).geturl()


def first_below(scores: Sequence[float], threshold: float) -> int | None:
    """Index of the first score under the threshold, None for none."""
    return next((i for i, score in enumerate(scores) if score < threshold), None)


def best_threshold(rows: Sequence[JudgedSolution], scores: Mapping[str, Sequence[float]]) -> float:
    """The threshold with the highest F1, over all distinct scores exactly.

    A solution is predicted right for the thresholds in one interval: up to its lowest score where
    no step is wrong; above the score of the wrong step, up to the lowest before it, where one is.
    Between two scores the threshold lies in their middle; of several equally good the lowest is
    taken, which flags least.

    Args:
        rows: with both kinds.
        scores: by id, one a step. Solutions without scores are left out.

    Raises:
        DataError: no scores, or only one kind of solutions.
    """
    rows = [row for row in rows if row.id in scores]
    wrong = sum(row.first_error is not None for row in rows)
    if not 0 < wrong < len(rows):
        raise DataError(
            f"{wrong} scored solutions with a wrong step and {len(rows) - wrong} without: the "
            "threshold is chosen by F1, which needs both. Give a threshold"
        )
    levels = np.array(sorted({score for row in rows for score in scores[row.id]}))
    # Threshold k makes the scores levels[:k] wrong: edges of intervals, to be added up.
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
    best = int(harmonic_mean(hits[0] / wrong, hits[1] / (len(rows) - wrong)).argmax())
    if best == len(levels):
        return float(np.nextafter(levels[-1], inf))
    if best == 0:
        return float(levels[0])
    middle = float(levels[best - 1] + levels[best]) / 2
    return middle if middle > levels[best - 1] else float(levels[best])
