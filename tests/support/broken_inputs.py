"""Inputs that are missing, damaged or malicious, and a folder of correct ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.core.config.load import load_config
from mclabel.engines.chat import PromptParts
from mclabel.engines.text import PolicyText
from mclabel.judge.job import JudgeConfig, judge
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import label
from mclabel.prm.model.network import start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.manifest import PrmManifest
from tests.support.labelled import arith_rows, tiny_model, write_run
from tests.support.verifier_chains import answer, chain, write_critic

DEEP = 100_000
PROBLEMS = [
    {"id": "a", "problem": "A [answer 1]", "answer": "1"},
    {"id": "b", "problem": "B [answer 2]", "answer": "2"},
]
SOLUTIONS = [{"problem": "What is 1 + 1?", "solution": "1 + 1 = 2\nThe answer is 2.\n"}]
JUDGED = [
    {"id": "x-0", "problem": "1 + 1?", "steps": ["1 + 1 = 2", r"So \boxed{2}"], "label": -1,
     "final_answer_correct": True},
]  # fmt: skip
TRL = [{"prompt": "1 + 1?", "completions": ["= 2"], "labels": [True]}]


def lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


class World:
    """A folder with one correct input of each kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {
            "problems.jsonl": lines(PROBLEMS),
            "solutions.jsonl": lines(SOLUTIONS),
            "given.jsonl": lines([{"problem_id": "a", "solution": "so\nThe answer is 1.\n"}]),
            "golds.jsonl": lines([{"problem_id": "a", "answer": "1"}]),
            "processbench_gsm8k.jsonl": lines(JUDGED),
            "trl.jsonl": lines(TRL),
            "pairs.jsonl": lines([{"gold": "1", "answer": "1"}]),
            "completion.txt": "The answer is 1.",
            "shots.jsonl": lines([{"problem": "1?", "solution": "1\n"}]),
            "label.yaml": f"problems: {{source: {folder}/problems.jsonl}}\nblock_problems: 1\n"
            "policy: {engine: scripted}\nray: {address: none}\n"
            "solutions: {per_problem: 2}\nestimator: {kind: fixed, rollouts: 2}\n",
            "search.yaml": "problems: {source: arith, limit: 1}\nscorer: {kind: constant}\n"
            "policy: {max_tokens: 4}\nsearch: {kind: best_of_n, n: 1}\n",
            "train.yaml": "base: arith:strong\nhead: likelihood\nmax_steps: 1\n",
            "best.yaml": "problems: {source: arith, limit: 1}\nsamples: 1\nray: {address: none}\n"
            "policy: {max_tokens: 4}\n",
            "env.yaml": "env_vars: {A: b}\n",
        }
        for name, text in self.files.items():
            (folder / name).write_text(text)
        config = load_config(LabelConfig, self["label.yaml"], [f"out={folder}/run"])
        label(config, lambda state: None)
        rows = arith_rows(24)
        assert any(row.first_error is not None for row in rows)
        write_run(folder / "arith", rows)
        judged = ["solutions=" + str(folder / "arith"), f"out={folder}/opinions"]
        judge(load_config(JudgeConfig, None, judged))
        write_critic(
            folder / "critic", rows, lambda row: [answer(row, chain(row, row.first_error))]
        )
        model = tiny_model(folder / "model")
        self._save_prm(model)

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def _save_prm(self, base: str) -> None:
        prm = self.folder / "prm"
        prm.mkdir()
        start_step_model(ModelSettings(base=base, head="token")).save(prm)
        PolicyText.load(base, PromptParts()).save(prm)
        PrmManifest(
            kind="prm",
            head="token",
            step_token="<|step|>",
            template=None,
            system=None,
            max_tokens=512,
        ).save(prm)


def broken_contents(folder: Path, suffix: str) -> dict[str, str]:
    """Write files whose content is unusable."""
    folder.mkdir(parents=True)
    deep = "[" * DEEP + "]" * DEEP
    contents: dict[str, bytes] = {
        "empty": b"",
        "binary": bytes(range(256)) * 64,
        "nul": b"\0" * 4096,
        "deep": deep.encode(),
        "deep-value": f'{{"problem": {deep}, "answer": 1}}'.encode(),
        "not-utf8": b'{"problem": "\xff\xfe", "answer": "\xff"}\n',
        "surrogate": b'{"problem": "\\ud800", "answer": "\\udfff", "steps": ["\\ud800"]}\n',
        "list": b"[1, 2]\n",
        "number": b"7\n",
        "nan": b'{"problem": NaN, "answer": Infinity, "gold": NaN, "steps": NaN, "label": NaN}\n',
        "long-number": b'{"problem": ' + b"9" * 10_000 + b"}\n",
        "wrong-types": b'{"problem": {"a": [1]}, "answer": [1], "steps": 3, "label": "x"}\n',
        "other-columns": b'{"a": 1}\n',
    }
    paths = {}
    for name, content in contents.items():
        path = folder / f"{name}{suffix}"
        path.write_bytes(content)
        paths[name] = str(path)
    return paths


