"""Two processes train together: groups that are split between them reach the server complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

from tests.support.reward_server import RewardServer

ROOT = Path(__file__).parents[3]
TRAINING = """
import os
import sys
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig
from mclabel.domains.arith import bundled_model
from mclabel.rl.adapters.trl import ServerCredit, StepGRPOTrainer

url, out = sys.argv[1:]
folder = str(bundled_model("policy"))
tokenizer = AutoTokenizer.from_pretrained(folder)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
credit = ServerCredit(url, tokenizer)

class Watching(StepGRPOTrainer):
    def _compute_loss(self, model, inputs):
        kept = inputs["completion_mask"].bool()
        for ids, mask, tokens in zip(inputs["completion_ids"], kept, inputs["advantages"]):
            text = tokenizer.decode(ids[mask], skip_special_tokens=True)
            lines = len(text.splitlines())
            found = sorted(set(tokens[mask].tolist()))
            expected = [(k + 1) / lines for k in range(lines)]
            torch.testing.assert_close(found, expected)
            with open(f"{out}/checked{self.accelerator.process_index}", "a") as file:
                file.write("x")
        return super()._compute_loss(model, inputs)

args = GRPOConfig(
    output_dir=out, per_device_train_batch_size=4, num_generations=8, max_steps=1, bf16=False,
    max_completion_length=120, report_to=[], use_cpu=True, save_strategy="no",
)
trainer = Watching(
    model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), args=args,
    reward_funcs=credit.process_reward, step_credit=credit, processing_class=tokenizer,
    train_dataset=Dataset.from_list([{"prompt": "What is 2 + 3?\\n", "answer": "5"}] * 4),
)
trainer.train()
trainer.accelerator.end_training()
# A thread of torch's that asks for Python's lock while Python ends aborts the process: nothing of
# that is left to chance.
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def run_training(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "training.py"
    script.write_text(TRAINING)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            str(script),
            url,
            str(folder),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_groups_are_whole(tmp_path: Path) -> None:
    with RewardServer() as server:
        done = run_training(server.url, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [len(items) for items in server.asked] == [8], "one request, of the first process"
    assert [(tmp_path / f"checked{rank}").read_text() for rank in "01"] == ["xxxx"] * 2
