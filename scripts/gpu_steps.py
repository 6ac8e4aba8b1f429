"""Steps of `gpu_check`: tests, sampling and training on a device, and the limits of the device.

The model has random weights and the shape of Qwen2.5-1.5B. So the rollouts from one context differ
from their first token on. They share the keys and values of their context, but never a lane of the
engine. Rollouts of a confident model would often share one.
"""

from __future__ import annotations

import asyncio
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from xml.etree import ElementTree

Result = TypeVar("Result")
Figures = dict[str, Any]
Contexts = list[tuple[int, ...]]
Step = tuple[float, "Callable[[CheckDevice], Figures]"]
"""Maximum seconds of a step, and the function that runs it."""
REPEATS, ENOUGH_S = 3, 15.0
"""Maximum number of timings of a sampler, and the seconds after which no further timing starts."""
PER_CONTEXT = 8
"""Number of rollouts from each context."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Model shape and amounts of work."""

    shape: Mapping[str, int]
    """Fields of the Qwen2 model's configuration."""
    live: tuple[int, int] = (64, 256)
    """Numbers of completions that are sampled concurrently, one for each measurement."""
    num_context: int = 256
    """Tokens of each context."""
    num_sampled: int = 128
    """Tokens of each completion."""
    solutions: tuple[int, int] = (8, 512)
    """Number of solutions in an optimizer step, and number of tokens of each solution."""
    num_steps: int = 10
    """Number of optimizer steps."""
    copied: int = 1 << 31
    """Bytes of one copy."""
    square: int = 8192
    """Number of rows and columns of the matrices that are multiplied."""
    time_factor: float = 1.0
    """Factor of all time limits. They spare the time of a GPU, and a CPU may be busy."""


