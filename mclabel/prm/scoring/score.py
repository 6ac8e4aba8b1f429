"""Score solutions with a PRM that `mclabel train` has trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from torch import Tensor

from mclabel.core.errors import ConfigError, DataError
from mclabel.engines.devices import AUTO, check_device
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.model.network import StepModel, load_step_model
from mclabel.prm.scoring.aggregate import StepEstimates, UnscoredError
from mclabel.prm.scoring.manifest import PrmManifest, find_model_folder, make_step_encoder

if TYPE_CHECKING:
    from mclabel.prm.scoring.scorer import Scorer


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
        """Wrap a loaded model. Use `load` to read a saved PRM.

        Args:
            model: step model, on its device.
            encoder: encoder of solutions for the model.
            manifest: manifest of the PRM.
            threads: number of threads on a CPU; None uses one thread per core.
        """
        self.model, self.encoder, self.manifest = model, encoder, manifest
        self.threads = threads

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = AUTO,
        dtype: str = "float32",
        threads: int | None = None,
        trust_remote_code: bool = False,
    ) -> Self:
        """Load a PRM that `mclabel train` has written.

        Args:
            path: output folder of `mclabel train`, or the folder `model` in it.
            device: torch device; `auto` takes cuda if there is a GPU.
            dtype: name of the torch dtype of the body.
            threads: number of threads on a CPU; None uses one thread per core.
            trust_remote_code: true if Python code that comes with the PRM may run.

        Raises:
            DataError: the folder holds no finished PRM.
            ConfigError: the PRM's tokenizer lacks the step token.
            EngineError: the PRM's weights cannot be loaded.
        """
        device = check_device(device)
        folder = find_model_folder(path)
        manifest = PrmManifest.read(folder)
        text = PolicyText.load(
            str(folder),
            manifest.prompt_parts,
            trust_remote_code=trust_remote_code,
            setting_key="",
        )
        model = load_step_model(
            folder,
            manifest.head,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
        )
        model.to(device).eval()
        try:
            encoder = make_step_encoder(text, manifest)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        return cls(model, encoder, manifest, threads=threads)

    def encode(
        self, problem: str, solution: str | Sequence[str], name_in_errors: str = "solution"
    ) -> EncodedSolution:
        """Encode a solution for the model."""
        return self.encoder.encode_text(problem, solution, name_in_errors)

    def score(
        self,
        problems: Sequence[str],
        solutions: Sequence[str | Sequence[str]],
        *,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[list[float]]:
        """Return the probability that each step is sound, in the sense of the training labels.

        Args:
            problems: texts of the problems, one per solution.
            solutions: one text with a step per line for each solution, or a list of its steps,
                which are concatenated as they are.
            on_progress: called with the number of finished and of all distinct solutions.

        Returns:
            For each solution, one probability per step.

        Raises:
            DataError: a solution has no steps or is too long, or the tokenizer does not reproduce
                its text.
        """
        if len(problems) != len(solutions):
            raise DataError(
                f"{len(problems)} problems, but {len(solutions)} solutions. Give one "
                "problem for each solution"
            )
        encoded = [
            self.encode(problem, solution, f"solution {index}")
            for index, (problem, solution) in enumerate(zip(problems, solutions, strict=True))
        ]
        return self.score_encoded(encoded, on_progress=on_progress)

    def score_encoded(
        self,
        encoded: Sequence[EncodedSolution],
        *,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[list[float]]:
        """Score encoded solutions as `score` does. Equal solutions are computed once."""

        def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[list[float]]:
            rows = self.model(batch).float()
            return [
                compute_step_scores(self.model, row[: len(solution.positions)])
                for solution, row in zip(group, rows, strict=True)
            ]

        return map_solutions(
            encoded,
            compute,
            network=self.model.network,
            threads=self.threads,
            on_progress=on_progress,
        )


def compute_step_scores(model: StepModel, logits: Tensor) -> list[float]:
    """Return the probabilities that the steps of one solution are sound.

    Args:
        model: step model that computed the logits.
        logits: logits of the steps, as returned by `StepModel.forward` without the batch dimension.
    """
    scores: list[float] = model.log_odds(logits[None])[0].sigmoid().tolist()
    return scores


def estimate_steps(
    scorer: Scorer, encoded: Sequence[EncodedSolution]
) -> Sequence[StepEstimates | UnscoredError]:
    """Score encoded solutions with a scorer of any kind, generative or not.

    Returns:
        For each solution its step scores and the number of sampled tokens, or an error that says
        why the solution has no scores.
    """
    estimate = getattr(scorer, "estimate_encoded", None)
    if estimate is not None:
        return cast("Sequence[StepEstimates | UnscoredError]", estimate(encoded))
    return [
        scores if isinstance(scores, UnscoredError) else StepEstimates(scores)
        for scores in scorer.score_encoded(encoded)
    ]
