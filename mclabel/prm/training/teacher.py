"""A plain head learns from a likelihood head (distillation, arXiv 1503.02531).

What a language model expected of a token is one subtraction for whoever has its logits; a plain
head sees states alone, and learns to compute it from step labels very slowly. So it learns the
teacher's probability and likelihood features at every step, and the log-probability of every token.
Any solutions do, labelled or not, so there is as much to learn from as a policy can write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mclabel.engines.text import PolicyText
from mclabel.errors import ConfigError
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution
from mclabel.prm.examples.packed import Example, PackedExamples
from mclabel.prm.model.likelihood_head import LikelihoodHead
from mclabel.prm.model.loading import load_step_model
from mclabel.prm.model.settings import HEADS
from mclabel.prm.scoring.manifest import PrmManifest, model_folder
from mclabel.prm.training.distributed import from_all, rank_and_size

Floats = NDArray[np.float32]

_SAMPLE = "Ann has 3 apples and buys 4 more. How many has she?"


def check_teacher(path: str, text: PolicyText, manifest: PrmManifest) -> None:
    """Whether a trained scorer can teach another.

    Args:
        path: the `out` of its training, or the `model` folder in it.
        text: of the scorer that learns.
        manifest: of the same.

    Raises:
        DataError: there is no finished scorer.
        ConfigError: it has no likelihood head, or reads solutions in another way.
    """
    folder = model_folder(path)
    teacher = PrmManifest.read(folder)
    if not HEADS[teacher.head].reads_logprobs:
        raise ConfigError(
            f"teacher={path!r}: has head={teacher.head}, but a teacher must have head=likelihood, "
            "which gives token log-probabilities. Train a teacher with head=likelihood"
        )
    if teacher.kind != manifest.kind:
        raise ConfigError(
            f"teacher={path!r}: is of kind {teacher.kind}, but this target trains a scorer of "
            f"kind {manifest.kind}. Choose a target of the same kind"
        )
    teacher_text = PolicyText.load(
        str(folder), revision=None, template=teacher.template, system=teacher.system, key="teacher"
    )
    if teacher_text.prompt_ids(_SAMPLE) != text.prompt_ids(_SAMPLE):
        raise ConfigError(
            f"teacher={path!r}: its tokenizer, template or system message differs from that of "
            "the base. Train the teacher on the same base, with the same template and system"
        )


def load_teacher(path: str, *, dtype: str = "float32") -> LikelihoodHead:
    """A scorer that `check_teacher` has passed.

    Raises:
        EngineError: its weights cannot be loaded.
    """
    folder = model_folder(path)
    teacher = load_step_model(folder, PrmManifest.read(folder).head, dtype=dtype)
    assert isinstance(teacher, LikelihoodHead)
    return teacher.eval()


def teach(
    teacher: LikelihoodHead,
    examples: PackedExamples,
    step_id: int | None,
    *,
    threads: int | None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PackedExamples:
    """Examples with the teacher's scores in place of their labels, and its log-probabilities.

    Of several workers, each computes its share.

    Args:
        teacher: what to learn from.
        examples: encoded for the scorer that learns.
        step_id: its step token, which the teacher does not have; None if it has none.
        threads: on a CPU; None for one a core.
        on_progress: called with solutions done and in all, of the worker's own.
    """

    def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[tuple[Floats, Floats]]:
        observed, read = teacher.read(batch)
        chances = teacher.apply_head(observed).float().sigmoid().cpu().numpy()
        logprobs = read.cpu().numpy()
        return [
            (steps[: len(one.positions)].copy(), tokens[: len(one.ids)].copy())
            for one, steps, tokens in zip(group, chances, logprobs, strict=True)
        ]

    rank, size = rank_and_size()
    mine = range(rank, len(examples), size)
    plain = [without_step_tokens(examples[i].encoded, step_id) for i in mine]
    results = from_all(
        map_solutions(
            plain, compute, network=teacher.network, threads=threads, on_progress=on_progress
        )
    )
    return PackedExamples(
        _taught(example, *results[i % size][i // size], step_id)
        for i, example in enumerate(examples)
    )


def without_step_tokens(encoded: EncodedSolution, step_id: int | None) -> EncodedSolution:
    """The same solution, its steps scored at their own last tokens."""
    if step_id is None:
        return encoded
    ids, left_out = encoded.ids, set(encoded.positions)
    return replace(
        encoded,
        ids=tuple(token for i, token in enumerate(ids) if i not in left_out),
        positions=tuple(at - 1 - before for before, at in enumerate(encoded.positions)),
    )


def _taught(example: Example, steps: Floats, tokens: Floats, step_id: int | None) -> Example:
    encoded = example.encoded
    in_solution = np.arange(len(encoded.ids))
    if step_id is not None:
        in_solution = np.delete(in_solution, encoded.positions)
    logprobs = np.full(len(encoded.ids), np.nan, dtype=np.float32)
    logprobs[in_solution] = tokens
    logprobs[: encoded.num_prompt] = np.nan
    return replace(example, targets=tuple(steps.tolist()), logprobs=tuple(logprobs.tolist()))
