"""One pass over a frozen body serves all its heads and the model's own likelihood."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import nn

from mclabel.domains.arith import bundled_model
from mclabel.evaluate.best_of_n.scores import ScoreCache
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.model.heads import LikelihoodHead
from mclabel.prm.model.network import start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.manifest import PrmManifest
from mclabel.prm.scoring.reading import (
    compute_body_fingerprint,
    compute_solution_likelihoods,
    get_likelihood_only_network,
    score_likelihoods,
)
from mclabel.prm.scoring.score import PRM
from tests.support.labelled import arith_text, tiny_model

MANIFEST = PrmManifest(
    kind="prm", head="likelihood", step_token=None, template=None, system=None, max_tokens=1024
)


def head_on(base: str, seed: int, *, sees_states: bool = False) -> LikelihoodHead:
    torch.manual_seed(seed)
    model = start_step_model(ModelSettings(base=base, head="likelihood", states=sees_states)).eval()
    assert isinstance(model, LikelihoodHead)
    for weight in model.body_and_head_parameters()[1]:
        nn.init.normal_(weight, std=0.3)
    return model


def encode_solutions() -> list[EncodedSolution]:
    rng = random.Random(0)
    lines = ["One of them.\n", "Two of them are 2 = 1 + 1.\n", "Then there are 3.\n"]
    encoder = StepEncoder(arith_text(), step_id=None, max_tokens=1024)
    return [
        encoder.encode_text("How many?", text)
        for text in [
            "".join(rng.choice(lines) for _ in range(rng.randrange(1, 7))) for _ in range(40)
        ]
    ]


def test_scores_from_readings_are_those_of_the_model() -> None:
    encoded = encode_solutions()
    model = head_on(str(bundled_model("strong")), 1)
    body = get_likelihood_only_network(model)
    assert body is model.network
    prm = PRM(model, StepEncoder(arith_text(), step_id=None, max_tokens=1024), MANIFEST)
    for ours, theirs in zip(
        score_likelihoods(model, compute_solution_likelihoods(body, encoded, threads=1)),
        prm.score_encoded(encoded),
        strict=True,
    ):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert (
        get_likelihood_only_network(head_on(str(bundled_model("strong")), 1, sees_states=True))
        is None
    )
    assert score_likelihoods(model, []) == []


def test_heads_on_one_body_share_its_pass_and_another_body_has_its_own(tmp_path: Path) -> None:
    encoded = [solution for solution in encode_solutions() for _ in range(2)]
    base = str(bundled_model("strong"))
    passed: list[str] = []
    cache = ScoreCache(tmp_path / "scores", threads=1)

    def score(name: str, model: LikelihoodHead) -> list[list[float]]:
        prm = PRM(model, StepEncoder(arith_text(), step_id=None, max_tokens=1024), MANIFEST)
        return cache.get_prm_scores(
            prm, tmp_path, encoded, lambda done, total: passed.append(f"{name} {total}")
        )

    model, second_model = head_on(base, 1), head_on(base, 2)
    model.network.save_pretrained(tmp_path / "copy")
    first = score("prm", model)
    assert len(first) == len(encoded) and set(passed) == {f"prm {len(set(encoded))}"}
    assert score("orm", second_model) != first
    assert score("copy", head_on(str(tmp_path / "copy"), 1)) == first
    assert len(
        cache.get_likelihoods(model.network, encoded, lambda done, total: passed.append("own"))
    )
    assert {line.split()[0] for line in passed} == {"prm"}
    score("tiny", head_on(tiny_model(tmp_path / "tiny"), 1))
    assert {line.split()[0] for line in passed} == {"prm", "tiny"}
    assert len(list((tmp_path / "scores").iterdir())) == 2


def test_a_body_is_another_when_one_number_or_its_configuration_changes() -> None:
    network = head_on(str(bundled_model("strong")), 1).network
    before = compute_body_fingerprint(network)
    network.config._name_or_path = "elsewhere"
    assert compute_body_fingerprint(network) == before
    with torch.no_grad():
        network.get_input_embeddings().weight[3, 5] += 1e-3  # type: ignore[union-attr, index, operator]
    changed = compute_body_fingerprint(network)
    assert changed != before
    network.config.rope_parameters["rope_theta"] = 5e5
    assert compute_body_fingerprint(network) not in (before, changed)
