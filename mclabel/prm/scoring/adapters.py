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

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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

from mclabel.core.errors import DataError
from mclabel.engines.chat import ControlTokens, render_chat
from mclabel.engines.devices import AUTO, check_device
from mclabel.engines.loading import quiet_transformers
from mclabel.engines.pretrained import load_model, load_tokenizer
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, TooLongError
from mclabel.prm.model.network import at_steps
from mclabel.prm.scoring.layout import LayoutSettings, Split, layout_of, numbered, split_text

logger = logging.getLogger(__name__)

_GOOD_NAMES = frozenset(
    ("label_1", "1", "+", "good", "correct", "right", "sound", "true", "valid", "positive", "yes")
)
_BAD_NAMES = frozenset(
    ("label_0", "0", "-", "bad", "incorrect", "wrong", "unsound", "false", "invalid", "negative")
) | {"no", "error"}
"""Names of classes in `id2label`. Their order decides nothing."""
QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


class AdaptedPRM(ABC):
    """Scores steps with a network of another format."""

    network_class: ClassVar[Any] = AutoModelForTokenClassification
    """Loads the network, by `from_pretrained`."""
    form: ClassVar[str]
    """Name of the format."""
    _mark: int
    """Id of the mark after each step, of a format that has one."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        layout: LayoutSettings | None = None,
    ) -> None:
        """Score with a network.

        Args:
            network: on its device.
            tokenizer: tokenizer of the same checkpoint.
            layout: where it departs from the authors' own.

        Raises:
            DataError: the tokenizer or the network lacks what the layout needs.
        """
        self.network, self.tokenizer = network.eval(), tokenizer
        self._control = ControlTokens(tokenizer)
        own = LayoutSettings() if layout is None else layout
        self.layout = layout_of(self.form, own)
        self._is_set = own.classes is not None
        self._good, self._bad = self._classes(*cast(tuple[str, str], self.layout.classes))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        layout: LayoutSettings | None = None,
        device: str = AUTO,
        trust_remote_code: bool = False,
    ) -> Self:
        """Load a PRM of this format.

        Args:
            path: folder or Hugging Face name.
            layout: layout, as in the class.
            device: torch device; `auto` takes cuda where there is a GPU.
            trust_remote_code: run Python code that comes with it.

        Raises:
            EngineError: it cannot be loaded.
            DataError: as of the class.
        """
        quiet_transformers()
        device = check_device(device)
        of: dict[str, Any] = {"trust_remote_code": trust_remote_code, "key": ""}
        tokenizer = load_tokenizer(str(path), **of)
        network: Any = load_model(cls.network_class, str(path), **of)
        return cls(network.to(device), tokenizer, layout)

    def score(
        self, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]
    ) -> list[list[float]]:
        """Score solutions as `PRM.score` does: for every solution a number in [0, 1] per step.

        Steps are given as texts, or are the lines or paragraphs of a text; line ends around them do
        not count.

        Raises:
            DataError: no steps, or a text that holds the format's own marks.
        """
        pairs = zip(problems, solutions, strict=True)
        return self.score_encoded([self.encode(problem, solution) for problem, solution in pairs])

    def encode(
        self, problem: str, solution: str | Sequence[str], place: str = "solution"
    ) -> EncodedSolution:
        """Encode a solution for the network.

        Raises:
            TooLongError: longer than what the network was made for.
            DataError: no steps, or a text that holds the format's own marks.
        """
        config = self.network.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None) or inf
        try:
            steps = self._steps(solution)
            if len(steps) > limit:  # a chat is rendered once a step
                raise TooLongError(
                    f"{place}: {len(steps)} steps, which cannot fit in the model's limit of "
                    f"{limit} tokens"
                )
            encoded = self.encode_steps(problem, steps)
        except TooLongError:
            raise
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
        if len(encoded.ids) > limit:
            raise TooLongError(
                f"{place}: {len(encoded.ids)} tokens, more than the model's limit of {limit}"
            )
        return encoded

    def score_encoded(self, encoded: Sequence[EncodedSolution]) -> list[list[float]]:
        """Return the scores of encoded solutions."""

        def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[list[float]]:
            logits = batch.run(self.network, lambda out: out.logits)
            scores = self.read(at_steps(logits, batch).float()).tolist()
            return [
                row[: len(solution.positions)] for row, solution in zip(scores, group, strict=True)
            ]

        return map_solutions(
            encoded,
            compute,
            network=self.network,
            threads=None,
            on_progress=lambda done, total: None,
        )

    @abstractmethod
    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Return the token ids, and the position at which each step's score is read."""

    def read(self, logits: Tensor) -> Tensor:
        """Scores [batch, steps] from the logits there [batch, steps, classes or tokens]: the
        probability of the good class against the bad one.
        """
        return logits[..., [self._good, self._bad]].softmax(-1)[..., 0]

    def _steps(self, solution: str | Sequence[str]) -> list[str]:
        if isinstance(solution, str):
            solution = split_text(solution, cast(Split, self.layout.split))
        steps = [self._stripped(step) for step in solution]
        if not steps:
            raise DataError("a solution without steps has nothing to score")
        return numbered(steps) if self.layout.numbering else steps

    def _stripped(self, step: str) -> str:
        """Return a step without the line breaks around it."""
        return step.strip("\n")

    @abstractmethod
    def _classes(self, good: str, bad: str) -> tuple[int, int]:
        """Return where the logits of two classes stand among those of the network."""

    def _ids(self, text: str) -> list[int]:
        return self._control.encode(text)

    def _one_token(self, text: str, after: str = "") -> int:
        """Return the id of a text that must be one token of the vocabulary.

        Args:
            text: text of the token.
            after: what stands before it, on which the token may depend.
        """
        ids = self._ids(after + text)[len(self._ids(after)) :]
        if len(ids) != 1 or ids[0] == self.tokenizer.unk_token_id:
            raise DataError(
                f"its tokenizer has no single token for {text!r}, which this format needs. Check "
                "format, or set layout.separator or layout.classes to what it was trained with"
            )
        return ids[0]

    def _marked(self, ids: Sequence[int], mark: int, num_steps: int) -> EncodedSolution:
        """Return the positions of a mark, which must occur once per step."""
        positions = tuple(i for i, token in enumerate(ids) if token == mark)
        if len(positions) != num_steps:
            raise DataError(
                f"{len(positions)} marks {self.tokenizer.decode([mark])!r} for {num_steps} steps: "
                "a text holds the mark itself"
            )
        return EncodedSolution(ids=tuple(ids), num_prompt=0, positions=positions)


