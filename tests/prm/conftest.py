"""Fixtures: a base model and labels to train on."""

from __future__ import annotations

import pytest

from tests.support.labelled import arith_rows, tiny_model, write_run


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(tmp_path_factory.mktemp("labels"), arith_rows(60))