def broken_files(folder: Path, suffix: str) -> dict[str, str]:
    """Return paths of files that cannot be read or have unusable content."""
    paths = broken_contents(folder, suffix)
    torn = folder / "torn.parquet"
    pq.write_table(pa.table({"problem": ["x"] * 1000, "answer": ["1"] * 1000}), torn)
    torn.write_bytes(torn.read_bytes()[:-700])
    rubbish = folder / "rubbish.parquet"
    rubbish.write_bytes(b"PAR1" + bytes(range(256)) + b"\xff\xff\xff\x7fPAR1")
    (folder / f"folder{suffix}").mkdir()
    (folder / f"loop{suffix}").symlink_to(folder / f"loop{suffix}")
    secret = folder / f"forbidden{suffix}"
    secret.write_text("x")
    secret.chmod(0)
    paths |= {
        "missing": str(folder / f"missing{suffix}"),
        "nothing": "",
        "folder": str(folder / f"folder{suffix}"),
        "loop": str(folder / f"loop{suffix}"),
        "proc": "/proc/self/mem",
        "no-suffix": "/proc/self/status",
        "url": f"file://{folder}/missing{suffix}",
        "no-url": f"nowhere://x/y{suffix}",
        "long-name": "x" * 5000 + suffix,
        "torn-parquet": str(torn),
        "rubbish-parquet": str(rubbish),
    }
    if os.geteuid():
        paths["forbidden"] = str(secret)
    return paths


def broken_runs(folder: Path, run: Path) -> dict[str, str]:
    """Return folders of labels that cannot be read.

    Damaged copies of a correct run have one fault each.
    """

    def damaged(name: str, damage: Callable[[Path], object]) -> str:
        copy = folder / name
        shutil.copytree(run, copy)
        damage(copy)
        return str(copy)

    def shard(copy: Path, kind: str = "labels") -> Path:
        return sorted((copy / kind).glob("*.parquet"))[0]

    def rewrite_table(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], object]:
        def damage(copy: Path) -> None:
            path = shard(copy)
            pq.write_table(change(pq.read_table(path)), path)

        return damage

    def replace_stamp(text: bytes) -> Callable[[Path], object]:
        return rewrite_table(lambda table: table.replace_schema_metadata({b"mclabel": text}))

    def change_stamp(**changes: object) -> Callable[[Path], object]:
        def change(table: pa.Table) -> pa.Table:
            stamp = {**json.loads(table.schema.metadata[b"mclabel"]), **changes}
            return table.replace_schema_metadata({b"mclabel": json.dumps(stamp).encode()})

        return rewrite_table(change)

    def remove_problem_ids(table: pa.Table) -> pa.Table:
        at = table.column_names.index("problem_id")
        return table.set_column(at, "problem_id", pa.nulls(len(table), pa.string()))

    (folder / "empty").mkdir(parents=True)
    (folder / "a-file").write_text("x")
    return {
        "missing": str(folder / "missing"),
        "empty": str(folder / "empty"),
        "a-file": str(folder / "a-file"),
        "below-a-file": str(folder / "a-file" / "run"),
        "nothing": "",
        "proc": "/proc/self",
        "below-proc": "/proc/nothing/here",
        "url": f"file://{folder}/missing",
        "no-url": "nowhere://x",
        "long-name": "x" * 5000,
        "shard-empty": damaged("shard-empty", lambda c: shard(c).write_bytes(b"")),
        "shard-rubbish": damaged("shard-rubbish", lambda c: shard(c).write_bytes(b"PAR1" * 99)),
        "shard-torn": damaged(
            "shard-torn", lambda c: shard(c).write_bytes(shard(c).read_bytes()[:-99])
        ),
        "run-shard-folder": damaged("run-shard-folder", lambda c: _replace_by_folder(shard(c))),
        "no-stamp": damaged(
            "no-stamp", rewrite_table(lambda table: table.replace_schema_metadata(None))
        ),
        "stamp-no-json": damaged("stamp-no-json", replace_stamp(b"\xff{")),
        "stamp-list": damaged("stamp-list", replace_stamp(b"[1]")),
        "stamp-deep": damaged("stamp-deep", replace_stamp(b"[" * DEEP)),
        "no-column": damaged("no-column", rewrite_table(lambda t: t.drop_columns(["steps"]))),
        "no-id": damaged("no-id", rewrite_table(remove_problem_ids)),
        "other-columns": damaged(
            "other-columns",
            rewrite_table(
                lambda t: pa.table({"a": [1]}).replace_schema_metadata(t.schema.metadata)
            ),
        ),
        "rollouts-elsewhere": damaged(
            "rollouts-elsewhere", change_stamp(rollouts="../../../../etc/passwd")
        ),
        "rollouts-list": damaged("rollouts-list", change_stamp(rollouts=[1])),
        "rollouts-gone": damaged("rollouts-gone", lambda c: shutil.rmtree(c / "rollouts")),
        "rollouts-rubbish": damaged(
            "rollouts-rubbish", lambda c: shard(c, "rollouts").write_bytes(b"rubbish")
        ),
        "run-rubbish": damaged("run-rubbish", lambda c: (c / "run.json").write_bytes(b"\xff{")),
        "run-list": damaged("run-list", lambda c: (c / "run.json").write_text("[1]")),
        "run-deep": damaged("run-deep", lambda c: (c / "run.json").write_text("[" * DEEP)),
        "run-other": damaged(
            "run-other", lambda c: (c / "run.json").write_text('{"config": {"estimator": 3}}')
        ),
    }


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def bad_outputs(folder: Path) -> dict[str, str]:
    """Return output paths to which nothing can be written."""
    folder.mkdir(parents=True)
    (folder / "a-file").write_text("kept")
    return {
        "below-a-file": str(folder / "a-file" / "out"),
        "proc": "/proc/x",
        "dev": "/dev/null/x",
        "long-name": "x" * 5000,
        "no-url": "nowhere://x/y",
    }


def verbs(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield the full name and the command of every CLI verb."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command
