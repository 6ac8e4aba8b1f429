"""Every verb with broken inputs gives one message and exit code 2, never a traceback.

A verb or a parameter that is missing in `VERBS` fails the first test.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from tests.support.broken_inputs import (
    World,
    bad_outputs,
    broken_contents,
    broken_files,
    broken_runs,
    verbs,
)
from tests.support.commands import run_verb

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
BUSY = "busy"
"""A placeholder for a port on which another socket listens."""


@dataclass(frozen=True)
class Slot:
    """A place in a command into which broken values are inserted."""

    values: str | tuple[str, ...]
    """Name of a kind of broken values in `_make_values`, or the values themselves."""
    command: Callable[[World, str, str], list[str]]
    """Function to the arguments, from the world, a broken value and a name for new output."""
    may_pass: Callable[[str], bool] = field(default=lambda name: False)
    """Function from the name of a broken value to whether the verb may accept it."""


def _is_unread(name: str) -> bool:
    """Return whether the damage is in a part of a run that not every verb reads."""
    return name.startswith(("rollouts-", "run-"))


def _accept_any(name: str) -> bool:
    return True


def _rows_are_optional(name: str) -> bool:
    """Return whether a file has no row: a CSV file of one line, or an empty file."""
    return name.endswith("-empty") or name.startswith("csv-")


def _damaged_or_new(name: str) -> bool:
    """Return whether an output is new, or resumed without reading all of it."""
    return name in ("missing", "empty", "url") or "-" in name


def _label(*changes: str) -> Callable[[World, str, str], list[str]]:
    def command(w: World, value: str, out: str) -> list[str]:
        return [
            "label",
            w["label.yaml"],
            f"out={out}",
            *[change.replace("VALUE", json.dumps(value)) for change in changes],
        ]

    return command


def _train(*changes: str) -> Callable[[World, str, str], list[str]]:
    def command(w: World, value: str, out: str) -> list[str]:
        filled = [change.replace("VALUE", json.dumps(value)) for change in changes]
        return [
            "train",
            w["train.yaml"],
            f"labels=[{w['arith']}]",
            f"out={out}",
            *filled,
            "--preflight",
        ]

    return command


def _eval_best(*changes: str) -> Callable[[World, str, str], list[str]]:
    def command(w: World, value: str, out: str) -> list[str]:
        return [
            "eval",
            "best-of-n",
            w["best.yaml"],
            f"out={out}",
            f"run={w['run']}",
            *[change.replace("VALUE", json.dumps(value)) for change in changes],
        ]

    return command


def _submit(w: World, address: str, *more: str) -> list[str]:
    return [
        "submit",
        "label",
        w["label.yaml"],
        "out=/shared/out",
        "problems.source=/shared/p.jsonl",
        "--address",
        address,
        *more,
    ]


def _serve(w: World, *arguments: str) -> list[str]:
    return ["serve-search", "configs/search/arith-beam.yaml", *arguments]


def _serve_rewards(*arguments: str) -> list[str]:
    return ["serve-rewards", "configs/rl/serve-rewards.yaml", *arguments]


def _select(
    pool: str, out: str, *more: str, rule: str = "uniform", suffix: str = ".parquet"
) -> list[str]:
    return ["select", pool, "--rule", rule, "--budget", "1", "-o", out + suffix, *more]


def _export_chains(run: str, labels: str, out: str, *more: str) -> list[str]:
    return ["export", run, "--to", "verifier-chains", "--labels", labels, "-o", out, *more]


NOBODY = "http://127.0.0.1:9"
BAD_NAMES = ("", "x y", "../x", ".x", "x.", "a:b:c", "x;y")
OVERRIDES = ("x", "=", "=1", ".=1", "a..b=1", "out={a: b}", "seed=[[", "seed=2001-99-99", "a." * 99
             + "b=1", "seed=" + "[" * 10**5, "seed=!!python/object:os.system x", "out=null",
             "policy.few_shot={a:b}", "policy.engine.engine_args={1: 2}",
             "solutions.per_problem=.nan", "policy.temperature=.nan",
             "seed=" + "9" * 5000)  # fmt: skip

VERBS: dict[str, dict[str, Slot]] = {
    "quickstart": {
        "overrides": Slot(OVERRIDES, lambda w, v, out: ["quickstart", v]),
        "out": Slot("output", lambda w, v, out: ["quickstart", "--out", v]),
    },
    "label": {
        "config": Slot("document", lambda w, v, out: ["label", v, f"out={out}"]),
        "overrides": Slot(OVERRIDES, lambda w, v, out: ["label", w["label.yaml"], v]),
        "overrides: problems.source": Slot("rows", _label("problems.source=VALUE")),
        "overrides: solutions.path": Slot("rows", _label("solutions.path=VALUE")),
        "overrides: policy.few_shot": Slot("rows", _label("policy.few_shot=VALUE")),
        "overrides: policy.model": Slot("run", _label("policy.engine=hf", "policy.model=VALUE")),
        "overrides: estimator.priors": Slot(
            "rows", _label("estimator.kind=posterior", "estimator.priors=VALUE")
        ),
        "overrides: out": Slot("output", _label("out=VALUE")),
        "overrides: out of a run": Slot("run", _label("out=VALUE"), _damaged_or_new),
        "dry_run": Slot("run", _dry := lambda w, v, out: [*_label("out=VALUE")(w, v, out),
                                                          "--dry-run"], _accept_any),
        "allow": Slot(BAD_NAMES, lambda w, v, out: [*_label()(w, v, out), "--allow", v]),
        "pilot": Slot(("-1", "x"), lambda w, v, out: [*_label()(w, v, out), "--pilot", v]),
        "solutions": Slot(
            "run",
            lambda w, v, out: [*_label()(w, v, out), "--solutions", v],
            may_pass=_is_unread,
        ),
        "select": Slot("rows", lambda w, v, out: [*_label()(w, v, out), "--select", v]),
        "address": Slot(("x y", "127.0.0.1:9"), lambda w, v, out: ["label", w["label.yaml"], "x",
                                                                   "--address", v]),
    },
    "submit label": {
        "config": Slot("document", lambda w, v, out: ["submit", "label", v, "--address", NOBODY]),
        "overrides": Slot(OVERRIDES, lambda w, v, out: [*_submit(w, NOBODY), v]),
        "allow": Slot(BAD_NAMES, lambda w, v, out: _submit(w, NOBODY, "--allow", v)),
        "runtime_env": Slot("document", lambda w, v, out: _submit(w, NOBODY, "--runtime-env", v)),
        "address": Slot(
            (NOBODY, "x y", "", "ftp://x", "http://", "http://[::1", "http://127.0.0.1:99999"),
            lambda w, v, out: _submit(w, v),
        ),
    },
    "regrade": {
        "run": Slot("run", lambda w, v, out: ["regrade", v, "-o", out], _is_unread),
        "out": Slot("output", lambda w, v, out: ["regrade", w["run"], "-o", v]),
        "out, a run": Slot(
            "run", lambda w, v, out: ["regrade", w["run"], "-o", v], _damaged_or_new
        ),
        "allow": Slot(BAD_NAMES, lambda w, v, out: ["regrade", w["run"], "-o", out, "--allow", v]),
        "golds": Slot("rows", lambda w, v, out: ["regrade", w["run"], "-o", out, "--golds", v]),
        "changes": Slot(
            ("x", "x=true", "checker=x", "checker=os:system", "checker.units_optional=x",
             "checker.x=true", "checker=[1]", "checker={kind: [}", "checker=.:.", "="),
            lambda w, v, out: ["regrade", w["run"], "-o", out, v],
        ),
    },
    "train": {
        "config": Slot("document", lambda w, v, out: ["train", v, f"labels=[{w['arith']}]",
                                                      f"out={out}"]),
        "overrides": Slot(OVERRIDES, lambda w, v, out: ["train", w["train.yaml"], v]),
        "allow": Slot(BAD_NAMES, lambda w, v, out: [*_train()(w, v, out), "--allow", v]),
        "overrides: labels": Slot("run", _train("labels=[VALUE]"), _is_unread),
        "overrides: base": Slot("run", _train("base=VALUE")),
        "overrides: evaluation": Slot("rows", _train("evaluation=[VALUE]"), _rows_are_optional),
        "overrides: device": Slot(("x", "", "meta", "cuda:99"), _train("device=VALUE")),
        "overrides: out": Slot("output", lambda w, v, out: [
            "train", w["train.yaml"], f"labels=[{w['arith']}]", f"out={json.dumps(v)}"]),
    },
    "export": {
        "run": Slot("run", lambda w, v, out: ["export", v, "--to", "trl", "-o", out], _is_unread),
        "to": Slot(("x", ""), lambda w, v, out: ["export", w["run"], "--to", v, "-o", out]),
        "out": Slot("output", lambda w, v, out: ["export", w["run"], "--to", "trl", "-o", v]),
        "push_to_hub": Slot(("a/b", "", "a b", "../x", "a/b/c"), lambda w, v, out: [
            "export", w["run"], "--to", "trl", "-o", out, "--push-to-hub", v]),
        "run: verifier-chains": Slot("run", lambda w, v, out: _export_chains(v, w["arith"], out)),
        "labels": Slot("run", lambda w, v, out: _export_chains(w["critic"], v, out)),
        "out: verifier-chains": Slot("output", lambda w, v, out: _export_chains(
            w["critic"], w["arith"], v)),
        "max_tokens": Slot(("x", "0", "-1", "1e9"), lambda w, v, out: _export_chains(
            w["critic"], w["arith"], out, "--max-tokens", v)),
        "per_solution": Slot(("x", "0"), lambda w, v, out: _export_chains(
            w["critic"], w["arith"], out, "--per-solution", v)),
        "prompt": Slot(("x", "", "lessons", "{problem}"), lambda w, v, out: _export_chains(
            w["critic"], w["arith"], out, "--prompt", v)),
        "seed": Slot(("x", "-1"), lambda w, v, out: _export_chains(
            w["critic"], w["arith"], out, "--seed", v)),
    },
    "import": {
        "file": Slot("rows", lambda w, v, out: ["import", v, "--from", "trl", "-o", out]),
        "source": Slot("rows", lambda w, v, out: ["import", v, "--from", "prm800k", "-o", out]),
        "out": Slot("output", lambda w, v, out: ["import", w["trl.jsonl"], "--from", "trl",
                                                 "-o", v]),
    },
    "score": {
        "prm": Slot("run", lambda w, v, out: ["score", v, w["solutions.jsonl"]]),
        "solutions": Slot("rows", lambda w, v, out: ["score", w["prm"], v]),
        "out": Slot("output", lambda w, v, out: ["score", w["prm"], w["solutions.jsonl"],
                                                 "-o", v]),
        "device": Slot(("x", "", "meta", "cuda:99"), lambda w, v, out: [
            "score", w["prm"], w["solutions.jsonl"], "--device", v]),
        "url": Slot((NOBODY, "x", "", "file:///etc", "http://[", "http://127.0.0.1:99999"),
                    lambda w, v, out: ["score", w["prm"], w["solutions.jsonl"], "--url", v]),
        "prm_format": Slot("run", lambda w, v, out: ["score", v, w["solutions.jsonl"],
                                               "--format", "trl"]),
        "overrides": Slot(
            ("x", "=", "nothing=1", "block_solutions=0", "block_solutions=x", "ray=[1]",
             "ray.address=127.0.0.1:9", "budget.max_hours=-1", "budget.max_hours=.nan"),
            lambda w, v, out: ["score", w["prm"], w["solutions.jsonl"], v, "-o", out],
        ),
        "address": Slot(("x y", "127.0.0.1:9"), lambda w, v, out: [
            "score", w["prm"], w["solutions.jsonl"], "--address", v, "-o", out]),
    },
    "select": {
        "solutions": Slot("rows", lambda w, v, out: _select(v, out)),
        "solutions, a run": Slot("run", lambda w, v, out: _select(v, out), _is_unread),
        "prm": Slot("run", lambda w, v, out: _select(
            w["solutions.jsonl"], out, "--prm", v, rule="convincing")),
        "scores": Slot("rows", lambda w, v, out: _select(
            w["solutions.jsonl"], out, "--scores", v, rule="convincing")),
        "rule": Slot((*BAD_NAMES, "os:system", "json:loads", "unifor"), lambda w, v, out: _select(
            w["solutions.jsonl"], out, rule=v)),
        "budget": Slot(("x", "0", "-1", "1e9"), lambda w, v, out: _select(
            w["solutions.jsonl"], out, "--budget", v)),
        "uniform_share": Slot(("x", "-1", "2", "nan"), lambda w, v, out: _select(
            w["solutions.jsonl"], out, "--uniform-share", v)),
        "per_problem": Slot(("x", "0"), lambda w, v, out: _select(
            w["solutions.jsonl"], out, "--per-problem", v)),
        "seed": Slot(("x", "-1"), lambda w, v, out: _select(
            w["solutions.jsonl"], out, "--seed", v)),
        "exclude": Slot("rows", lambda w, v, out: _select(
            w["solutions.jsonl"], out, "--exclude", v)),
        "out": Slot("output", lambda w, v, out: _select(w["solutions.jsonl"], v, suffix="")),
        "overrides": Slot(
            ("x", "=", "nothing=1", "aggregation=x", "format=x", "exclude=x", "ray=[1]"),
            lambda w, v, out: _select(w["solutions.jsonl"], out, v),
        ),
    },
    "search": {
        "config": Slot("rows", lambda w, v, out: ["search", v, f"out={out}"]),
        "overrides": Slot(
            ("x", "=", "nothing=1", "search=x", "search=os:system", "search.n=0", "tokens=1",
             "search=beam search.width=0", "scorer=x", "scorer.score=2", "split.by=step",
             "choose=x", "search.every=0", "search.aggregate=x", "seed=-1"),
            lambda w, v, out: ["search", w["search.yaml"], f"out={out}", *v.split()],
        ),
        "overrides: out": Slot("output", lambda w, v, out: [
            "search", w["search.yaml"], f"out={json.dumps(v)}"], _damaged_or_new),
        "overrides: problems.source": Slot("rows", lambda w, v, out: [
            "search", w["search.yaml"], f"problems.source={json.dumps(v)}", f"out={out}"],
            _rows_are_optional),
        "overrides: scorer.prm": Slot("run", lambda w, v, out: [
            "search", w["search.yaml"], "scorer=prm", f"scorer.prm={json.dumps(v)}",
            f"out={out}"]),
        "allow": Slot(("1", "a b", "a:b:c"), lambda w, v, out: [
            "search", w["search.yaml"], f"out={out}", "--allow", v]),
        "address": Slot(("nowhere", "http://localhost:1"), lambda w, v, out: [
            "search", w["search.yaml"], "--address", v, f"out={out}"]),
    },
    "judge": {
        "solutions": Slot("rows", lambda w, v, out: ["judge", v, "-o", out]),
        "solutions, a run": Slot("run", lambda w, v, out: ["judge", v, "-o", out], _is_unread),
        "out": Slot("output", lambda w, v, out: ["judge", w["solutions.jsonl"], "-o", v]),
        "config": Slot("document", lambda w, v, out: [
            "judge", w["solutions.jsonl"], "-o", out, "--config", v],
            lambda name: name in ("empty", "torn-parquet")),
        "answers": Slot("run", lambda w, v, out: [
            "judge", w["solutions.jsonl"], "-o", out, "--answers", v]),
        "overrides": Slot(
            ("x", "=", "nothing=1", "block_solutions=0", "judge=x", "judge=[1]", "judge=os:system",
             "judge.kind=critic judge.prompt=x", "judge.threshold=.nan", "seed=-1",
             "ray.address=127.0.0.1:9", "budget.max_hours=.nan", "journal_s=0"),
            lambda w, v, out: ["judge", w["solutions.jsonl"], *v.split(), "-o", out],
        ),
        "overrides: judge.prm": Slot("run", lambda w, v, out: [
            "judge", w["solutions.jsonl"], "judge=scorer", f"judge.prm={json.dumps(v)}",
            "judge.threshold=0.5", "-o", out]),
        "overrides: judge.held_out": Slot("run", lambda w, v, out: [
            "judge", w["solutions.jsonl"], "judge=scorer", f"judge.prm={w['prm']}",
            f"judge.held_out={json.dumps(v)}", "-o", out], _is_unread),
        "allow": Slot(BAD_NAMES, lambda w, v, out: [
            "judge", w["solutions.jsonl"], "-o", out, "--allow", v]),
        "address": Slot(("x y", "127.0.0.1:9"), lambda w, v, out: [
            "judge", w["solutions.jsonl"], "--address", v, "-o", out]),
    },
    "combine": {
        "run": Slot("run", lambda w, v, out: ["combine", v, w["opinions"], "-o", out], _is_unread),
        "opinions": Slot("run", lambda w, v, out: ["combine", w["arith"], v, "-o", out]),
        "opinions, named": Slot(("=", "a=", "=b", "a=b", "rollouts=x"), lambda w, v, out: [
            "combine", w["arith"], v, "-o", out]),
        "out": Slot("output", lambda w, v, out: ["combine", w["arith"], w["opinions"], "-o", v]),
        "out, a run": Slot("run", lambda w, v, out: [
            "combine", w["arith"], w["opinions"], "-o", v], _damaged_or_new),
        "least_belief": Slot(("x", "-1", "2", "nan"), lambda w, v, out: [
            "combine", w["arith"], w["opinions"], "-o", out, "--least-belief", v]),
    },
    "serve": {
        "prm": Slot("run", lambda w, v, out: ["serve", v]),
        "vllm_arguments": Slot("run", lambda w, v, out: ["serve", v, "--port", "1"]),
    },
    "serve-search": {
        "config": Slot("document", lambda w, v, out: ["serve-search", v, "scorer=constant"],
                       lambda name: name in ("empty", "torn-parquet")),
        "overrides": Slot(("x", "scorer=exact", "search.kind=os:system", "seed=" + "9" * 5000,
                           "policy.max_tokens=0", "scorer.prm=nowhere"),
                          lambda w, v, out: _serve(w, v)),
        "allow": Slot(BAD_NAMES, lambda w, v, out: _serve(w, "--allow", v)),
        "host": Slot(("0.0.0.0", "::", "999.1.1.1", "x y", ""),
                     lambda w, v, out: _serve(w, "scorer=constant", "--host", v)),
        "port": Slot(("0", "x", "99999", BUSY),
                     lambda w, v, out: _serve(w, "scorer=constant", "--port", v)),
        "token_env": Slot(("NO_SUCH_TOKEN", "", "A=B"),
                          lambda w, v, out: _serve(w, "scorer=constant", "--token-env", v)),
        "max_live": Slot(("0", "x", ""), lambda w, v, out: _serve(w, "--max-live", v)),
        "max_waiting": Slot(("-1", "x", ""), lambda w, v, out: _serve(w, "--max-waiting", v)),
    },
    "serve-rewards": {
        "config": Slot("document", lambda w, v, out: ["serve-rewards", v],
                       lambda name: name in ("empty", "torn-parquet")),
        "overrides": Slot(("x", "check=false", "credit=mc", "credit=prm_min", "credit=os:system",
                           "credit={kind: outcome, x: 1}", "aggregate=log_odds", "prm=nowhere",
                           "split.min_tokens=2", "around=[x]"),
                          lambda w, v, out: _serve_rewards(v)),
        "allow": Slot(BAD_NAMES, lambda w, v, out: _serve_rewards("--allow", v)),
        "host": Slot(("0.0.0.0", "::", "999.1.1.1", "x y", ""),
                     lambda w, v, out: _serve_rewards("--host", v)),
        "port": Slot(("0", "x", "99999", BUSY), lambda w, v, out: _serve_rewards("--port", v)),
        "token_env": Slot(("NO_SUCH_TOKEN", "", "A=B"),
                          lambda w, v, out: _serve_rewards("--token-env", v)),
        "max_waiting": Slot(("-1", "x", ""), lambda w, v, out: _serve_rewards("--max-waiting", v)),
    },
    "eval best-of-n": {
        "config": Slot("document", lambda w, v, out: ["eval", "best-of-n", v, f"out={out}"]),
        "overrides": Slot(OVERRIDES, lambda w, v, out: ["eval", "best-of-n", w["best.yaml"], v]),
        "allow": Slot(BAD_NAMES, lambda w, v, out: [*_eval_best()(w, v, out), "--allow", v]),
        "overrides: run": Slot("run", _eval_best("run=VALUE"), _is_unread),
        "overrides: exclude": Slot("run", _eval_best("exclude=[VALUE]"), _is_unread),
        "overrides: scorers": Slot("run", _eval_best("scorers={x: VALUE}")),
        "overrides: likelihood": Slot("run", _eval_best("likelihood={x: VALUE}")),
        "overrides: references": Slot(("x", ""), _eval_best("references=[VALUE]")),
        "overrides: trust_remote_code": Slot(("x", ""), _eval_best("trust_remote_code=[VALUE]")),
        "overrides: out": Slot("output", _eval_best("out=VALUE")),
    },
    "eval labels": {
        "shards": Slot("run", lambda w, v, out: ["eval", "labels", v], _is_unread),
        "truth": Slot("rows", lambda w, v, out: ["eval", "labels", w["arith"], "--truth",
                                                 f"processbench:{v}"]),
        "truth, a run": Slot("run", lambda w, v, out: ["eval", "labels", w["arith"], "--truth",
                                                       f"run:{v}"], _is_unread),
        "out": Slot("output", lambda w, v, out: ["eval", "labels", w["arith"], "-o", v]),
        "seed": Slot(("x",), lambda w, v, out: ["eval", "labels", w["arith"], "--seed", v]),
        "width": Slot(("x", "0", "1", "nan"), lambda w, v, out: [
            "eval", "labels", w["arith"], "--width", v]),
    },
    "eval processbench": {
        "files": Slot("rows", lambda w, v, out: ["eval", "processbench", v, "--labels",
                                                 w["run"]]),
        "model": Slot("run", lambda w, v, out: [
            "eval", "processbench", w["processbench_gsm8k.jsonl"], "--model", v]),
        "run": Slot("run", lambda w, v, out: [
            "eval", "processbench", w["processbench_gsm8k.jsonl"], "--labels", v], _is_unread),
        "opinions": Slot("run", lambda w, v, out: [
            "eval", "processbench", w["processbench_gsm8k.jsonl"], "--opinions", v]),
        "threshold": Slot(("x", ""), lambda w, v, out: [
            "eval", "processbench", w["processbench_gsm8k.jsonl"], "--model", w["prm"],
            "--threshold", v]),
        "device": Slot(("x", "meta"), lambda w, v, out: [
            "eval", "processbench", w["processbench_gsm8k.jsonl"], "--model", w["prm"],
            "--device", v]),
        "out": Slot("output", lambda w, v, out: [
            "eval", "processbench", w["processbench_gsm8k.jsonl"], "--model", w["prm"],
            "-o", v]),
        "seed": Slot(("x",), lambda w, v, out: [
            "eval", "processbench", w["processbench_gsm8k.jsonl"], "--model", w["prm"],
            "--seed", v]),
    },
    "eval processbench-golds": {
        "files": Slot("rows", lambda w, v, out: ["eval", "processbench-golds", v, "-o", out]),
        "golds": Slot("rows", lambda w, v, out: [
            "eval", "processbench-golds", w["processbench_gsm8k.jsonl"], "--golds", v,
            "-o", out]),
        "out": Slot("output", lambda w, v, out: [
            "eval", "processbench-golds", w["processbench_gsm8k.jsonl"], "-o", v]),
    },
    "check": {
        "gold": Slot(("1",), lambda w, v, out: ["check", "--gold", v]),
        "answer": Slot(("1",), lambda w, v, out: ["check", "--answer", v]),
        "completion": Slot("rows", lambda w, v, out: ["check", "--gold", "1", "--completion", v],
                           _accept_any),
        "pairs_path": Slot("rows", lambda w, v, out: ["check", "--file", v], _accept_any),
        "out": Slot("output", lambda w, v, out: ["check", "--file", w["pairs.jsonl"], "-o", v]),
    },
    "show": {
        "shards": Slot("run", lambda w, v, out: ["show", v], _is_unread),
        "limit": Slot(("x", ""), lambda w, v, out: ["show", w["run"], "--limit", v]),
    },
    "labels": {"shards": Slot("run", lambda w, v, out: ["labels", v], _is_unread)},
    "report": {
        "runs": Slot("run", lambda w, v, out: ["report", v, "-o", out], _is_unread),
        "out": Slot("output", lambda w, v, out: ["report", w["run"], "-o", v]),
    },
    "verify": {
        "run": Slot("run", lambda w, v, out: ["verify", v], lambda name: "-" in name),
    },
    "annotate": {
        "run": Slot("run", lambda w, v, out: ["annotate", v, "-o", out], _is_unread),
        "out": Slot("output", lambda w, v, out: ["annotate", w["run"], "-o", v]),
        "people": Slot(("", ",", "ana,ana", "ana," * 2000), lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--people", v]),
        "sample": Slot(("0", "x", "-1", "1e9"), lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--sample", v]),
        "overlap": Slot(("nan", "2", "x"), lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--overlap", v]),
        "seed": Slot(("-1", "x", "1e300"), lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--seed", v]),
        "guidelines": Slot(("no-such-file.md", "."), lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--guidelines", v]),
        "gold": Slot("rows", lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--gold", v]),
        "gold_share": Slot(("1", "nan", "-1"), lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--gold-share", v]),
        "select": Slot("rows", lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--select", v]),
        "port": Slot(("0", "x", "99999", BUSY), lambda w, v, out: [
            "annotate", w["run"], "-o", out, "--port", v]),
    },
    "view": {
        "runs": Slot("run", lambda w, v, out: ["view", v], _is_unread),
        "port": Slot(("0", "x", "99999", BUSY), lambda w, v, out: ["view", w["run"],
                                                                    "--port", v]),
    },
}  # fmt: skip

HARMLESS = {
    ("regrade", "change_checker"),
    ("quickstart", "model"),
    ("quickstart", "size"),
    ("quickstart", "keys"),
    ("label", "strict"),
    ("train", "is_preflight"),
    ("import", "strict"),
    ("export", "strict"),
    ("eval processbench", "strict"),
    ("export", "chain_filter"),
    ("eval processbench-golds", "strict"),
    ("label", "accept_changes"),
    ("score", "strict"),
    ("score", "accept_changes"),
    ("combine", "rule"),
    ("search", "keys"),
    ("search", "strict"),
    ("search", "accept_changes"),
    ("search", "dry_run"),
    *(
        ("select", "keys"),
        ("score", "keys"),
        ("judge", "keys"),
        ("judge", "strict"),
        ("judge", "accept_changes"),
    ),
    ("show", "problem"),
    ("show", "wrong"),
    ("eval best-of-n", "table_format"),
    ("eval labels", "table_format"),
    ("eval processbench", "table_format"),
    ("score", "trust_remote_code"),
    ("eval processbench", "trust_remote_code"),
    ("label", "keys"),
    ("submit label", "keys"),
    ("train", "keys"),
    ("eval best-of-n", "keys"),
    ("completion", "shell"),
    ("serve-search", "keys"),
    ("serve-search", "name"),
    ("serve-rewards", "keys"),
}
"""Flags, choices that click checks, and ids that are searched for, which no value can break."""


def test_every_parameter_of_every_verb_has_a_case() -> None:
    parameters = {(verb, str(p.name)) for verb, command in verbs(main) for p in command.params}
    # a flag of nearly all verbs
    parameters = {(verb, name) for verb, name in parameters if name != "as_json"}
    assert (
        parameters
        == {(verb, name.split(":")[0].split(",")[0]) for verb in VERBS for name in VERBS[verb]}
        | HARMLESS
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


async def _serve_nothing(*arguments: object) -> None:
    return None


def _make_values(kind: str, world: World, folder: Path) -> dict[str, str]:
    if kind == "document":
        return broken_files(folder / "files", ".yaml")
    if kind == "output":
        return bad_outputs(folder / "outputs")
    if kind == "run":
        return broken_runs(folder / "runs", Path(world["run"]))
    assert kind == "rows"
    first, *others = SUFFIXES
    broken = {first: broken_files(folder / first[1:], first)}
    broken |= {suffix: broken_contents(folder / suffix[1:], suffix) for suffix in others}
    return {f"{suffix[1:]}-{name}": v for suffix in broken for name, v in broken[suffix].items()}


def _find_fault(result: Result, *, may_pass: bool) -> str | None:
    """Return what is wrong with the end of a command, or None."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"{type(result.exception).__name__}: {str(result.exception)[:150]}"
    if "Traceback" in result.output:
        return "a traceback was printed"
    if may_pass and result.exit_code in (0, 1):
        return None
    if result.exit_code != 2:
        return f"exit code {result.exit_code}: {result.output[-150:]!r}"
    return (
        None
        if (result.output.count("mclabel: ") + result.output.count("\nError: "))
        else f"no message: {result.output[-150:]!r}"
    )


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        # the plain run has the first slot of each verb
        pytest.param(verb, name, marks=[pytest.mark.slow] if number else [])
        for verb, slots in VERBS.items()
        for number, name in enumerate(slots)
    ],
)
def test_a_broken_input_is_one_message(
    verb: str, name: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = VERBS[verb][name]
    monkeypatch.chdir(tmp_path)
    for user in ("report.viewer.server", "serving.access"):  # these would serve forever
        monkeypatch.setattr(f"mclabel.{user}.serve_page", lambda *arguments: None)
    for server in ("search.serve._serve_until_stopped", "rl.serve._load_and_serve"):
        monkeypatch.setattr(f"mclabel.{server}", _serve_nothing)
    values = (
        {value: value for value in slot.values}
        if isinstance(slot.values, tuple)
        else _make_values(slot.values, world, tmp_path)
    )
    faults = {}
    with socket.create_server(("127.0.0.1", 0)) as busy:
        for case, value in values.items():
            argument = str(busy.getsockname()[1]) if value == BUSY else value
            arguments = slot.command(
                world, argument, str(tmp_path / f"out-{len(faults)}-{case[:40]}")
            )
            result = CliRunner(env={"COLUMNS": "200"}).invoke(main, arguments, input="y\n")
            if fault := _find_fault(result, may_pass=slot.may_pass(case)):
                faults[case[:60]] = fault
    assert not faults


def test_a_real_fault_keeps_its_traceback_and_asks_to_be_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_by_mistake(store: object, require_complete: bool = True) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("mclabel.run.shards.labels.read_catalog", fail_by_mistake)
    result = run_verb(["show", world["run"]], code=1)
    assert isinstance(result.exception, KeyError)
    assert "Please report it" in result.exception.__notes__[0]


def test_a_full_disk_is_said_wherever_it_comes_up(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_full_disk(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device", "figures.json")

    monkeypatch.setattr("mclabel.data.exchange.job._format_json_line", fail_full_disk)
    result = run_verb(["export", world["run"], "--to", "trl", "-o", str(tmp_path / "out")], code=2)
    assert "figures.json: No space left on device. Completed work is kept" in result.output


@pytest.mark.slow
def test_an_upload_without_a_network_is_one_message(world: World, tmp_path: Path) -> None:
    """The test needs its own process, because the hub's client reads its environment once."""
    environment = {**os.environ, "HF_ENDPOINT": NOBODY, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_x"}
    out = str(tmp_path / "out")
    command = ["export", world["arith"], "--to", "trl", "-o", out, "--push-to-hub", "a/b"]
    done = subprocess.run(
        [sys.executable, "-m", "mclabel", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert f"--push-to-hub a/b: [Errno 111] Connection refused. The files are in {out}" in (
        done.stderr
    )
    assert (tmp_path / "out" / "data.jsonl").is_file()
