"""Train a verifier with TRL, on chains that `mclabel export --to verifier-chains` has written.

    python examples/train_verifier.py CHAINS MODEL OUT [KEY=VALUE ...]

CHAINS is the exported folder. MODEL is the folder or the Hugging Face name of a chat model. Each
KEY=VALUE is an argument of TRL's SFTConfig in JSON, such as num_train_epochs=3 or use_cpu=true. A
model of a billion parameters or more is trained with LoRA, and OUT gets the merged model. The
script needs trl and peft.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

LARGE = 1_000_000_000
"""Number of model parameters from which LoRA is used."""


def tokenized(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    """Return the token ids of prompt and chain, and a mask with 1 for the tokens that have a loss.

    The loss is only on the chain. TRL would accept the rows without this step, but would render the
    chain with the chat template. Templates of reasoning models, such as DeepSeek-R1, drop all text
    before `</think>`.
    """
    asked = str(
        tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    )
    chain = with_thought(asked, row["completion"][0]["content"]) + tokenizer.eos_token
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (asked, chain)]
    return {
        "input_ids": ids[0] + ids[1],
        "completion_mask": [0] * len(ids[0]) + [1] * len(ids[1]),
    }


def with_thought(asked: str, chain: str) -> str:
    """Return the chain so that prompt and chain together have exactly one `<think>`."""
    opens_prompt = asked.rstrip().endswith("<think>")
    opens_chain = chain.lstrip().startswith("<think>")
    if opens_prompt and opens_chain:
        return chain.lstrip().removeprefix("<think>").lstrip("\n")
    if "</think>" in chain and not (opens_prompt or opens_chain):
        return f"<think>\n{chain}"
    return chain


def train(chains: str, model_name: str, out: str, **settings: Any) -> SFTTrainer:
    """Train a verifier, and save it as a folder that any engine can load."""
    tokenizer = AutoTokenizer.from_pretrained(model_name)
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = AutoModelForCausalLM.from_pretrained(model_name, dtype=dtype)
    is_large = model.num_parameters() >= LARGE
    rows: Dataset = load_dataset("json", data_files=f"{chains}/data.jsonl", split="train")
    rows = rows.map(tokenized, fn_kwargs={"tokenizer": tokenizer}, remove_columns=rows.column_names)
    defaults: dict[str, Any] = {
        "output_dir": f"{out}/checkpoints",
        "completion_only_loss": True,
        "max_length": None,  # TRL's default of 1,024 tokens would truncate chains
        "num_train_epochs": 3,
        "learning_rate": 1e-4 if is_large else 2e-5,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 16,
        "gradient_checkpointing": is_large,
        "report_to": "none",
        "save_strategy": "epoch",
    }
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**{**defaults, **settings}),
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=32, target_modules="all-linear") if is_large else None,
    )
    trainer.train()
    trained: Any = trainer.model
    if is_large:
        trained = trained.merge_and_unload()
    trained.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return trainer


if __name__ == "__main__":
    chains, model_name, out, *pairs = sys.argv[1:]
    settings = {key: json.loads(value) for key, value in (pair.split("=") for pair in pairs)}
    trainer = train(chains, model_name, out, **settings)
    print(f"loss {trainer.state.log_history[-1]['train_loss']:.3f}; the verifier is in {out}")
