"""A training run from its configuration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.config import TrainConfig
from mclabel.data.leaks import leak_keys
from mclabel.data.outputs import TRAINING_FILES, TRAINING_FOLDERS, check_places, output_folder
from mclabel.data.shards.labels import committed_blocks, read_labels
from mclabel.data.shards.manifest import Semantic, check_claim, claim
from mclabel.data.shards.store import Store
from mclabel.engines.hub import model_source, resolve_model, weights_fingerprint
from mclabel.engines.pretrained import check_device, check_weights, load_model_config
from mclabel.engines.text import PolicyText
from mclabel.errors import ConfigError, DataError
from mclabel.pipelines.label import versions
from mclabel.pipelines.model_card import model_card
from mclabel.prm.examples.targets import OUTCOME_TARGETS
from mclabel.records import LabeledSolution
from mclabel.seeds import content_id

if TYPE_CHECKING:
    from mclabel.prm.examples.build import Examples, PackedExamples
    from mclabel.prm.model.network import StepModel
    from mclabel.prm.scoring.score import PrmManifest
    from mclabel.prm.training.preflight import Preflight

CLAIM = "train.json"

OnProgress = Callable[[int, int, str], None]
OnPreflight = Callable[["Preflight"], None]


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """What a training run did."""

    model: str
    """Folder of the finished PRM."""
    num_solutions: int
    """Trained on."""
    num_validation: int
    num_unlabeled: int
    num_leaked: int
    """Solutions left out because their problems are in an evaluation set."""
    num_too_long: int
    num_cut: int
    num_refused: int
    first_refused: str | None
    validation: dict[str, float | None]
    """Figures at the end."""


def train(
    config: TrainConfig,
    on_progress: OnProgress,
    on_preflight: OnPreflight = lambda found: None,
) -> TrainReport:
    """Train a PRM or an ORM. Run again, it resumes; when it has ended, it does nothing.

    Labelling may still be under way: a run is trained on what was committed when it began.

    Args:
        config: what to train.
        on_progress: called with optimizer steps done and in all, and the loss.
        on_preflight: called with what the data is, before training begins.
    """
    out = Path(config.out)
    check_places(config.out, folders=TRAINING_FOLDERS, files=TRAINING_FILES)
    if not out.is_dir():
        output_folder(config.out, "out=", make=False)
    semantic, blocks = _semantic(config)
    if out.is_dir():
        check_claim(Store(config.out), CLAIM, Semantic.of(semantic))
    if (report := _finished(out)) is not None:
        return report
    data = _prepare(config, blocks)
    found = _preflight(config, data)
    on_preflight(found)
    found.check_differ()
    claim(
        Store(config.out, create=True),
        CLAIM,
        Semantic.of(semantic),
        {"versions": versions(), "blocks": blocks},
    )
    if config.workers == 1:
        _run(config, data, on_progress)
    else:
        from mclabel.prm.training.distributed import run_workers

        run_workers(
            _work,
            config.model_dump(),
            blocks,
            address=config.ray.address,
            num_workers=config.workers,
            num_cpus=1.0 if config.ray.num_cpus is None else config.ray.num_cpus,
            num_gpus=config.ray.num_gpus or float(config.device != "cpu"),
            storage=out / "ray",
        )
    report = _finished(out)
    assert report is not None
    return report


def preflight(config: TrainConfig) -> Preflight:
    """Look at the data of a training run; nothing is written."""
    _, blocks = _semantic(config)
    return _preflight(config, _prepare(config, blocks))


@dataclass(frozen=True, kw_only=True)
class _Data:
    base: str
    text: PolicyText
    manifest: PrmManifest
    step_id: int | None
    examples: Examples


def _prepare(config: TrainConfig, blocks: list[list[str]]) -> _Data:
    """Read, encode and split the labels."""
    from mclabel.prm.examples.build import make_examples
    from mclabel.prm.scoring.score import PrmManifest, step_encoder
    from mclabel.prm.training.teacher import check_teacher

    _check(config)
    check_device(config.device)
    base = _base(config)
    of: dict[str, Any] = {
        "revision": config.revision,
        "trust_remote_code": config.trust_remote_code,
        "key": "base",
    }
    text = PolicyText.load(base, template=config.template, system=config.system, **of)
    if Path(base).is_dir():
        check_weights(base, key="base")
    limit = load_model_config(base, **of).get_text_config()
    manifest = PrmManifest(
        kind="orm" if config.target in OUTCOME_TARGETS else "prm",
        head=config.head,
        step_token=_step_token(config, text),
        template=config.template,
        system=config.system,
        max_tokens=min(config.max_tokens or 10**9, limit.max_position_embeddings),
    )
    if config.teacher is not None:
        check_teacher(config.teacher, text, manifest)
    examples = make_examples(
        _rows(config, blocks),
        step_encoder(text, manifest),
        target=config.target,
        validation=config.validation,
        weights=config.weights,
        to_first_error=config.to_first_error,
        too_long=config.too_long,
        leaks=leak_keys(config.evaluation),
        limit=config.limit,
        keep_unlabeled=config.teacher is not None,
    )
    step_id = None if manifest.step_token is None else text.token_id(manifest.step_token)
    return _Data(base=base, text=text, manifest=manifest, step_id=step_id, examples=examples)


def _check(config: TrainConfig) -> None:
    """Refuse settings that contradict one another."""
    if config.shard and (config.workers == 1 or config.backbone_lr == 0):
        raise ConfigError(
            f"shard=true: splits the training of a body over workers, but workers={config.workers} "
            f"and backbone_lr={config.backbone_lr}. Ask for more workers and a rate, or leave it "
            "out"
        )
    if config.target == "neutral" and config.head != "token":
        raise ConfigError(f"head={config.head}: target=neutral has three classes: use head=token")
    if config.head != "token" and (config.extra_layers or config.teacher):
        raise ConfigError(
            f"head={config.head}: extra_layers and teacher are for head=token. Leave them out"
        )
    if config.extra_layers and (config.backbone_lr or config.lora_rank or config.step_token):
        raise ConfigError(
            f"extra_layers={config.extra_layers}: the body below must be fixed, and steps are "
            f"scored at their own last tokens, but backbone_lr={config.backbone_lr}, "
            f"lora_rank={config.lora_rank}, step_token={config.step_token}. Set backbone_lr=0, and "
            "leave out the other two"
        )
    if config.teacher and (config.target == "neutral" or config.to_first_error):
        raise ConfigError(
            f"target={config.target}, to_first_error={str(config.to_first_error).lower()}: a "
            "teacher tells sound steps from wrong ones, and does so at every step. Choose another "
            "target, and leave to_first_error out"
        )


def _rows(config: TrainConfig, blocks: list[list[str]]) -> Iterator[LabeledSolution]:
    for run, names in zip(config.labels, blocks, strict=True):
        yield from read_labels(Store(run), set(names))


def _preflight(config: TrainConfig, data: _Data) -> Preflight:
    from mclabel.prm.training.preflight import preflight as look

    return look(
        data.examples,
        target=config.target,
        step_id=data.step_id,
        decode=data.text.decode,
        is_taught=config.teacher is not None,
    )


def _work(content: dict[str, Any], blocks: list[list[str]]) -> None:
    """What each of several workers does."""
    config = TrainConfig.model_validate(content)
    _run(config, _prepare(config, blocks), lambda step, total, detail: None)


def _run(config: TrainConfig, data: _Data, on_progress: OnProgress) -> None:
    """Train, and put the model where it belongs; of several workers, the first does."""
    import torch
    import transformers

    from mclabel.prm.training.distributed import is_first
    from mclabel.prm.training.sharding import shard, whole_state
    from mclabel.prm.training.trainer import TrainSettings, train_step_model

    out = Path(config.out)
    torch.set_num_threads(config.threads)
    transformers.set_seed(config.seed)
    model = _model(config, data)
    if config.shard:
        shard(model, torch.device(config.device).type, bf16=config.bf16)
    else:
        model.to(config.device)
    validation = train_step_model(
        model,
        _taught(config, data, on_progress),
        data.examples.validation,
        out,
        settings=TrainSettings(
            **{name: getattr(config, name) for name in TrainSettings.__dataclass_fields__}
        ),
        on_progress=on_progress,
    )
    weights = whole_state(model) if config.shard else None
    if not is_first():
        return
    if weights is not None:
        model = _model(config, data)
        model.load_state_dict(weights)
    found = data.examples
    report = TrainReport(
        model=str(out / "model"),
        num_solutions=len(found.train),
        num_validation=len(found.validation),
        num_unlabeled=found.num_unlabeled,
        num_leaked=found.num_leaked,
        num_too_long=found.num_too_long,
        num_cut=found.num_cut,
        num_refused=found.num_refused,
        first_refused=found.first_refused,
        validation=asdict(validation),
    )
    from mclabel.prm.model.lora import merge_adapters

    merge_adapters(model.network)
    partial = out / "model.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    model.save(partial)
    data.text.save(partial)
    data.manifest.save(partial)
    (partial / "README.md").write_text(model_card(config, report))
    (partial / "report.json").write_text(json.dumps(asdict(report), indent=1) + "\n")
    partial.rename(out / "model")


def _taught(config: TrainConfig, data: _Data, on_progress: OnProgress) -> PackedExamples:
    """What is trained on: the labels, or what a teacher says in their place."""
    from mclabel.prm.training.teacher import load_teacher, teach

    if config.teacher is None:
        return data.examples.train
    teacher = load_teacher(config.teacher, dtype=config.dtype)
    return teach(
        teacher.to(config.device),
        data.examples.train,
        data.step_id,
        threads=config.threads,
        on_progress=lambda done, total: on_progress(0, 0, f"teacher: {done} of {total} solutions"),
    )


def _model(config: TrainConfig, data: _Data) -> StepModel:
    from mclabel.prm.model.lora import add_adapters
    from mclabel.prm.model.network import prepare_step_token, start_step_model

    model = start_step_model(
        data.base,
        config.head,
        revision=config.revision,
        dtype=config.dtype,
        three_classes=config.target == "neutral",
        sees_states=config.backbone_lr > 0 if config.states is None else config.states,
        extra_layers=config.extra_layers,
        is_taught=config.teacher is not None,
        trust_remote_code=config.trust_remote_code,
    )
    if data.step_id is not None:
        prepare_step_token(model.network, data.step_id, data.text.num_tokens)
    if config.lora_rank is not None:
        add_adapters(model.network, rank=config.lora_rank, alpha=config.lora_alpha)
    if config.gradient_checkpointing:
        model.network.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def _finished(out: Path) -> TrainReport | None:
    path = out / "model" / "report.json"
    if not path.is_file():
        return None
    try:
        return TrainReport(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path}: damaged ({error}). Delete {path.parent} and run the same command again: the "
            "last checkpoint is trained on"
        ) from error


def _semantic(config: TrainConfig) -> tuple[dict[str, Any], list[list[str]]]:
    """What the weights depend on: semantic fields, the base's weights, the labels' content.

    Also the ids of the blocks that are trained on, one list a run: those of the run's claim as
    long as they are all there, else what is committed now.
    """
    base = _base(config)
    semantic = config.semantic()
    if not config.trust_remote_code:  # as in the manifests of before there was the setting
        del semantic["trust_remote_code"]
    if Path(base).is_dir():
        semantic["base"] = f"weights:{weights_fingerprint(Path(base))}"
    if config.teacher:
        from mclabel.prm.scoring.score import scorer_fingerprint

        semantic["teacher"] = f"weights:{scorer_fingerprint(config.teacher)}"
    now = [sorted(committed_blocks(Store(run))) for run in config.labels]
    then = _claimed_blocks(Path(config.out) / CLAIM)
    if len(then) == len(now) and all(set(a) <= set(b) for a, b in zip(then, now, strict=True)):
        now = then
    semantic["labels"] = content_id(now)
    if config.evaluation:
        semantic["evaluation"] = content_id(sorted(leak_keys(config.evaluation)))
    return semantic, now


def _base(config: TrainConfig) -> str:
    return model_source(resolve_model(config.base, key="base"), key="base")


def _claimed_blocks(path: Path) -> list[list[str]]:
    try:
        return [list(names) for names in json.loads(path.read_text()).get("blocks", [])]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return []  # what is wrong with a manifest, `check_claim` says


def _step_token(config: TrainConfig, text: PolicyText) -> str | None:
    if config.head == "likelihood":
        if config.step_token is not None:
            raise ConfigError(
                f"step_token={config.step_token!r}: head=likelihood scores at each step's last "
                "token and takes none. Leave it out"
            )
        return None
    if config.extra_layers:
        return None
    token = config.step_token or text.step_token
    if token is None:
        raise ConfigError(
            f"base={config.base!r}: its tokenizer reserves no step token. Name one of its unused "
            "special tokens with step_token=…, add one with add_step_token=true, or use "
            "head=likelihood, which needs none"
        )
    if config.add_step_token:
        text.add_token(token)
    return token
