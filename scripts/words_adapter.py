"""Train the LoRA adapter of `smollm2:words`, with which SmolLM2-135M solves word problems.

The adapter is trained on worked solutions of the templates `TRAINED`, never on those of `HELD_OUT`.
The adapter in the package was trained for about 420 steps, on about half a million tokens. The
first hundred steps used eight templates.

Usage: python scripts/words_adapter.py OUT.safetensors [--minutes 40] [--seed 1] [--start ADAPTER]
"""

from __future__ import annotations

import argparse
import math
import time
from random import Random
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from mclabel.domains.words import ALPHA, RANK, TRAINED, WorkedProblem, events
from mclabel.domains.words.smollm2 import prepare_smollm2_folder

RATE, BATCH = 2e-3, 8


def encode_chat(tokenizer: Any, item: WorkedProblem) -> tuple[list[int], int]:
    """Return the token ids of the chat, and the 0-based position at which the solution begins."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": item.problem}], add_generation_prompt=True
    )["input_ids"]
    solution = tokenizer.encode(item.solution, add_special_tokens=False)
    return [*prompt, *solution, tokenizer.eos_token_id], len(prompt)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", help="adapter file from which training continues")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = Random(args.seed)
    folder = prepare_smollm2_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(base, lora)
    if args.start:
        set_peft_model_state_dict(model, load_file(args.start))
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0)
    began, step, tokens = time.monotonic(), 0, 0
    while (done := (time.monotonic() - began) / (args.minutes * 60)) < 1:
        rate = RATE * min(1, (step + 1) / 10) * (0.5 + 0.5 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        items = [rng.choice([*TRAINED.values(), events])(rng) for _ in range(BATCH)]
        rows = [encode_chat(tokenizer, item) for item in items]
        width = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([r + [2] * (width - len(r)) for r, _ in rows])
        labels = torch.full_like(ids, -100)
        for row, (own, start) in enumerate(rows):
            labels[row, start : len(own)] = ids[row, start : len(own)]
        with torch.autocast("cpu", torch.bfloat16):
            # Logits are computed only for solutions, because those over a vocabulary of 49 thousand
            # tokens cost a third of a pass.
            hidden = model.base_model.model.model(input_ids=ids).last_hidden_state[:, :-1]
            kept = labels[:, 1:] != -100
            logits = model.base_model.model.lm_head(hidden[kept])
            loss = torch.nn.functional.cross_entropy(logits.float(), labels[:, 1:][kept])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step, tokens = step + 1, tokens + sum(len(r) for r, _ in rows)
        if step % 10 == 0:
            speed = tokens / (time.monotonic() - began)
            print(f"{step} steps, {tokens} tokens, {speed:.0f}/s, loss {loss:.3f}", flush=True)
        if step % 50 == 0:
            save_adapter(model, args.out)
    save_adapter(model, args.out)


def save_adapter(model: Any, out: str) -> None:
    state = get_peft_model_state_dict(model)
    save_file({name: w.to(torch.bfloat16).contiguous() for name, w in state.items()}, out)


if __name__ == "__main__":
    main()
