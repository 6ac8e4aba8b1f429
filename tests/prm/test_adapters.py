"""Public PRMs: the decoded input of their networks, and the logits that become scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import (
    PreTrainedTokenizerFast,
)

from mclabel.core.errors import ConfigError, DataError, EngineError
from mclabel.judge.opinions import OpinionRun, read_judged_solutions
from mclabel.prm import load_prm
from mclabel.prm.scoring import FORMATS, GENERATIVE, OWN_FORMAT
from mclabel.prm.scoring.layout import OUR_SPLIT, split_into_steps
from tests.prm.test_public_prms import CHATML, LLAMA, byte_level, make_tokenizer, save_checkpoint
from tests.support.commands import run_verb
from tests.support.hostile_models import change

OTHERS = [form for form in FORMATS if form not in (OWN_FORMAT, GENERATIVE)]

PROBLEM, STEPS = "q1 q2", ["a b", "c", "a c"]
ROLES = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CHECKPOINTS: dict[str, tuple[Callable[[], PreTrainedTokenizerFast], str]] = {
    "math-shepherd": (make_tokenizer, "lm"),
    "rlhflow": (lambda: byte_level(ROLES, LLAMA), "lm"),
    "qwen": (
        lambda: byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>"], CHATML),
        "qwen",
    ),
    "trl": (lambda: byte_level(["<|begin_of_text|>"], None), "head"),
}
"""Tokenizer and kind of network of each format."""


@pytest.fixture(params=OTHERS)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Yield the format and the folder of a checkpoint, for each format."""
    tokenizer, kind = CHECKPOINTS[request.param]
    return request.param, save_checkpoint(tmp_path / "prm", tokenizer(), kind)


def test_texts_that_hold_the_marks_are_refused(checkpoint: tuple[str, str]) -> None:
    form, path = checkpoint
    adapted = load_prm(path, format=form)
    with pytest.raises(DataError, match="without steps"):
        adapted.score(["q1"], [[]])
    if form == "math-shepherd":  # the other formats' marks are control tokens, plain in texts
        with pytest.raises(DataError, match="contains the mark"):
            adapted.score(["q1"], [["a", "b ки c"]])


def test_the_command_leaves_out_what_the_network_cannot_read(
    checkpoint: tuple[str, str], tmp_path: Path
) -> None:
    form, path = checkpoint
    rows = [{"problem": PROBLEM, "steps": steps} for steps in (STEPS, ["a " * 9000], ["a"] * 9000)]
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    done = run_verb(["score", path, str(file), "--format", form])
    assert len(done.stdout.splitlines()) == 1
    assert [line[:18] for line in done.stderr.splitlines()] == [
        "row 2 (too_long): ",
        "row 3 (too_long): ",
    ]


def test_opinions_are_on_the_steps_that_the_format_reads(
    checkpoint: tuple[str, str], tmp_path: Path
) -> None:
    form, path = checkpoint
    text = "a b\n\nc\na c"
    file, out = tmp_path / "in.jsonl", tmp_path / "run"
    file.write_text(json.dumps({"problem": PROBLEM, "solution": text}) + "\n")
    run_verb(["score", path, str(file), "--format", form, "-o", str(out)])
    (judged,) = read_judged_solutions(str(out))
    assert judged.steps == (
        ("a b\n\n", "c\na c") if (form in ("rlhflow", "qwen")) else ("a b\n\n", "c\n", "a c")
    )
    scores = load_prm(path, format=form).score([PROBLEM], [text])[0]
    assert judged.opinion.scores == pytest.approx(scores, abs=1e-5)
    assert list(OpinionRun.read(str(out)).num_steps.values()) == [len(scores)]


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ({"format": "qwen"}, EngineError, r"format=qwen: .*holds no config\.json"),
        (
            {"format": "trl", "url": "http://localhost:1"},
            ConfigError,
            r"serves PRMs of format=mclabel, not trl",
        ),
        ({"format": "bogus"}, ConfigError, r"load_prm: format: .*bogus"),
        ({"shape": "trl"}, ConfigError, "load_prm: shape: "),
    ],
)
def test_a_folder_without_a_model_is_refused(
    tmp_path: Path, keys: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load_prm(tmp_path, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("split", "steps"),
    [
        ("line", ["Step 1:\n", "3 + 4 = 7\n\n", "\\[\n", "x = 7\n", "\\]"]),
        ("paragraph", ["Step 1:\n3 + 4 = 7\n\n", "\\[\nx = 7\n\\]"]),
        (OUR_SPLIT, ["Step 1:\n3 + 4 = 7\n\n", "\\[\nx = 7\n\\]"]),
        ("line", []),
    ],
)
def test_a_text_is_split_as_the_authors_of_a_format_do_and_not_by_the_rules_for_labels(
    split: str, steps: list[str]
) -> None:
    assert split_into_steps("".join(steps), split) == steps


@pytest.mark.parametrize(
    ("names", "good", "warns"),
    [
        (("LABEL_0", "LABEL_1"), 1, False),
        (("good", "bad"), 0, False),
        (("bad", "good"), 1, False),
        (("+", "-"), 0, False),
        (("Correct", "Incorrect"), 0, False),
        (("incorrect", "correct"), 1, False),
        (("LABEL_1", "LABEL_0"), 0, False),
        (("A", "B"), 1, True),
        (("good", "right"), 1, True),
    ],
)
def test_the_names_of_the_classes_say_which_is_good(
    names: tuple[str, str], good: int, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save_checkpoint(tmp_path, byte_level(["<|begin_of_text|>"], None), "head")
    change(tmp_path / "config.json", id2label=dict(enumerate(names)))
    named = load_prm(folder, format="trl", layout={"classes": [str(good), str(1 - good)]})
    assert load_prm(folder, format="trl").score([PROBLEM], [STEPS]) == named.score(
        [PROBLEM], [STEPS]
    )
    assert ("id2label names the classes" in caplog.text) is warns
