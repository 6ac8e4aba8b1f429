"""Losses, likelihood features and aggregations compared with literals computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mclabel.prm.examples.batch import StepBatch, make_batch
from mclabel.prm.examples.encode import EncodedSolution
from mclabel.prm.model.heads import compute_likelihood_features, compute_token_logprobs
from mclabel.prm.model.network import StepModel
from mclabel.prm.scoring.aggregate import aggregate
from mclabel.prm.training.losses import compute_step_loss

NAN = float("nan")


def make_step_batch() -> StepBatch:
    """Return two solutions: steps of 2 and 1 tokens after a prompt of 2, and of 1 after 1."""
    return make_batch(
        [
            EncodedSolution(ids=(1, 2, 3, 4, 5), num_prompt=2, positions=(3, 4)),
            EncodedSolution(ids=(1, 6), num_prompt=1, positions=(1,)),
        ]
    )


def test_step_loss_is_cross_entropy_over_labelled_steps() -> None:
    # sigmoid(0) = 1/2, sigmoid(ln 3) = 3/4
    logits = torch.tensor([[0.0, math.log(3)], [math.log(3), 9.0]])
    hard = torch.tensor([[1.0, 0.0], [1.0, NAN]])
    ones = torch.ones(2, 2)
    assert float(compute_step_loss(logits, hard, ones)) == pytest.approx(
        -(math.log(0.5) + math.log(0.25) + math.log(0.75))
    )
    soft = torch.tensor([[0.25, NAN], [0.25, NAN]])
    assert float(compute_step_loss(logits, soft, ones)) == pytest.approx(
        -(math.log(0.5) + 0.25 * math.log(0.75) + 0.75 * math.log(0.25))
    )
    assert float(
        compute_step_loss(logits, hard, torch.tensor([[2.0, 0.0], [0.5, 7.0]]))
    ) == pytest.approx(-2 * math.log(0.5) - 0.5 * math.log(0.75))


def test_squared_error_is_between_probabilities() -> None:
    # (1/2 - 1/4)^2 + 2 (3/4 - 1)^2
    loss = compute_step_loss(
        torch.tensor([[0.0, math.log(3)]]),
        torch.tensor([[0.25, 1.0]]),
        torch.tensor([[1.0, 2.0]]),
        loss="mse",
    )
    assert float(loss) == pytest.approx(0.0625 + 2 * 0.0625)


def test_three_classes_are_wrong_neutral_and_sound() -> None:
    # softmax(0, ln 2, ln 5) = (1/8, 2/8, 5/8)
    logits = torch.tensor([[[0.0, math.log(2), math.log(5)]] * 4])
    loss = compute_step_loss(logits, torch.tensor([[0.0, 0.5, 1.0, NAN]]), torch.ones(1, 4))
    assert float(loss) == pytest.approx(-(math.log(1 / 8) + math.log(2 / 8) + math.log(5 / 8)))
    # neutral counts as sound: odds 7 to 1
    assert StepModel.log_odds(logits)[0, 0].item() == pytest.approx(math.log(7))


def test_without_labels_the_loss_and_its_gradient_are_zero() -> None:
    logits = torch.ones(1, 2, requires_grad=True)
    compute_step_loss(logits, torch.tensor([[NAN, NAN]]), torch.ones(1, 2)).backward()
    assert logits.grad is not None and logits.grad.tolist() == [[0.0, 0.0]]


def test_token_logprobs_are_those_of_the_next_token() -> None:
    made = make_step_batch()
    # The hidden state at a position is its index. The logits favour token = index + 2 by ln 7.
    hidden = torch.arange(5.0)[None, :, None].expand(2, 5, 1)

    class Head(nn.Module):
        def forward(self, states: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(len(states), 8)
            logits[torch.arange(len(states)), states[:, 0].long() + 2] = math.log(7)
            return logits

    logprobs = compute_token_logprobs(hidden, Head(), made)
    hit, miss = math.log(7 / 14), math.log(1 / 14)
    assert logprobs[0].tolist() == pytest.approx([0, 0, hit, hit, hit])
    assert logprobs[1].tolist() == pytest.approx([0, miss, 0, 0, 0])


def test_likelihood_features_are_minima_and_sums_of_step_and_prefix() -> None:
    features = compute_likelihood_features(
        torch.tensor([[0, 0, -1.0, -3.0, -2.0], [0, -99.0, 0, 0, 0]]), make_step_batch().positions
    )
    # columns: step minimum, step sum, prefix minimum, prefix sum
    assert features[0].tolist() == [[-3, -4, -3, -4], [-2, -2, -3, -6]]
    # one step is clamped, and the other does not exist
    assert features[1].tolist() == [[-10, -10, -10, -10], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("how", "expected"), [("last", 0.25), ("min", 0.25), ("product", 0.1), ("mean", 1.55 / 3)]
)
def test_aggregations(how: str, expected: float) -> None:
    assert aggregate([0.5, 0.8, 0.25], how) == pytest.approx(expected)
    with pytest.raises(ValueError, match="without steps has no score"):
        aggregate([], how)