class _HeadPRM(AdaptedPRM):
    """A PRM whose network classifies tokens by a head of its own."""

    def _classes(self, good: str, bad: str) -> tuple[int, int]:
        names = self.network.config.id2label
        if set(names) == {0, 1} and not self._is_set:
            return _classes_by_name(names)
        class_indices = {str(index): index for index in names} | {
            str(name): index for index, name in names.items()
        }
        if self._is_set and {good, bad} <= class_indices.keys():
            return class_indices[good], class_indices[bad]
        if len(names) < 2:
            raise DataError(
                "its head has one class, and steps are scored by a good class against a bad one. "
                "It may be a reward model of whole solutions: check format"
            )
        listed = ", ".join(f"{index} ({name})" for index, name in names.items())
        raise DataError(
            f"its head has the classes {listed}, and layout.classes is {good}, {bad}. Set "
            "layout.classes=[GOOD, BAD] to two of them"
        )


def _classes_by_name(names: Mapping[int, str]) -> tuple[int, int]:
    """Return the good and the bad one of two classes, by their names.

    Args:
        names: by index. If they do not say it, class 1 is the good one, as the formats have it.
    """
    kinds = {index: str(name).strip().casefold() for index, name in names.items()}
    for good, bad in ((0, 1), (1, 0)):
        if kinds[good] in _GOOD_NAMES and kinds[bad] in _BAD_NAMES:
            return good, bad
    logger.warning(
        "id2label names the classes %s and %s, so class 1 is taken for the good one. If it is not, "
        "set layout.classes=[GOOD, BAD]",
        *(names[index] for index in (0, 1)),
    )
    return 1, 0


class _TokenPRM(AdaptedPRM):
    """A PRM that is a language model: a score is the probability of one token against another."""

    network_class = AutoModelForCausalLM


