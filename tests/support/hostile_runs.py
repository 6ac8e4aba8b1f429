"""Malicious runs and configurations; each would create a canary file if its code ran."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from mclabel.run.shards.digest import add_digest, encode_parquet_with_digest, parse_checked_object
from mclabel.run.shards.manifest import FORMAT

SCRIPT = "<script>window.executed=1</script><img src=x onerror=window.executed=2>"
"""Markup that must never appear unescaped in a page."""


class Touches:
    """An object that creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self._canary), "w")


def callables(canary: Path, module: str) -> dict[str, dict[str, Any]]:
    """Return component settings that would run code, by the name of the called function.

    Args:
        canary: file that the code would create.
        module: importable module of a stranger that creates the file when it is imported.
    """
    touch, python = f"touch {canary}", f"open({str(canary)!r}, 'w').close()"
    called = {
        "subprocess:getoutput": {"arguments": {"cmd": touch}},
        "os:system": {"arguments": {"command": touch}},
        "builtins:exec": {"arguments": {"source": python}},
        "pickle:loads": {"arguments": {"data": "cos\nsystem\n."}},
        "runpy:run_path": {"arguments": {"path_name": f"{module}.py"}},
        "mclabel.answers.workers.pool:subprocess.getoutput": {"arguments": {"cmd": touch}},
        f"{module}:grade": {},
        f"{module}:Component": {},
    }
    return {name: {"kind": name, **more} for name, more in called.items()}


