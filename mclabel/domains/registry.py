"""The built-in domains, whose steps can be checked exactly, and the models bundled for them.

The `meta` of a problem identifies its domain. Callers get the truth of a step, or the folder of a
model such as `arith:policy`, from this module. One entry in `DOMAINS` adds a domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mclabel.core.records import StepState
from mclabel.domains import arith, pyarith
from mclabel.domains.arith import verify as arith_verify
from mclabel.domains.pyarith import solutions as pyarith_truth


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A domain of generated problems."""

    has_known_truth: Callable[[Mapping[str, str]], bool]
    """Function that returns whether a problem with this `meta` belongs to the domain."""
    find_step_states: Callable[[Mapping[str, str], Sequence[str]], list[StepState]]
    """Function that returns the state of each step, from a problem's `meta` and the step texts."""
    bundled_model: Callable[[str], Path]
    """Function that returns the folder of a bundled model, from the name after the colon."""


DOMAINS: Mapping[str, Domain] = {
    "arith": Domain(
        has_known_truth=arith_verify.has_hidden_program,
        find_step_states=arith_verify.find_true_step_states,
        bundled_model=arith.bundled_model,
    ),
    "pyarith": Domain(
        has_known_truth=pyarith_truth.has_hidden_function,
        find_step_states=pyarith_truth.find_true_step_states,
        bundled_model=pyarith.bundled_model,
    ),
}
"""Domains by name. The reader of a domain's problems has the same name."""


def has_known_truth(meta: Mapping[str, str]) -> bool:
    """Return whether a problem with this `meta` belongs to a domain in `DOMAINS`."""
    return _find_domain(meta) is not None


def find_true_first_error(meta: Mapping[str, str], steps: Sequence[str]) -> int | None:
    """Return the 0-based index of the first wrong step of a solution, or None if all are right.

    Raises:
        KeyError: the problem belongs to no domain in `DOMAINS`.
    """
    states = find_true_step_states(meta, steps)
    return states.index("error") if "error" in states else None


def find_true_step_states(meta: Mapping[str, str], steps: Sequence[str]) -> list[StepState]:
    """Return the state of every step of a solution, such as `sound` or `error`.

    Raises:
        KeyError: the problem belongs to no domain in `DOMAINS`.
    """
    if (domain := _find_domain(meta)) is None:
        raise KeyError("the problem carries no truth")
    return domain.find_step_states(meta, steps)


def bundled_model(name: str) -> Path | None:
    """Return the folder of a bundled model such as `arith:policy`.

    The result is None if the name does not begin with a domain and a colon.

    Raises:
        ValueError: the domain has no such model.
    """
    prefix, colon, model = name.partition(":")
    domain = DOMAINS.get(prefix) if colon else None
    return None if domain is None else domain.bundled_model(model)


def _find_domain(meta: Mapping[str, str]) -> Domain | None:
    return next((domain for domain in DOMAINS.values() if domain.has_known_truth(meta)), None)