FULL = Size(
    shape={
        "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960,
        "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
    }
)  # fmt: skip
TINY = Size(
    shape={
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    },
    live=(8, 16), num_context=16, num_sampled=4, solutions=(2, 32), num_steps=4,
    copied=1 << 22, square=128, time_factor=10.0,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CheckDevice:
    """Device, size and model of a step."""

    size: Size
    device: str
    folder: Path
    """Folder of the random model."""

    def measure_call(self, run: Callable[[], Result]) -> tuple[float, Result]:
        """Return the seconds of a call, including all work that it starts on the device, and its
        result.
        """
        self.wait()
        started = time.perf_counter()
        result = run()
        self.wait()
        return time.perf_counter() - started, result

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def make_contexts(self, live: int, seed: int) -> Contexts:
        """Return one random context per completion; each context occurs `PER_CONTEXT` times."""
        rng, size = random.Random(seed), self.size
        tokens = range(10, size.shape["vocab_size"])
        count = live // PER_CONTEXT
        return [
            one
            for one in [tuple(rng.choices(tokens, k=size.num_context)) for _ in range(count)]
            for _ in range(PER_CONTEXT)
        ]


def find_check_device(folder: Path, *, tiny: bool) -> CheckDevice:
    """Return the GPU as the place to run on, or the CPU if there is no GPU and `tiny` is True."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not tiny:
        raise RuntimeError(
            "PyTorch finds no GPU. Run this check on a machine with a GPU, or give --tiny"
        )
    return CheckDevice(size=TINY if tiny else FULL, device=device, folder=folder)


def device_step(place: CheckDevice) -> Figures:
    """Return the name of the device, and its rates of copying and of matrix multiplication."""
    import torch
    import transformers

    size, on_gpu = place.size, place.device == "cuda"
    copy_s, matmul_s = _measure_copy_s(place), _measure_matmul_s(place)
    return {
        "name": torch.cuda.get_device_name() if on_gpu else platform.processor() or "CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "copy_bytes_per_s": 2 * size.copied / copy_s,  # each byte is read and written
        "matmul_flop_per_s": 2 * size.square**3 / matmul_s,
    }


def _measure_copy_s(place: CheckDevice) -> float:
    import torch

    source = torch.ones(place.size.copied, dtype=torch.uint8, device=place.device)
    target = torch.empty_like(source)
    return min(place.measure_call(lambda: target.copy_(source))[0] for _ in range(20))


def _measure_matmul_s(place: CheckDevice) -> float:
    import torch

    shape = (2, place.size.square, place.size.square)
    a, b = torch.randn(shape, device=place.device).to(torch.bfloat16)
    return median([place.measure_call(lambda: a @ b)[0] for _ in range(23)][3:])


def tests_step(place: CheckDevice, limit_s: float) -> Figures:
    """Run the tests marked `gpu`; without a GPU, run the same tests on the CPU."""
    root, report = Path(__file__).parents[1], place.folder.parent / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q"]
    # Only this file is collected: other files under tests/ import packages that the machine lacks.
    command += ["-o", "addopts=--import-mode=importlib", "-k", place.device, f"--junitxml={report}"]
    command += ["tests/test_on_gpu.py"]
    ended = subprocess.run(command, cwd=root, timeout=limit_s - 5, check=False)
    suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    if ended.returncode or counts["skipped"] or not counts["tests"]:
        raise RuntimeError(f"pytest ended with {ended.returncode}: {counts}; its output is above")
    return {"passed": counts["tests"]}


def weights_step(place: CheckDevice) -> Figures:
    """Make the random model, in bfloat16."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from mclabel.domains.arith import bundled_model

    torch.manual_seed(0)
    config = Qwen2Config.from_dict({**place.size.shape, "tie_word_embeddings": True})
    with torch.device(place.device):
        model: Any = Qwen2ForCausalLM(config)
    model.to(torch.bfloat16)
    model.save_pretrained(place.folder)
    AutoTokenizer.from_pretrained(bundled_model("policy")).save_pretrained(place.folder)
    return {"num_parameters": sum(p.numel() for p in model.parameters())}


def engine_step(place: CheckDevice, live: int) -> Figures:
    """Measure the sampling speed of the embedded engine `hf`."""
    from mclabel.engines import PolicySettings
    from mclabel.engines.hf import HfEngine

    settings = {"kind": "hf", "device": place.device, "dtype": "bfloat16", "max_live": live}
    engine = HfEngine(
        PolicySettings.model_validate(
            {"model": str(place.folder), "temperature": 1.0, "engine": settings}
        )
    )

    async def sample(contexts: Contexts, num_tokens: int) -> int:
        found = await asyncio.gather(
            *(
                engine.sample(context, (), seed=number, max_tokens=num_tokens)
                for number, context in enumerate(contexts)
            )
        )
        return sum(len(one.ids) for one in found)

    with asyncio.Runner() as runner:
        runner.run(engine.start())
        try:
            speed = _measure_speed(place, live, lambda *given: runner.run(sample(*given)))
        finally:
            runner.run(engine.close())
    # The engine's lanes with the same context read its keys and values only once per step.
    return {**speed, **_count_bytes_per_step(place, live, num_contexts=live // PER_CONTEXT)}


def generate_step(place: CheckDevice, live: int) -> Figures:
    """Measure the speed of transformers' `generate` on the same contexts in one batch."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(place.folder, dtype=torch.bfloat16)
    model.to(place.device).eval()

    def sample(contexts: Contexts, num_tokens: int) -> int:
        ids = torch.tensor(contexts, device=place.device)
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0,
            top_p=1.0, min_new_tokens=num_tokens, max_new_tokens=num_tokens, pad_token_id=0,
        )  # fmt: skip
        return int(out[:, ids.shape[1] :].numel())

    return {
        **_measure_speed(place, live, sample),
        **_count_bytes_per_step(place, live, num_contexts=live),
    }


def _measure_speed(
    place: CheckDevice, live: int, sample: Callable[[Contexts, int], int]
) -> Figures:
    """Return tokens per second including the contexts, and seconds per step without them."""
    sample(place.make_contexts(live, seed=0), 2)  # warm-up
    most, speeds, steps = place.size.num_sampled, [], []
    since = time.perf_counter()
    for repeat in range(1, REPEATS + 1):
        first, contexts = (place.make_contexts(live, seed=2 * repeat + turn) for turn in range(2))
        first_s, _ = place.measure_call(partial(sample, first, 1))
        whole_s, num_tokens = place.measure_call(partial(sample, contexts, most))
        speeds.append(num_tokens / whole_s)
        steps.append((whole_s - first_s) / (most - 1))
        if time.perf_counter() - since > ENOUGH_S:
            break
    return {
        "live": live,
        "tokens_per_s": median(speeds),
        "all_tokens_per_s": speeds,
        "step_s": median(steps),
        "all_step_s": steps,
    }


def _count_bytes_per_step(place: CheckDevice, live: int, *, num_contexts: int) -> Figures:
    """Return the bytes that a sampling step must read: the weights, and the keys and values.

    The keys and values are those at half of the completions' length.
    """
    size, shape = place.size, place.size.shape
    head_size = shape["hidden_size"] // shape["num_attention_heads"]
    per_token = 2 * 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head_size
    tokens = num_contexts * size.num_context + live * size.num_sampled // 2
    weights = sum(path.stat().st_size for path in place.folder.glob("*.safetensors"))
    return {"weight_bytes": weights, "kv_bytes": tokens * per_token}


def training_step(place: CheckDevice) -> Figures:
    """Measure optimizer steps of a scorer with LoRA adapters in bfloat16, run by the trainer."""
    import torch

    from mclabel.prm.model.network import add_adapters, is_adapter, start_step_model
    from mclabel.prm.model.settings import ModelSettings
    from mclabel.prm.training.settings import TrainerSettings
    from mclabel.prm.training.trainer import train_step_model

    size, rank = place.size, 16
    model = start_step_model(
        ModelSettings(base=str(place.folder), lora_rank=rank, dtype="bfloat16")
    )
    add_adapters(model.network, rank=rank, alpha=32)
    model.to(place.device)
    ends: list[float] = []

    def ended(step: int, total: int, detail: str) -> None:
        place.wait()
        ends.append(time.perf_counter())

    settings = TrainerSettings(
        max_steps=size.num_steps, batch_size=size.solutions[0], bf16=True, save_steps=10**6
    )
    with tempfile.TemporaryDirectory() as out:
        train_step_model(
            model, _make_examples(place), [], Path(out), settings=settings, on_progress=ended
        )
    step_s = median(b - a for a, b in pairwise(ends[1:]))  # the first steps warm up
    linear = {
        adapter: sum(
            p.numel()
            for name, p in model.named_parameters()
            if p.dim() == 2 and "embed" not in name and is_adapter(name) is adapter
        )
        for adapter in (True, False)
    }
    num_tokens = size.solutions[0] * size.solutions[1]
    width = size.shape["hidden_size"] * size.shape["num_hidden_layers"]
    # FLOP per weight and token: two in the forward pass, two for the gradient of the input, and two
    # for the gradient of the weight if the weight is trained. Causal attention computes half of the
    # square of positions in the forward pass, and twice as much in the backward pass.
    flop = num_tokens * (4 * linear[False] + 6 * linear[True] + 6 * size.solutions[1] * width)
    peak = torch.cuda.max_memory_allocated() if place.device == "cuda" else None
    return {"step_s": step_s, "tokens_per_s": num_tokens / step_s, "flop": flop,
            "flop_per_s": flop / step_s, "peak_bytes": peak}  # fmt: skip


def _make_examples(place: CheckDevice) -> list[Any]:
    """Make solutions of random token ids with four steps each."""
    from mclabel.prm.examples.encode import EncodedSolution, Example

    count, length = place.size.solutions
    at = tuple(length * quarter // 4 - 1 for quarter in range(1, 5))
    contexts = place.make_contexts(PER_CONTEXT * count, seed=1)[::PER_CONTEXT]
    return [
        Example(
            problem_id=str(number),
            encoded=EncodedSolution(
                ids=(context * length)[:length], num_prompt=length // 8, positions=at
            ),
            targets=(1.0, 1.0, 0.0, 0.0),
            weights=(1.0,) * 4,
            is_right=False,
        )
        for number, context in enumerate(contexts)
    ]


def list_steps(size: Size) -> dict[str, Step]:
    """Return the steps by name, in the order in which they run."""
    steps: dict[str, Step] = {
        "device": (60, device_step),
        "tests": (120, partial(tests_step, limit_s=120 * size.time_factor)),
        "weights": (60, weights_step),
    }
    for live in size.live:
        steps[f"engine-{live}"] = (80, partial(engine_step, live=live))
        steps[f"generate-{live}"] = (80, partial(generate_step, live=live))
    steps["training"] = (100, training_step)
    return {name: (limit_s * size.time_factor, step) for name, (limit_s, step) in steps.items()}