def sign_manifest(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a run's manifest and update its digest."""
    manifest, _ = parse_checked_object((run / "run.json").read_bytes())
    change(manifest)
    (run / "run.json").write_text(json.dumps(add_digest(manifest)))


def sign_shards(
    run: Path,
    *,
    kind: str = "labels",
    columns: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Change a run's shards and update their digests.

    Args:
        run: folder of the run.
        kind: `labels` or `rollouts`.
        columns: new values by column; a value for every row, or a function of the old value.
        metadata: changed keys of the shards' metadata.
    """
    for path in sorted((run / kind).glob("*.parquet")):
        table = pq.read_table(path)
        recorded = {**json.loads(table.schema.metadata[b"mclabel"]), **(metadata or {})}
        for name, value in (columns or {}).items():
            at = table.column_names.index(name)
            values = [
                value(old_value) if callable(value) else value
                for old_value in table[name].to_pylist()
            ]
            table = table.set_column(at, table.field(at), pa.array(values, table.field(at).type))
        table = table.replace_schema_metadata({b"mclabel": json.dumps(recorded).encode()})
        path.write_bytes(encode_parquet_with_digest(table))


def hostile_runs(sound: Path, folder: Path, canary: Path, module: str) -> dict[str, Path]:
    """Make copies of a sound run, each malicious in one way and with valid digests."""
    folders: dict[str, Path] = {}

    def copy(name: str) -> Path:
        folders[name] = folder / f"run{len(folders)}"
        shutil.copytree(sound, folders[name])
        return folders[name]

    def recorded(name: str, **config: Any) -> None:
        sign_manifest(copy(name), lambda manifest: manifest["config"].update(config))

    runs = callables(canary, module)
    for name, content in runs.items():
        recorded(f"checker {name}", checker={**content, "version": "1"})
        recorded(f"estimator {name}", estimator=content)
    shell = runs["subprocess:getoutput"]
    for name, config in {
        "checker as a list": {"checker": {"kind": ["subprocess:getoutput"]}},
        "checker as a text": {"checker": "subprocess:getoutput"},
        "checker of other keys": {"checker": {"kind": "math", "run": "os:system"}},
        "estimator as a list": {"estimator": {"kind": ["subprocess:getoutput"]}},
        "estimator and a file": {"estimator": {"kind": "posterior", "priors": "|touch canary"}},
        "problems": {"problems": {**shell, "source": shell["arguments"]["cmd"]}},
        "policy": {"policy": {"engine": shell, "trust_remote_code": True, "model": str(folder)}},
        "formats": {"format": "subprocess:getoutput", "imported": {"format": "os:system"}},
        "training": dict.fromkeys(("target", "weights", "loss"), "os:system"),
    }.items():
        recorded(name, **config)
    run = copy("identity")
    sign_manifest(run, lambda manifest: manifest["identity"].update(checker=shell, estimator=shell))
    run = copy("a manifest in YAML")
    (run / "run.json").write_text(f"!!python/object/apply:os.system ['touch {canary}']")

    for name, metadata in {
        "configuration": {"config": {"checker": shell, "estimator": shell, "engine": shell}},
        "versions": {"versions": {"checker": "os:system", "mclabel": SCRIPT}},
        "kind": {"kind": "subprocess:getoutput"},
        "rollouts by an absolute path": {"rollouts": str(canary.parent / "elsewhere.parquet")},
        "rollouts above": {"rollouts": "../../elsewhere.parquet"},
        "rollouts by a URL": {"rollouts": f"file://{canary.parent}/elsewhere.parquet"},
        "rollouts by a pipe": {"rollouts": f"|touch {canary}"},
        "rollouts of no name": {"rollouts": "rollouts/\0\n.parquet"},
        "block above": {"block": "../../../elsewhere", "attempt": "../../elsewhere"},
        "set aside": {"set_aside": {f"../{SCRIPT}": {"reason": SCRIPT, "detail": SCRIPT}}},
        "dropped": {"dropped": {SCRIPT: {"num_sampled": 1, "num_right": 0}}},
    }.items():
        sign_shards(copy(f"metadata: {name}"), metadata=metadata)

    program = json.dumps({"text": f"__import__('os').system('touch {canary}')"})
    answer = f"__import__('os').system('touch {canary}')"
    for name, columns in {
        "priors above": {"priors": "../../elsewhere"},
        "priors by an absolute path": {"priors": str(canary)},
        "ids in HTML": {"problem_id": lambda identifier: f"{identifier}{SCRIPT}"},
        "ids above": {
            "problem_id": lambda identifier: f"../../{identifier}",
            "solution_id": "../../{}".format,
        },
        "texts in HTML": {"problem": SCRIPT, "answer": SCRIPT, "prediction": SCRIPT},
        "texts of templates": {"problem": "{{ ''.__class__.__mro__[1].__subclasses__() }}"},
        "answers of Python": {"answer": answer, "prediction": answer},
        "answers of LaTeX": {"answer": rf"\input{{|touch {canary}}}", "prediction": r"\write18{x}"},
        "answers of spreadsheets": {"answer": f"=cmd|' /C touch {canary}'!A0"},
    }.items():
        sign_shards(copy(f"rows: {name}"), columns=columns)
    sign_shards(
        copy("rows: meta of a program"),
        columns={
            "meta": lambda meta: json.dumps(
                {**json.loads(meta), "program": program, "family": SCRIPT}
            )
        },
    )
    run = copy("rows: rollouts of Python")
    sign_shards(run, kind="rollouts", columns={"text": f"So \\boxed{{{answer}}}."})
    sign_shards(run, metadata={"rollouts_digest": None})
    run = copy("rows: a pickled type")
    for path in (run / "labels").glob("*.parquet"):
        table = pq.read_table(path)
        bomb = {
            b"ARROW:extension:name": b"arrow.py_extension_type",
            b"ARROW:extension:metadata": pickle.dumps(Touches(canary)),
        }
        recorded_there = {b"mclabel": table.schema.metadata[b"mclabel"]}
        at = table.column_names.index("problem")
        table = table.set_column(at, table.field(at).with_metadata(bomb), table["problem"])
        path.write_bytes(encode_parquet_with_digest(table.replace_schema_metadata(recorded_there)))

    bomb = pickle.dumps(Touches(canary))
    for name, places in {
        "shards": ("labels/0.pkl", "labels/z.parquet", "rollouts/0.pkl"),
        "priors": ("priors/0123456789abcdef.json", "priors/0.pkl"),
        "plans and journals": ("plan.json", "plan/0.parquet", "journals/0/0.json.gz"),
        "summaries": ("progress.jsonl", "rejects.jsonl", "health.json"),
    }.items():
        run = copy(f"pickles: {name}")
        for place in places:
            (run / place).parent.mkdir(parents=True, exist_ok=True)
            (run / place).write_bytes(bomb)
    run = copy("start-up files")
    for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "evil.pth", "yaml.py"):
        (run / name).write_text(f"import os; os.system('touch {canary}')\n")
    run = copy("what a training leaves")
    _training(run, shell, bomb)
    return folders


def _training(run: Path, component: Mapping[str, Any], bomb: bytes) -> None:
    """Add the files of a trained PRM and of its evaluation."""
    config = {"target": "os:system", "loss": "os:system", "template": component, "base": SCRIPT}
    manifest = {"format": FORMAT, "id": "x", "identity": config, "config": config}
    (run / "train.json").write_text(json.dumps(add_digest(manifest)))
    (run / "model").mkdir()
    head = {"format": 1, "kind": "prm", "head": "os:system", "template": "{{ x }}"}
    (run / "model" / "prm.json").write_text(json.dumps(head))
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "head.pt"):
        (run / "model" / name).write_bytes(bomb)


def hostile_configurations(
    folder: Path, canary: Path, module: str, model: str
) -> dict[str, tuple[str, str]]:
    """Write malicious configuration files.

    Args:
        folder: folder for the files.
        canary: file that the code would create.
        module: module of a stranger, as in `callables`.
        model: folder of a model with code that would create the canary.

    Returns:
        The verb and the path of each file, by the name of the attack.
    """
    configurations: dict[str, tuple[str, str]] = {}

    def write(name: str, verb: str, text: str) -> None:
        path = folder / f"config{len(configurations)}.yaml"
        path.write_text(text)
        configurations[name] = verb, str(path)

    def add(name: str, verb: str, **content: Any) -> None:
        arith = {"problems": {"source": "arith", "limit": 1}}
        scripted = {**arith, "policy": {"engine": "scripted"}, "ray": {"address": "none"}}
        needed = {
            "label": scripted,
            "best-of-n": {**scripted, "samples": 1},
            "train": {"base": "arith:strong", "max_steps": 1},
        }
        write(name, verb, yaml.safe_dump(needed[verb] | content))

    command = f"touch {canary}"
    for name, content in callables(canary, module).items():
        for change_name, changes in {
            "checker": {"checker": content},
            "estimator": {"estimator": content},
            "engine": {"policy": {"engine": content}},
            "reader": {"problems": {"kind": name, "source": command}},
            "source": {"problems": {"source": name}},
        }.items():
            add(f"{change_name} {name}", "label", **changes)
        add(f"checker {name}, best of n", "best-of-n", checker=content)
        for key in ("target", "weights", "loss"):
            add(f"{key} {name}", "train", **{key: name})
    local = {"model": model, "engine": {"kind": "hf"}, "max_tokens": 4, "trust_remote_code": True}
    vllm = {"worker_cls": f"{module}.Component", "hf_overrides": {"auto_map": {}}}
    for name, changes in {
        "a model's code": {"policy": local},
        "vLLM's arguments": {"policy": {"engine": {"kind": "vllm", "engine_args": vllm}}},
        "a cluster": {"ray": {"address": "127.0.0.1:9"}},
        "examples": {"policy": {"engine": "scripted", "few_shot": f"|{command}"}},
        "a template": {"policy": {"engine": "scripted", "template": "{problem.__class__}"}},
        "a data set": {"problems": {"source": f"hf:{folder}"}},
        "pickles as a data set": {"problems": {"source": "hf:pandas"}},
    }.items():
        add(name, "label", **changes)
    add("a model's code, best of n", "best-of-n", policy=local)
    add("a likelihood's code", "best-of-n", likelihood={"x": model}, trust_remote_code=["x"])
    add("a base's code", "train", base=model, trust_remote_code=True)
    for name, tag in {
        "a call": f"!!python/object/apply:os.system ['{command}']",
        "an object": f"!!python/object/new:os.system ['{command}']",
        "a module": f"!!python/module:{module}",
        "a name": f"!!python/name:{module}.grade",
    }.items():
        for verb in ("label", "train", "best-of-n"):
            write(f"YAML, {name}, {verb}", verb, f"seed: {tag}\n")
    return configurations
