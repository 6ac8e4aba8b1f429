"""The scorer that a training run trains: its tokenizer, its untrained network, and its files."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mclabel.core.errors import ConfigError
from mclabel.core.extras import advise_installation, is_installed
from mclabel.core.settings import MAX_TOKENS
from mclabel.engines.chat import PromptParts
from mclabel.engines.devices import resolve_device
from mclabel.engines.hub import check_model_source, resolve_model
from mclabel.engines.pretrained import check_weights, load_model_config
from mclabel.engines.text import PolicyText
from mclabel.prm.config import TrainConfig
from mclabel.prm.examples.encode import StepEncoder
from mclabel.prm.examples.targets import find_target
from mclabel.prm.model.settings import HEADS
from mclabel.prm.scoring.manifest import PrmManifest, make_step_encoder
from mclabel.run.trainings import mark_training_finished

if TYPE_CHECKING:
    from mclabel.prm.model.network import StepModel


@dataclass(frozen=True, kw_only=True)
class NewScorer:
    """A scorer that is to be trained, before its network is loaded."""

    config: TrainConfig
    """Configuration of the training run. A device `auto` is already resolved."""
    base: str
    """Folder or Hugging Face name of the base model."""
    text: PolicyText
    """Tokenizer and prompt template of the base model."""
    manifest: PrmManifest
    """Manifest that is saved beside the trained weights."""
    encoder: StepEncoder
    """Encoder of the training solutions."""
    step_id: int | None
    """Id of the step token; None if steps are scored at their own last tokens."""

    @classmethod
    def prepare(cls, config: TrainConfig) -> NewScorer:
        """Load the base's tokenizer, and choose the step token and the encoding of solutions.

        Raises:
            EngineError: the base model cannot be found or downloaded, or its files are damaged.
            ConfigError: the base's tokenizer has no step token, or peft is not installed.
        """
        if config.lora_rank is not None and not is_installed("peft"):
            raise ConfigError(f"lora_rank={config.lora_rank}: {advise_installation('peft')}")
        config = config.model_copy(update={"device": resolve_device(config.device)})
        base = resolve_base_model(config)
        text = PolicyText.load(
            base,
            PromptParts(template=config.template, system=config.system),
            revision=config.revision,
            trust_remote_code=config.trust_remote_code,
            setting_key="base",
        )
        if Path(base).is_dir():
            check_weights(base, setting_key="base")
        own = load_model_config(
            base,
            revision=config.revision,
            trust_remote_code=config.trust_remote_code,
            setting_key="base",
        ).get_text_config()
        ends = text.end_ids(own.bos_token_id, own.eos_token_id, own.pad_token_id)
        manifest = PrmManifest(
            kind="orm" if find_target(config.target).is_outcome else "prm",
            head=config.head,
            step_token=_choose_step_token(config, text, ends),
            template=config.template,
            system=config.system,
            max_tokens=min(config.max_tokens or MAX_TOKENS, own.max_position_embeddings),
        )
        return cls(
            config=config,
            base=base,
            text=text,
            manifest=manifest,
            encoder=make_step_encoder(text, manifest, end_token_ids=ends),
            step_id=None if manifest.step_token is None else text.token_id(manifest.step_token),
        )

    def build_model(self) -> StepModel:
        """Load the base's network, with a new head, the step token's embedding and the adapters."""
        from mclabel.prm.model.heads import prepare_step_token
        from mclabel.prm.model.network import add_adapters, start_step_model

        config = self.config
        model = start_step_model(
            config.model_copy(update={"base": self.base}),
            has_neutral=find_target(config.target).has_neutral,
            trains_body=config.backbone_lr != 0,
            device=config.device,
        )
        if self.step_id is not None:
            prepare_step_token(model.network, self.step_id, self.text.num_tokens)
        if config.lora_rank is not None:
            add_adapters(model.network, rank=config.lora_rank, alpha=config.lora_alpha)
        if config.gradient_checkpointing:
            model.network.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    def save(self, model: StepModel, folder: Path, *, extra_files: dict[str, str]) -> None:
        """Write a trained PRM to a folder atomically.

        Args:
            model: trained model, from `build_model`. Its adapters are merged by this call.
            folder: folder to create; it must not exist.
            extra_files: contents of further files in the folder, by file name.
        """
        from mclabel.prm.model.network import merge_adapters
        from mclabel.prm.training.checkpoint import explain_write_errors

        merge_adapters(model.network)
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        with explain_write_errors(partial):
            partial.mkdir()
            model.save(partial)
            self.text.save(partial)
            self.manifest.save(partial)
            for name, content in extra_files.items():
                (partial / name).write_text(content)
            mark_training_finished(folder.parent, partial)
            partial.rename(folder)


def resolve_base_model(config: TrainConfig) -> str:
    """Return the folder or Hugging Face name of the base model.

    Raises:
        ConfigError: `config.base` has the form of a bundled model, but no such model exists.
        EngineError: `config.base` is a folder without a model.
    """
    return check_model_source(resolve_model(config.base, setting_key="base"), setting_key="base")


def _choose_step_token(
    config: TrainConfig, text: PolicyText, reserved_ids: Collection[int]
) -> str | None:
    if not HEADS[config.head].is_token_classifier:
        return None
    token = config.step_token or text.step_token
    if token is None:
        unused = ", ".join(text.list_unused_tokens(reserved_ids)[:8])
        remedy = f"Set step_token to an unused special token ({unused}), or add"
        raise ConfigError(
            f"base={config.base!r}: its tokenizer reserves no step token. "
            f"{remedy if unused else 'Add'} one with step_token=… add_step_token=true, or use "
            "head=likelihood, which needs no step token"
        )
    if config.add_step_token:
        text.add_token(token)
    return token
