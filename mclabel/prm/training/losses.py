"""Losses over the labelled steps of a batch.

Sums, not means: the trainer divides by the weight of a whole optimizer step, so that what is
learned does not depend on how the step is cut into pieces and workers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mclabel.core.boundary import Boundary, shown
from mclabel.core.components import find_component


def cross_entropy(log_odds: Tensor, targets: Tensor) -> Tensor:
    """- (t log p + (1 - t) log(1 - p)) of each step, with p = sigmoid(log-odds).

    With targets in {0, 1} this is Math-Shepherd's loss, with soft targets its generalisation
    (arXiv 2312.08935, eq. 1).
    """
    return functional.binary_cross_entropy_with_logits(log_odds, targets, reduction="none")


def squared_error(log_odds: Tensor, targets: Tensor) -> Tensor:
    """(p - t)^2 of each step, the Brier score, with p = sigmoid(log-odds)."""
    return (log_odds.sigmoid() - targets) ** 2


def beta_binomial_loss(
    log_odds: Tensor, log_concentration: Tensor, right: Tensor, trials: Tensor
) -> Tensor:
    """- log of the Beta-Binomial probability of `right` among `trials` (BetaPRM, arXiv 2605.15529).

    The step's value is Beta(m c, (1 - m) c): with (a)_k = a (a + 1) ... (a + k - 1),

        P(k | n) = C(n, k) (m c)_k ((1 - m) c)_(n - k) / (c)_n

    It also holds where rollouts stop early. If whether to sample once more depends only on the
    outcomes of this step's rollouts (until the first right one, until an interval is decided), a
    sequence with k right of n has the probability m^k (1 - m)^(n - k) times what does not depend
    on the value. Over the Beta this gives the same but for the factor C(n, k), which has no
    gradient. It does not hold where outcomes of *other* steps decide which steps are rolled out
    at all, as when an estimator searches for the first error (`bisect`, `posterior`): the steps
    with rollouts are then a selection. What depends on their value beyond the text is learned as
    if it were of all steps. `fixed`, and `sequential` at every step, select none.

    Of one trial it is the cross-entropy of the mean: the concentration has no part in it, so the
    last step, whose only trial is the outcome, teaches none.

    Computed in float64; log (a)_k is taken as log a + lgamma(a + k) - lgamma(a + 1), so that
    neither it nor its gradient overflows as a goes to 0.

    Args:
        log_odds: [steps] of m.
        log_concentration: [steps] log c.
        right: [steps] k, from 0 to n.
        trials: [steps] n, at least 1.
    """
    log_c, odds = log_concentration.double(), log_odds.double()
    right, trials = right.double(), trials.double()
    log_ways = (trials + 1).lgamma() - (right + 1).lgamma() - (trials - right + 1).lgamma()
    found = (
        log_ways
        + _log_rising(log_c + functional.logsigmoid(odds), right)
        + _log_rising(log_c + functional.logsigmoid(-odds), trials - right)
        - _log_rising(log_c, trials)
    )
    return -found


def _log_rising(log_start: Tensor, count: Tensor) -> Tensor:
    """Log of a (a + 1) ... (a + count - 1), with a = exp(log_start); 0 of none."""
    start = log_start.exp()
    found = log_start + (start + count).lgamma() - (start + 1).lgamma()
    return torch.where(count > 0, found, torch.zeros_like(found))


def step_loss(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    *,
    loss: str = "cross_entropy",
    trials: Tensor | None = None,
) -> Tensor:
    """Weighted sum of the losses of the labelled steps.

    Of three classes (wrong, neutral, sound) the loss is the cross-entropy of the class round(2 t);
    of a mean and its concentration it is that of `beta_binomial_loss`.

    Args:
        logits: [batch, steps] log-odds, [batch, steps, 3], or [batch, steps, 2] log-odds of the
            mean and log-concentration.
        targets: [batch, steps], in [0, 1], NaN where there is no label.
        weights: [batch, steps], >= 0.
        loss: name of the loss of log-odds, in `LOSSES`.
        trials: [batch, steps], of which the targets are shares; for a mean and its concentration.

    Returns:
        A scalar; zero, with zero gradients, where nothing is labelled.
    """
    labelled = ~targets.isnan()
    if not labelled.any():
        return logits.sum() * 0.0
    chosen, wanted = logits[labelled].float(), targets[labelled]
    if logits.dim() == targets.dim() + 1 and logits.shape[-1] == 2:
        assert trials is not None, "a concentration is learned from counts"
        num = trials[labelled]
        losses = beta_binomial_loss(chosen[:, 0], chosen[:, 1], (wanted * num).round(), num)
    elif logits.dim() == targets.dim() + 1:
        losses = functional.cross_entropy(chosen, (2 * wanted).round().long(), reduction="none")
    else:
        losses = _losses(loss, chosen, wanted)
    total: Tensor = (losses * weights[labelled]).sum()
    return total


def _losses(name: str, log_odds: Tensor, targets: Tensor) -> Tensor:
    """The loss of each labelled step.

    Raises:
        ComponentError: a loss of somebody's own fails, or gives something else.
    """
    loss, boundary = find_component("losses", name), Boundary("losses", name)
    rule = None if boundary.ours else _fault
    found: Tensor = boundary.call("loss", loss, log_odds, targets, rule=rule)
    return found


def _fault(found: object, log_odds: Tensor, targets: Tensor) -> str | None:
    if not isinstance(found, Tensor):
        return f"gave {shown(found)}, must give a tensor"
    if found.shape != log_odds.shape:
        return (
            f"gave a tensor of shape {tuple(found.shape)} for {len(log_odds)} steps, must give "
            "one number per step, not their mean or sum"
        )
    if not found.dtype.is_floating_point or (torch.is_grad_enabled() and not found.requires_grad):
        return f"gave {found.dtype} without a gradient, must be computed from the log-odds"
    return None if bool(found.isfinite().all()) else "gave numbers that are not finite"


def pair_loss(scores: Tensor, right: Tensor, problems: Tensor) -> Tensor:
    """Sum over pairs of a right and a wrong solution of one problem of - log sigmoid(s+ - s-).

    What choosing among solutions needs is their order within a problem (Bradley-Terry, as in
    reward models, arXiv 2203.02155).

    Args:
        scores: [batch] log-odds of the solutions.
        right: [batch], 1, 0, or -1 where it is not known.
        problems: [batch], equal where the problem is the same.
    """
    differences = (scores[:, None] - scores[None])[_pairs(right, problems)]
    return -functional.logsigmoid(differences.float()).sum()


def num_pairs(right: Tensor, problems: Tensor) -> int:
    """Number of pairs that `pair_loss` compares."""
    return int(_pairs(right, problems).sum())


def _pairs(right: Tensor, problems: Tensor) -> Tensor:
    """[batch, batch]: whether the first is right, the second wrong, and both of one problem."""
    return (problems[:, None] == problems[None]) & (right == 1)[:, None] & (right == 0)[None]
