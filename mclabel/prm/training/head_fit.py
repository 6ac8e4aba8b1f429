"""Fit a new likelihood head to a sample of the examples, before the body is trained.

A head that starts at zero gives the body gradients of a random direction, and the body can learn to
make sound steps unlikely before the head's few weights have moved. Fitting the head first, with the
body frozen, keeps the direction in which the base already separates the classes (linear probing
before fine-tuning, arXiv 2202.10054).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mclabel.core.errors import TrainingError
from mclabel.prm.examples.encode import PackedExamples
from mclabel.prm.model.heads import NUM_FEATURES, LikelihoodHead
from mclabel.prm.training.checkpoint import set_weights
from mclabel.prm.training.items import TrainingItems, collate, precompute_head_inputs
from mclabel.prm.training.losses import NOT_FINITE, compute_step_loss

NUM_FITTED = 256
"""Maximum number of examples that the head is fitted to. They suffice for its five weights."""
RIDGE = 1e-3
"""Penalty on the squared weights of standardised features and on the squared bias. It keeps them
finite if the classes can be separated perfectly, or if there is only one class."""


def fit_head(
    model: LikelihoodHead,
    examples: PackedExamples,
    head_inputs: Sequence[Tensor] | None,
    *,
    loss: str,
    wrong_and_sound_factors: tuple[float, float] | None,
    on_progress: Callable[[int, int, str], None] = lambda step, total, detail: None,
) -> None:
    """Fit the weights of the likelihood features on a sample of the examples.

    In a process group, every rank must call this function with the same arguments.

    Args:
        model: model whose head has zero weights.
        examples: training examples. An evenly spaced sample of at most `NUM_FITTED` is used.
        head_inputs: result of `precompute_head_inputs` for all examples, or None to compute it for
            the sample.
        loss: name of the loss of a step.
        wrong_and_sound_factors: factors for the weights of wrong steps and of sound steps, in this
            order; None for equal weights.
        on_progress: called with 0, 0 (no optimizer step is done) and a text that says how many
            solutions are done.

    Raises:
        TrainingError: the loss is not finite.
    """
    places = range(0, len(examples), -(-len(examples) // NUM_FITTED))
    sample = PackedExamples(examples[place] for place in places)
    if head_inputs is None:
        inputs = precompute_head_inputs(model, sample, on_progress)
    else:
        inputs = [head_inputs[place] for place in places]
    if inputs is None:  # the hidden states of solutions with very many steps do not fit in memory
        return
    items = TrainingItems(sample, inputs, wrong_and_sound_factors)
    batch = collate([items[place] for place in range(len(items))])
    labelled = ~batch["targets"].isnan()
    features = batch["head_inputs"][labelled][:, -NUM_FEATURES:]
    weights, bias = _fit_linear_function(
        features, batch["targets"][labelled], batch["weights"][labelled], loss
    )
    set_weights(model, model.make_feature_weights(weights, bias))


def _fit_linear_function(
    features: Tensor, targets: Tensor, weights: Tensor, loss: str
) -> tuple[Tensor, Tensor]:
    """Return the weights [4] and the bias [1] of the linear function with the lowest loss."""
    mean, spread = features.mean(0), features.std(0, correction=0).clamp(min=1e-6)
    scaled = (features - mean) / spread
    total = weights.sum().clamp(min=1e-9)
    slope = torch.zeros(features.shape[1], requires_grad=True)
    offset = torch.zeros(1, requires_grad=True)
    solver = torch.optim.LBFGS([slope, offset], max_iter=100, line_search_fn="strong_wolfe")

    def compute_cost_with_gradients() -> Tensor:
        solver.zero_grad()
        cost = compute_step_loss(scaled @ slope + offset, targets, weights, loss=loss) / total
        cost = cost + RIDGE * (slope.square().sum() + offset.square().sum())
        if not cost.isfinite():
            raise TrainingError(f"the loss is {cost.item()} before the first step. {NOT_FINITE}")
        cost.backward()
        return cost

    solver.step(compute_cost_with_gradients)
    fitted = slope.detach() / spread
    return fitted, offset.detach() - fitted @ mean
