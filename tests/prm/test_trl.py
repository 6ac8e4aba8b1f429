"""Exported labels in TRL's own trainer, and the trained model in mclabel's scoring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForTokenClassification, AutoTokenizer

from mclabel import jobs
from mclabel.prm import load_prm
from tests.support.labelled import arith_rows, tiny_model, write_run


def test_trl_trains_an_epoch_on_our_export_and_we_score_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trl = pytest.importorskip("trl.experimental.prm")
    from datasets import load_dataset

    jobs.export_run(write_run(tmp_path / "run", arith_rows(32)), "trl", str(tmp_path / "export"))
    base = tiny_model(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(base)
    data = load_dataset(
        "json", data_files=str(tmp_path / "export/data.jsonl"), cache_dir=str(tmp_path / "cache")
    )["train"]
    trainer = trl.PRMTrainer(
        model=AutoModelForTokenClassification.from_pretrained(base, num_labels=2),
        args=trl.PRMConfig(
            output_dir=str(tmp_path / "trl"),
            num_train_epochs=1,
            per_device_train_batch_size=8,
            use_cpu=True,
            report_to=[],
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=data,
        processing_class=tokenizer,
    )
    trainer.train()
    assert trainer.state.global_step == 4
    labels = [label for row in trainer.train_dataset["labels"] for label in row if label != -100]
    rows = [json.loads(line) for line in (tmp_path / "export/data.jsonl").open()]
    assert labels == [int(label) for row in rows for label in row["labels"]]
    trainer.save_model(str(tmp_path / "trl"))
    prm = load_prm(tmp_path / "trl", format="trl")
    row, theirs = rows[0], trainer.train_dataset[0]
    encoded = prm.encode(row["prompt"], row["completions"])
    assert list(encoded.ids) == theirs["input_ids"]
    assert [i for i, t in enumerate(theirs["labels"]) if t != -100] == list(encoded.positions)
    (scores,) = prm.score([row["prompt"]], [row["completions"]])
    assert len(scores) == len(row["labels"])
