"""Other people's PRMs behind the interface of ours, each read as its authors read it.

| format | network | a step's score |
|---|---|---|
| trl | token classification | P(class 1) at the step's separator |
| math-shepherd | causal LM | P(+) against P(-) at the tag after the step (arXiv 2312.08935) |
| rlhflow | causal LM | P(+) against P(-) as the answer to the step, a turn of a chat |
| qwen | Qwen2 with a head of two layers | P(class 1) at `<extra_0>` (arXiv 2501.07301) |

Nothing of a checkpoint's own code is run, unless the caller trusts it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model, Qwen2PreTrainedModel

from mclabel.data.boundaries import newline_ends
from mclabel.data.exchange.math_shepherd import SHEPHERD_TAG
from mclabel.engines.chat import render_chat
from mclabel.engines.pretrained import check_device, load_model, load_tokenizer
from mclabel.engines.text import quiet_transformers
from mclabel.errors import DataError
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, TooLongError
from mclabel.prm.model.network import at_steps

QWEN_STEP = "<extra_0>"
QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


class AdaptedPRM(ABC):
    """Scores steps with a network of another format."""

    network_class: ClassVar[Any] = AutoModelForTokenClassification
    """Loads the network, by `from_pretrained`."""

    def __init__(self, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Score with a network.

        Args:
            network: on its device.
            tokenizer: of the same checkpoint.
        """
        self.network, self.tokenizer = network.eval(), tokenizer

    @classmethod
    def load(
        cls, path: str | Path, *, device: str = "cpu", trust_remote_code: bool = False
    ) -> Self:
        """A PRM of this format.

        Args:
            path: folder or Hugging Face name.
            device: torch device.
            trust_remote_code: run Python code that comes with it.

        Raises:
            EngineError: it cannot be loaded.
        """
        quiet_transformers()
        check_device(device)
        of: dict[str, Any] = {"trust_remote_code": trust_remote_code, "key": ""}
        tokenizer = load_tokenizer(str(path), **of)
        network: Any = load_model(cls.network_class, str(path), **of)
        return cls(network.to(device), tokenizer)

    def score(
        self, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]
    ) -> list[list[float]]:
        """As `PRM.score`: for every solution one number in [0, 1] a step.

        Steps are given as texts, or are the lines of a text; line ends around them do not count.

        Raises:
            DataError: no steps, or a text that holds the format's own marks.
        """
        pairs = zip(problems, solutions, strict=True)
        return self.score_encoded([self.encode(problem, one) for problem, one in pairs])

    def encode(
        self, problem: str, solution: str | Sequence[str], place: str = "solution"
    ) -> EncodedSolution:
        """One solution as the network reads it.

        Raises:
            TooLongError: longer than what the network was made for.
            DataError: no steps, or a text that holds the format's own marks.
        """
        config = self.network.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None) or inf
        try:
            steps = _steps(solution)
            if len(steps) > limit:  # a chat is rendered once a step
                raise TooLongError(
                    f"{place}: {len(steps)} steps, which cannot fit in the model's limit of "
                    f"{limit} tokens"
                )
            one = self.encode_steps(problem, steps)
        except TooLongError:
            raise
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
        if len(one.ids) > limit:
            raise TooLongError(
                f"{place}: {len(one.ids)} tokens, more than the model's limit of {limit}"
            )
        return one

    def score_encoded(self, encoded: Sequence[EncodedSolution]) -> list[list[float]]:
        """The scores of encoded solutions."""

        def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[list[float]]:
            logits = batch.run(self.network, lambda out: out.logits)
            scores = self.read(at_steps(logits, batch).float()).tolist()
            return [row[: len(one.positions)] for row, one in zip(scores, group, strict=True)]

        return map_solutions(
            encoded,
            compute,
            network=self.network,
            threads=None,
            on_progress=lambda done, total: None,
        )

    @abstractmethod
    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Token ids, and the position at which each step's score is read."""

    @abstractmethod
    def read(self, logits: Tensor) -> Tensor:
        """Scores [batch, steps] from the logits there [batch, steps, classes or tokens]."""

    def _ids(self, text: str) -> list[int]:
        encoded = self.tokenizer(text, add_special_tokens=False)
        return cast(list[int], encoded["input_ids"])

    def _marked(self, ids: Sequence[int], mark: int, num_steps: int) -> EncodedSolution:
        """The positions of a mark, which must be one a step."""
        positions = tuple(i for i, token in enumerate(ids) if token == mark)
        if len(positions) != num_steps:
            raise DataError(
                f"{len(positions)} marks {self.tokenizer.decode([mark])!r} for {num_steps} steps: "
                "a text holds the mark itself"
            )
        return EncodedSolution(ids=tuple(ids), num_prompt=0, positions=positions)

    def _plus_minus(self) -> list[int]:
        ids = self._ids("+ -")
        if len(ids) != 2:
            raise DataError(
                "its tokenizer has no single tokens for + and -, which this format "
                "needs. Check --format"
            )
        return ids


