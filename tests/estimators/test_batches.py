"""Decisions for a problem do not depend on its batch, whatever the rounding of products."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel.labeling.estimators.posterior import plan
from mclabel.labeling.estimators.posterior.arithmetic import (
    LANES,
    exp,
    log,
    sum_in_order,
    weighted_sums,
)
from mclabel.labeling.estimators.posterior.plan import ChainEvidence, make_plans
from mclabel.labeling.estimators.posterior.priors import (
    TABLE_SIZE,
    ClassPriors,
    make_uninformed_priors,
)


class Rough(np.ndarray[Any, Any]):
    """Weights whose matrix products round by the number of rows, as in some BLAS."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [np.asarray(x) for x in inputs]
        out = kwargs.pop("out", None)
        if out is not None:
            kwargs["out"] = tuple(np.asarray(x) for x in out)
        result = getattr(ufunc, method)(*arrays, **kwargs)
        if ufunc is not np.matmul:
            return result
        rows = arrays[0].shape[-2] if arrays[0].ndim > 1 else 1
        return result * (1 + np.finfo(float).eps * (rows % 3 - 1))


def make_rough(priors: ClassPriors) -> ClassPriors:
    names = ("sound", "wrong", "unsound", "leaf")
    return replace(priors, **{name: getattr(priors, name).view(Rough) for name in names})


def some_request(rng: np.random.Generator, priors: ClassPriors, largest: int) -> ChainEvidence:
    """Return a request with 1 to 4 chains of 1 to 9 steps and random counts up to `largest`."""
    num_steps = rng.integers(1, 10, rng.integers(1, 5))
    shape = (len(num_steps), num_steps.max() + 1)
    has_state = np.arange(shape[1]) <= num_steps[:, None]
    has_state[:, 0] = False
    right, wrong, others = (rng.integers(0, largest + 1, shape) * has_state for _ in range(3))
    return ChainEvidence(
        num_steps=num_steps,
        counts=np.array([right, wrong, rng.integers(0, others + 1), others], dtype=float),
        outcome=np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[rng.integers(0, 3, shape[0])],
        external_likelihood=rng.uniform(1e-9, 1.0, shape),
        priors=priors,
        previous_plan=None,
        changed_chains=range(shape[0]),
    )


def two_priors() -> list[ClassPriors]:
    wide = make_uninformed_priors().for_class("any")
    agreement = np.array([[3.0, 1.0], [0.5, 2.0], [1.0, 1.5]])
    return [make_rough(replace(wide, agreement=agreement)), make_rough(wide.with_rare_luck)]


@pytest.fixture
def rough_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the matrix products of the value of information round by the number of rows, too."""
    for name, value in vars(plan).items():
        if isinstance(value, np.ndarray):
            monkeypatch.setattr(plan, name, value.view(Rough))


@pytest.mark.usefixtures("rough_products")
@pytest.mark.parametrize("seed", range(6))
def test_a_plan_is_the_same_in_any_batch(seed: int) -> None:
    rng, priors = np.random.default_rng(seed), two_priors()
    # Some requests have counts beyond the tables, which must not affect the other requests.
    sizes = [0, 3, TABLE_SIZE - 1, TABLE_SIZE, 600]
    requests = [some_request(rng, priors[i % 2], sizes[i % len(sizes)]) for i in range(70)]
    alone = [make_plans([request])[0].table for request in requests]
    for _ in range(4):
        for part in np.split(
            rng.permutation(len(requests)), np.sort(rng.integers(0, len(requests), 3))
        ):
            for index, plan_ in zip(part, make_plans([requests[i] for i in part]), strict=True):
                assert np.array_equal(plan_.table, alone[index])


@given(
    seed=st.integers(0, 10**6),
    terms=st.integers(1, 20),
    size=st.integers(2, 28),
    rest=st.lists(st.integers(1, 9), max_size=2),
    lanes=st.integers(1, 4),
)
@settings(deadline=None, max_examples=60)
def test_sums_run_from_the_first_term_to_the_last(
    seed: int, terms: int, size: int, rest: list[int], lanes: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (*rest, LANES * lanes)
    weights, vectors = rng.random((terms, size)), rng.random((terms, *shape)) ** 40
    inside = np.empty((size, *(n + 1 for n in rest), LANES * lanes))[
        (slice(None), *(slice(1, None) for _ in rest))
    ]
    exact = weights[0].reshape(size, *[1] * len(shape)) * vectors[0]
    added = vectors[0].copy()
    for weight, vector in zip(weights[1:], vectors[1:], strict=True):
        added = added + vector
        exact = exact + weight.reshape(size, *[1] * len(shape)) * vector
    sums = weighted_sums(weights, vectors)
    assert np.array_equal(sum_in_order(vectors), added)
    assert np.array_equal(weighted_sums(weights, vectors, inside), sums)
    # Fused multiplications and additions round a sum less often.
    assert np.allclose(sums, exact, rtol=1e-14 * terms, atol=0)
    for lane in range(vectors.shape[-1]):
        others = rng.permuted(vectors, axis=-1)
        others[..., 0] = vectors[..., lane]
        assert np.array_equal(weighted_sums(weights, others)[..., 0], sums[..., lane])


@pytest.mark.parametrize(
    ("ours", "theirs", "numbers", "tolerance"),
    [(log, math.log, st.floats(1e-300, 1e300), 1e-16), (exp, math.exp, st.floats(-708, 700), 0)],
    ids=["log", "exp"],
)
@given(data=st.data())
def test_logarithms_and_exponentials_are_right_and_the_same_anywhere(
    ours: Any, theirs: Any, numbers: Any, tolerance: float, data: st.DataObject
) -> None:
    values = data.draw(st.lists(numbers, min_size=1, max_size=20))
    results = ours(np.array(values)).tolist()
    assert results == [float(ours(np.array(x))) for x in values]
    assert results == pytest.approx([theirs(x) for x in values], rel=5e-16, abs=tolerance)


def test_logarithms_and_exponentials_by_hand() -> None:
    assert log(np.array([1.0, 2.0, 0.5])).tolist() == [0.0, math.log(2), -math.log(2)]
    assert exp(np.array([0.0, -1e9])).tolist() == [1.0, exp(np.array(-708.0))]


def test_plans_do_not_depend_on_how_much_memory_a_batch_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long chains are planned in small groups, and their prefixes in parts."""
    rng, priors = np.random.default_rng(5), make_uninformed_priors().for_class("number")
    requests = [some_request(rng, priors, TABLE_SIZE + 3) for _ in range(12)]
    whole = [made_plan.table for made_plan in make_plans(requests)]
    monkeypatch.setattr(plan, "MAX_CELLS", 1)
    for made_plan, table in zip(make_plans(requests), whole, strict=True):
        assert np.array_equal(made_plan.table, table)


def test_first_errors_alone_are_those_of_all_beliefs() -> None:
    rng, priors = np.random.default_rng(6), make_uninformed_priors().for_class("number")
    requests = [some_request(rng, priors, 3) for _ in range(12)]
    for request, first_error in zip(requests, plan.infer_first_errors(requests), strict=True):
        assert np.array_equal(first_error, make_plans([request])[0].first_error)
