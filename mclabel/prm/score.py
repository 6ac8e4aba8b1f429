"""Score solutions with a trained PRM."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from mclabel.errors import ConfigError, DataError
from mclabel.policy.hub import weights_fingerprint
from mclabel.policy.pretrained import check_device
from mclabel.policy.text import PolicyText
from mclabel.prm.batch import StepBatch, map_solutions
from mclabel.prm.encode import EncodedSolution, StepEncoder
from mclabel.prm.model import HEAD_FILE, HeadKind, StepModel, load_step_model

MANIFEST = "prm.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class PrmManifest:
    """What a saved PRM needs beside its weights to score as it was trained."""

    kind: Literal["prm", "orm"]
    """An `orm` was trained on outcomes alone: only its last score means something."""
    head: HeadKind
    step_token: str | None
    """Follows every step; None scores at each step's last token."""
    template: str | None
    """Of the prompt; None is the tokenizer's chat template."""
    system: str | None
    max_tokens: int
    """Of an encoded solution."""

    def save(self, folder: Path) -> None:
        """Write it beside the weights."""
        content = {"format": FORMAT, **asdict(self)}
        (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> PrmManifest:
        """Read it.

        Raises:
            DataError: the folder holds no PRM of this format.
        """
        try:
            content = json.loads((folder / MANIFEST).read_text())
            if content.pop("format") != FORMAT:
                raise ValueError(f"of another format than {FORMAT}")
            cls(**content)  # refuses keys that it does not know
            return TypeAdapter(cls).validate_python(content)
        except FileNotFoundError:
            raise DataError(
                f"{folder}: holds no {MANIFEST}. Give the `out` of `mclabel train`"
            ) from None
        except (
            *(OSError, ValueError, KeyError, TypeError),
            *(AttributeError, RecursionError),
        ) as error:
            raise DataError(
                f"{folder}/{MANIFEST}: not a PRM's manifest: {type(error).__name__}: {error}. Copy "
                "the whole folder again, or train it again"
            ) from error


class PRM:
    """A process reward model: a score in [0, 1] for every step of a solution."""

    def __init__(
        self,
        model: StepModel,
        encoder: StepEncoder,
        manifest: PrmManifest,
        *,
        threads: int | None = None,
    ) -> None:
        self.model, self.encoder, self.manifest = model, encoder, manifest
        self.threads = threads

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        threads: int | None = None,
        trust_remote_code: bool = False,
    ) -> PRM:
        """Load what `mclabel train` has written.

        Args:
            path: its `out`, or the `model` folder in it.
            device: torch device.
            dtype: torch dtype of the body.
            threads: on a CPU; None for one a core.
            trust_remote_code: run Python code that comes with it, as with one whose base had some.

        Raises:
            DataError: there is no finished PRM.
            ConfigError: its tokenizer lacks the step token.
            EngineError: its weights cannot be loaded.
        """
        check_device(device)
        folder = model_folder(path)
        manifest = PrmManifest.read(folder)
        text = PolicyText.load(
            str(folder),
            revision=None,
            template=manifest.template,
            system=manifest.system,
            trust_remote_code=trust_remote_code,
            key="",
        )
        model = load_step_model(
            folder, manifest.head, dtype=dtype, trust_remote_code=trust_remote_code
        )
        model.to(device).eval()
        try:
            encoder = step_encoder(text, manifest)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        return cls(model, encoder, manifest, threads=threads)

    def score(
        self,
        problems: Sequence[str],
        solutions: Sequence[str | Sequence[str]],
        *,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[list[float]]:
        """Probability that each step is sound, in the sense of the labels it was trained on.

        Args:
            problems: texts, one per solution.
            solutions: each as one text with a step a line, or as its steps, which join to the
                solution as they are.
            on_progress: called with solutions done and in all.

        Returns:
            For every solution one number a step.

        Raises:
            DataError: a solution without steps, too long, or not given back by the tokenizer.
        """
        if len(problems) != len(solutions):
            raise DataError(f"{len(problems)} problems for {len(solutions)} solutions")
        encoded = [
            self.encoder.text(problem, solution, f"solution {index}")
            for index, (problem, solution) in enumerate(zip(problems, solutions, strict=True))
        ]
        return self.score_encoded(encoded, on_progress=on_progress)

    def score_encoded(
        self,
        encoded: Sequence[EncodedSolution],
        *,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[list[float]]:
        """The same for encoded solutions. Equal ones are computed once."""

        def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[list[float]]:
            rows = self.model.log_odds(self.model(batch)).float().sigmoid().tolist()
            return [row[: len(one.positions)] for one, row in zip(group, rows, strict=True)]

        return map_solutions(
            encoded,
            compute,
            network=self.model.network,
            threads=self.threads,
            on_progress=on_progress,
        )


def check_scores(model: str, scores: Sequence[Sequence[float]], places: Sequence[str]) -> None:
    """Refuse what is no number: it would neither be the best nor the worst.

    Args:
        model: that gave them, for the message.
        scores: of each solution.
        places: names the solutions.

    Raises:
        DataError: names the first solution with such a score.
    """
    for place, row in zip(places, scores, strict=True):
        for score in row:
            if not isfinite(score):
                raise DataError(
                    f"{place}: {model} gives it the score {score}. Its weights are damaged, or "
                    "overflow on this text: train or download it again"
                )


def model_folder(path: str | Path) -> Path:
    """The folder of the weights, of the `out` of a training run or of the folder itself.

    Raises:
        DataError: its training has not ended.
    """
    folder = Path(path)
    if (folder / "train.json").is_file() and not (folder / "model").is_dir():
        raise DataError(f"{folder}: its training has not ended. Run the same command again")
    return folder / "model" if (folder / "model").is_dir() else folder


def scorer_fingerprint(path: str | Path) -> str:
    """A hash that changes with a scorer's weights, its head's among them.

    Args:
        path: as of `model_folder`.
    """
    folder = model_folder(path)
    parts = [folder, (folder / HEAD_FILE).parent]
    return "-".join(weights_fingerprint(part) for part in parts if part.is_dir())


def step_encoder(text: PolicyText, manifest: PrmManifest) -> StepEncoder:
    """The encoder of a PRM.

    Raises:
        ConfigError: the tokenizer lacks the step token.
    """
    identity = None
    if manifest.step_token is not None:
        identity = text.token_id(manifest.step_token)
        if identity is None:
            reserved = text.step_token
            remedy = (
                f"Its tokenizer reserves {reserved} for steps: pass step_token=null to use it"
                if reserved is not None
                else f"Name one that it never uses ({', '.join(text.special_tokens[:8]) or 'none'} "
                "are its special ones), or add it with add_step_token=true"
            )
            raise ConfigError(
                f"step_token={manifest.step_token!r}: not a token of this model. {remedy}, or use "
                "head=likelihood, which needs none"
            )
    return StepEncoder(text, step_id=identity, max_tokens=manifest.max_tokens)