class TrlPRM(AdaptedPRM):
    """Trained by TRL's `PRMTrainer`: prompt, steps and separators tokenised apart, no template."""

    def __init__(
        self, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, separator: str = "\n"
    ) -> None:
        super().__init__(network, tokenizer)
        self._separator = self._ids(separator)

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """The prompt, then each step and the separator, at which its score stands."""
        start = self.tokenizer.bos_token_id
        ids = [*([] if start is None else [start]), *self._ids(problem)]
        num_prompt, positions = len(ids), []
        for step in steps:
            ids += [*self._ids(step), *self._separator]
            positions.append(len(ids) - 1)
        return EncodedSolution(ids=tuple(ids), num_prompt=num_prompt, positions=tuple(positions))

    def read(self, logits: Tensor) -> Tensor:
        """Probability of class 1."""
        return logits.softmax(-1)[..., 1]


class ShepherdPRM(AdaptedPRM):
    """Math-Shepherd's: `problem Step 1: … ки`, a line a step, tokenised in one piece."""

    network_class = AutoModelForCausalLM

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """One text; each score stands at the tag after its step."""
        lines = [f"Step {i}: {step} {SHEPHERD_TAG}" for i, step in enumerate(steps, 1)]
        ids = cast(list[int], self.tokenizer(f"{problem} " + "\n".join(lines))["input_ids"])
        return self._marked(ids, self._ids(SHEPHERD_TAG)[-1], len(steps))

    def read(self, logits: Tensor) -> Tensor:
        """Probability of + against -."""
        return logits[..., self._plus_minus()].softmax(-1)[..., 0]


class RlhflowPRM(AdaptedPRM):
    """RLHFlow's: a chat in which each step is a turn that is answered by + or -."""

    network_class = AutoModelForCausalLM

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """A chat; each score stands where the answer to its step begins."""
        turns: list[dict[str, str]] = []
        positions = []
        for number, step in enumerate(steps, 1):
            text = f"Step {number}: {step}"
            turns.append({"role": "user", "content": f"{problem} {text}" if number == 1 else text})
            asked = self._chat(turns, ask=True)
            positions.append(len(asked) - 1)
            turns.append({"role": "assistant", "content": "+"})
        ids = self._chat(turns, ask=False)
        if ids[: len(asked)] != asked:
            raise DataError(
                "the chat template renders the beginning of a chat differently when "
                "the chat is longer, so steps cannot be located"
            )
        return EncodedSolution(ids=tuple(ids), num_prompt=0, positions=tuple(positions))

    def _chat(self, turns: list[dict[str, str]], *, ask: bool) -> list[int]:
        return self._ids(render_chat(self.tokenizer, turns, ask=ask))

    def read(self, logits: Tensor) -> Tensor:
        """Probability of + against -."""
        plus, minus = (self._ids(sign)[-1] for sign in ("+", "-"))
        return logits[..., [plus, minus]].softmax(-1)[..., 0]


class Qwen2ForProcessRewardModel(Qwen2PreTrainedModel):
    """The network of Qwen2.5-Math-PRM, which transformers does not have."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.model = Qwen2Model(config)
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, **inputs: Any) -> TokenClassifierOutput:
        """Logits of two classes for every token."""
        return TokenClassifierOutput(logits=self.score(self.model(**inputs).last_hidden_state))


class QwenPRM(AdaptedPRM):
    """Qwen2.5-Math-PRM: the chat template, the steps in the answer, each with a mark after it."""

    network_class = Qwen2ForProcessRewardModel

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """A chat with one answer; each score stands at the mark after its step."""
        turns = [
            {"role": "system", "content": QWEN_SYSTEM},
            {"role": "user", "content": problem},
            {"role": "assistant", "content": "".join(f"{step}{QWEN_STEP}" for step in steps)},
        ]
        text = render_chat(self.tokenizer, turns, ask=False)
        mark = self._ids(QWEN_STEP)
        if len(mark) != 1:
            raise DataError(
                f"this tokenizer has no token {QWEN_STEP}, which this format needs. Check --format"
            )
        return self._marked(self._ids(text), mark[0], len(steps))

    def read(self, logits: Tensor) -> Tensor:
        """Probability of class 1."""
        return logits.softmax(-1)[..., 1]


def _steps(solution: str | Sequence[str]) -> list[str]:
    if isinstance(solution, str):
        ends = newline_ends(solution)
        solution = [solution[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    steps = [step.strip("\n") for step in solution]
    if not steps:
        raise DataError("a solution without steps has nothing to score")
    return steps
