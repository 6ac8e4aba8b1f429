from __future__ import annotations

import re
from pathlib import Path

import pytest

from mclabel.core.config.document import parse_document
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.settings import Settings
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.judge.job import JudgeConfig
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.policy import read_few_shot_examples
from mclabel.prm.config import TrainConfig
from mclabel.rl.config import ServeRewardsConfig
from mclabel.search.config import SearchConfig

CONFIGS = sorted((Path(__file__).parents[1] / "configs").rglob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_config_loads_and_opens_with_its_command(path: Path) -> None:
    kinds = {
        "label": LabelConfig,
        "train": TrainConfig,
        "eval": BestOfNConfig,
        "judge": JudgeConfig,
        "search": SearchConfig,
    }
    overrides = {
        "train": ["labels=[runs/labels]"],
        "judge": ["solutions=runs/labels"],
        "search": ["scorer.prm=runs/prm"],
    }
    folder, text = path.parent.name, path.read_text()
    assert text.startswith("# mclabel ")
    if text.startswith("# mclabel serve-rewards "):
        load_config(ServeRewardsConfig, path, [])
    else:
        load_config(kinds[folder], path, ["out=somewhere", *overrides.get(folder, [])])


def test_unknown_keys_name_the_nearest_one_and_all_faults_come_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            LabelConfig, None, ["estimator.rolouts=3", "policy.max_token=1", "estimator.batch=0"]
        )
    for fault in (
        "estimator.rolouts: not a setting of kind=posterior; did you mean estimator.rollouts?",
        "policy.max_token: unknown key; did you mean policy.max_tokens?",
        "estimator.batch=0: must be at least 1",
        "out: required",
    ):
        assert fault in str(caught.value)
    with pytest.raises(ConfigError, match=r"rollouts: .* did you mean estimator\.rollouts\?"):
        load_config(LabelConfig, None, ["out=x", "rollouts=8"])


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (
            ["solutions.balance=2", "solutions.path=x.jsonl"],
            "solutions: balance applies to sampled",
        ),
        (["solutions.max_samples=9"], "solutions: max_samples limits the sampling for balance"),
        (["solutions.balance=2", "solutions.max_samples=3"], "must be at least per_problem"),
        (["split.by=pattern"], "split: pattern and by=pattern must be set together"),
        (["split.pattern=x"], "split: pattern and by=pattern must be set together"),
        (["split.by=pattern", "split.pattern=("], "not a valid regular expression"),
        (["split.by=pattern", "split.pattern=(?<=;) ?"], "write ';( ?)' instead of '(?<=;) ?'"),
        (["policy.engine=openai"], "policy.engine.endpoints: required"),
        (["policy.template=Solve"], "template must contain {problem}"),
        (
            ["policy.template='{problem}'", "policy.system=x"],
            "system and few_shot apply only to the",
        ),
        (
            ["policy.engine=vllm", "policy.engine.engine_args={seed: 3}"],
            "policy.engine: engine_args must not contain seed (set seed)",
        ),
        (
            ["policy.engine=vllm", "policy.engine.engine_args={hf_token: x}"],
            "hf_token (set the environment variable HF_TOKEN)",
        ),
        (
            ["policy.engine=openai", "policy.engine.endpoints=[localhost:8000]"],
            "policy.engine: endpoints must be URLs such as",
        ),
    ],
)
def test_keys_that_do_not_go_together(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        load_config(LabelConfig, None, ["out=x", *overrides])


@pytest.mark.parametrize(
    "override",
    [
        "policy.engine.api_key_env=sk-SECRET123",
        "policy.engine.api_key_env=[sk-SECRET123]",
        "policy.engine.api_key=sk-SECRET123",
        "policy.engine.endpoints=[http://me:sk-SECRET123@host/v1]",
        "policy.engine.endpoints=[http://host/v1?key=sk-SECRET123]",
        "policy.engine.endpoints=http://me:sk-SECRET123@host/v1",
        "policy.engine.endpoints=[[sk-SECRET123]]",
        "policy.openai={api_key_env: sk-SECRET123}",
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_repeated(override: str) -> None:
    for engine in ("openai", "hf"):
        with pytest.raises(ConfigError) as caught:
            load_config(LabelConfig, None, ["out=x", f"policy.engine={engine}", override])
        assert "SECRET" not in str(caught.value)
        assert "policy.engine" in str(caught.value)


def test_examples_are_read_from_a_file_and_known_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "shots.jsonl").write_text('{"problem": "1+1?", "solution": "2"}')
    read = load_config(LabelConfig, None, ["out=x", f"policy.few_shot={tmp_path}/shots.jsonl"])
    assert (
        read_few_shot_examples(read.policy)
        == (
            load_config(
                LabelConfig, None, ["out=x", "policy.few_shot=[{problem: '1+1?', solution: '2'}]"]
            )
        ).policy
    )
    (tmp_path / "shots.jsonl").write_text('{"problem": "1+1?"}')
    with pytest.raises(DataError, match=r"line 1: an example of policy\.few_shot needs"):
        read_few_shot_examples(read.policy)


def test_broken_files(tmp_path: Path) -> None:
    for text, fault in (("a: [1", "not a valid YAML file"), ("- 1", "must hold keys and values")):
        assert fault in config_fault(tmp_path / "broken.yaml", text)


def config_fault(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(LabelConfig, path)
    return str(caught.value)


def test_equal_keys_are_refused_with_both_lines(tmp_path: Path) -> None:
    message = config_fault(
        tmp_path / "x.yaml", "out: a\npolicy:\n  top_k: 1\n  top_p: 0.5\n  top_k: 2\n"
    )
    assert "line 5, column 3: the key 'top_k' is repeated; it is first set in line 3" in message
    with pytest.raises(ConfigError, match="the key 'top_k' is repeated"):
        load_config(LabelConfig, None, ["out=x", "policy={top_k: 1, top_k: 2}"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, text) for text in ("1:30:00", "1_000", "0b11", "yes", "no", "on", "off", "y")),
        *((text, text) for text in ("2024-01-01", "=", "127.0.0.1", "tRUE")),
        *(("017", 17), ("0o17", 15), ("0x1F", 31), ("-5", -5), ("+1", 1)),
        *(("1e-5", 1e-5), ("1E3", 1000.0), ("1.", 1.0), (".5", 0.5), ("-.inf", float("-inf"))),
        *(("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None)),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    parsed = parse_document(text)
    assert parsed == value and type(parsed) is type(value)


def test_yaml_that_is_too_deep_or_grows_is_refused(tmp_path: Path) -> None:
    aliases = "a0: &a0 [x, x]\n"
    aliases += "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 25))
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 50))
    for name, text, message in [
        ("deep", "a: " + "[" * 100_000, "nested deeper than 32"),
        ("keys", "".join(" " * i + "a:\n" for i in range(200)), "nested deeper than 32"),
        ("chain", chain, "nested deeper than 32"),
        ("aliases", aliases, "more than 100,000 values"),
        ("cycle", "a: &a [*a]\n", "an alias that contains itself"),
        ("long", "# " + "x" * 2**20, "larger than 1,048,576 bytes"),
        ("date", "a: !!timestamp 2001-99-99\n", "month must be in 1..12"),
        ("object", "a: !!python/object/apply:os.system [id]\n", "could not determine a constr"),
    ]:
        assert message in config_fault(tmp_path / f"{name}.yaml", text), name
    with pytest.raises(ConfigError, match="nested deeper than 32"):
        load_config(LabelConfig, None, ["out=x", "a." * 5_000 + "b=1"])


FILES = {
    "estimator": "estimator: {kind: fixed, rollouts: 8, truncated: wrong}\n",
    "default": "estimator: {rollouts: 8, batch: 2}\n",
    "engine": "policy: {engine: {kind: vllm, tensor_parallel: 2, max_live: 5}}\n",
    "reader": "problems: {source: arith, families: [shop], limit: 3}\n",
}


@pytest.mark.parametrize(
    ("file", "override", "path", "kept", "dropped"),
    [
        ("estimator", "estimator.kind=outcome", "estimator", {"truncated": "wrong"}, "rollouts"),
        ("default", "estimator.kind=outcome", "estimator", {"kind": "outcome"}, "rollouts batch"),
        (
            "estimator",
            "estimator.kind=bisect",
            "estimator",
            {"kind": "bisect", "rollouts": 8, "truncated": "wrong"},
            "",
        ),
        (
            "engine",
            "policy.engine.kind=hf",
            "policy.engine",
            {"kind": "hf", "max_live": 5},
            "tensor_parallel",
        ),
        (
            "reader",
            "problems.source=rows.jsonl",
            "problems",
            {"source": "rows.jsonl", "limit": 3},
            "families",
        ),
    ],
)
def test_keys_of_a_component_that_an_override_replaces_are_left_out_with_a_word(
    file: str,
    override: str,
    path: str,
    kept: dict[str, object],
    dropped: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "x.yaml"
    place.write_text(f"out: x\n{FILES[file]}")
    settings: object = load_config(LabelConfig, place, [override])
    for part in path.split("."):
        settings = getattr(settings, part)
    assert {key: getattr(settings, key) for key in kept} == kept
    printed = capsys.readouterr().err
    assert printed.count("\n") == bool(dropped)
    for key in dropped.split():
        assert f"{path}.{key}" in printed and not hasattr(settings, key)
    if dropped:
        assert f"of {place} " in printed and "takes the place of kind=" in printed


def test_of_a_bundled_file_nobody_is_told_what_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load_config(LabelConfig, "configs/label/own-data.yaml", ["out=x", "estimator.kind=outcome"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "overrides", "fault"),
    [
        (
            "estimator: {kind: fixed, rollouts: 8}",
            ["estimator.kind=outcome", "estimator.rollouts=8"],
            "estimator.rollouts: not a setting of kind=outcome",
        ),
        (
            "estimator: {kind: fixed, rolouts: 8}",
            ["estimator.kind=outcome"],
            "estimator.rolouts: not a setting of kind=outcome",
        ),
        (
            "estimator: {kind: outcome, rollouts: 8}",
            ["seed=1"],
            "estimator.rollouts: not a setting of kind=outcome",
        ),
        (
            "estimator: {kind: fixed, rollouts: 8}",
            ["estimator={kind: outcome, rollouts: 8}"],
            "estimator.rollouts: not a setting of kind=outcome",
        ),
        (
            "estimator: {kind: fixed, rollouts: 8}",
            ["estimator.kind=outcom"],
            "estimator: outcom: is not among the estimators. did you mean outcome?",
        ),
    ],
)
def test_keys_that_no_override_has_made_wrong_are_faults(
    text: str,
    overrides: list[str],
    fault: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "x.yaml").write_text(f"out: x\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(fault)):
        load_config(LabelConfig, tmp_path / "x.yaml", overrides)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("kind", "path", "overrides", "message"),
    [
        (
            LabelConfig,
            "configs/label/quikstart.yaml",
            [],
            r"^configs/label/quikstart\.yaml: no such configuration file.*"
            r"did you mean configs/label/quickstart\.yaml\?",
        ),
        (
            LabelConfig,
            "problems.limit=3",
            [],
            "first argument is the configuration, and KEY=VALUE",
        ),
        (
            BestOfNConfig,
            None,
            ["out=x", "scorers={prm:runs/prm}"],
            "Write a space after the colon: scorers='{prm: runs/prm}'",
        ),
    ],
)
def test_a_missing_configuration_is_named_as_it_was_given(
    kind: type[Settings], path: str | None, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        load_config(kind, path, overrides)


def test_a_component_cannot_be_null() -> None:
    with pytest.raises(
        ConfigError, match="problems: must be a name, or keys with values that include kind"
    ):
        load_config(LabelConfig, None, ["out=x", "problems=null"])