class TrlPRM(_HeadPRM):
    """Trained by TRL's `PRMTrainer`: prompt, steps and separators tokenised apart, no template."""

    form = "trl"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode the prompt, then each step and the separator at which its score is read."""
        start = self.tokenizer.bos_token_id
        text_ids = self._control.encode_plain
        separator = self._ids(cast(str, self.layout.separator))
        ids = [*([] if start is None else [start]), *text_ids(problem)]
        num_prompt, positions = len(ids), []
        for step in steps:
            ids += [*text_ids(step), *separator]
            positions.append(len(ids) - 1)
        return EncodedSolution(ids=tuple(ids), num_prompt=num_prompt, positions=tuple(positions))


class ShepherdPRM(_TokenPRM):
    """Math-Shepherd's: `problem Step 1: … ки`, a line a step, tokenised in one piece."""

    form = "math-shepherd"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode one text; each score is read at the tag after its step."""
        fence, tag = self._control.fence, cast(str, self.layout.separator)
        lines = "\n".join(f"{fence(step)} {tag}" for step in steps)
        ids = self._control.encode_prompt(f"{fence(problem)} {lines}")
        return self._marked(ids, self._mark, len(steps))

    def _classes(self, good: str, bad: str) -> tuple[int, int]:
        self._mark = self._one_token(f" {self.layout.separator}", after="a")
        return self._one_token(good), self._one_token(f" {bad}", after=good)  # as "+ -" is read


class RlhflowPRM(_TokenPRM):
    """A PRM of RLHFlow, which reads a chat in which + or - answers each step's turn.

    RLHFlow's evaluation does not number the steps. The step texts of Math-Shepherd's data already
    contain their numbers.
    """

    form = "rlhflow"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode a chat in which each score stands where the answer to its step begins."""
        fence, good = self._control.fence, cast(tuple[str, str], self.layout.classes)[0]
        turns: list[dict[str, str]] = []
        positions = []
        for number, step in enumerate(map(fence, steps)):
            turns.append(
                {"role": "user", "content": step if number else f"{fence(problem)} {step}"}
            )
            asked = self._chat(turns, ask=True)
            positions.append(len(asked) - 1)
            turns.append({"role": "assistant", "content": good})
        ids = self._chat(turns, ask=False)
        if ids[: len(asked)] != asked:
            raise DataError(
                "the chat template renders the beginning of a chat differently when "
                "the chat is longer, so steps cannot be located"
            )
        return EncodedSolution(ids=tuple(ids), num_prompt=0, positions=tuple(positions))

    def _chat(self, turns: list[dict[str, str]], *, ask: bool) -> list[int]:
        return self._ids(render_chat(self.tokenizer, turns, ask=ask))

    def _stripped(self, step: str) -> str:
        return step.strip()

    def _classes(self, good: str, bad: str) -> tuple[int, int]:
        return self._one_token(good), self._one_token(bad)


class Qwen2ForProcessRewardModel(Qwen2PreTrainedModel):
    """The network of Qwen2.5-Math-PRM, which transformers does not have."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.model = Qwen2Model(config)
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, **inputs: Any) -> TokenClassifierOutput:
        """Return the logits of two classes for every token."""
        return TokenClassifierOutput(logits=self.score(self.model(**inputs).last_hidden_state))


class QwenPRM(_HeadPRM):
    """Qwen2.5-Math-PRM: the chat template, the steps in the answer, each with a mark after it."""

    network_class = Qwen2ForProcessRewardModel
    form = "qwen"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode a chat with one answer; each score is read at the mark after its step."""
        fence, mark = self._control.fence, cast(str, self.layout.separator)
        turns = [
            {"role": "system", "content": QWEN_SYSTEM},
            {"role": "user", "content": fence(problem)},
            {"role": "assistant", "content": "".join(f"{fence(step)}{mark}" for step in steps)},
        ]
        ids = self._ids(render_chat(self.tokenizer, turns, ask=False))
        return self._marked(ids, self._mark, len(steps))

    def _classes(self, good: str, bad: str) -> tuple[int, int]:
        self._mark = self._one_token(cast(str, self.layout.separator))
        return super()._classes(good, bad)
