"""Adapters for published PRMs in other formats. They encode solutions as the formats' authors do.

| format | network | a step's score |
|---|---|---|
| trl | token classification | P(class 1) at the step's separator |
| math-shepherd | causal LM | P(+) against P(-) at the tag after the step (arXiv 2312.08935) |
| rlhflow | causal LM | P(+) against P(-) as the assistant's reply to the step in a chat |
| qwen | Qwen2 with a two-layer head | P(class 1) at `<extra_0>` (arXiv 2501.07301) |

Code that comes with a checkpoint runs only if the caller sets `trust_remote_code`.
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
from mclabel.engines.loading import silence_transformers
from mclabel.engines.pretrained import load_model, load_tokenizer
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, TooLongError
from mclabel.prm.model.network import select_step_states
from mclabel.prm.scoring.layout import (
    LayoutSettings,
    Split,
    merge_layout_settings,
    number_steps,
    split_into_steps,
)

logger = logging.getLogger(__name__)

_GOOD_NAMES = frozenset(
    ("label_1", "1", "+", "good", "correct", "right", "sound", "true", "valid", "positive", "yes")
)
_BAD_NAMES = frozenset(
    ("label_0", "0", "-", "bad", "incorrect", "wrong", "unsound", "false", "invalid", "negative")
) | {"no", "error"}
"""Names in `id2label` that identify the bad class. The good class is identified by `_GOOD_NAMES`,
and the order of the classes does not matter."""
QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


class AdaptedPRM(ABC):
    """A scorer with a network of a format other than `mclabel`."""

    network_class: ClassVar[Any] = AutoModelForTokenClassification
    """Class whose `from_pretrained` loads the network."""
    format_name: ClassVar[str]
    """Name of the format, in `FORMATS`."""
    _mark_id: int
    """Token id of the mark (separator) after each step, in formats that have one."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        layout: LayoutSettings | None = None,
    ) -> None:
        """Wrap a loaded network. Use `load` to load a checkpoint.

        Args:
            network: network of the PRM, on its device.
            tokenizer: tokenizer of the same checkpoint.
            layout: settings in which the checkpoint departs from the layout of the format's
                authors; None if it does not.

        Raises:
            DataError: the tokenizer or the network lacks what the layout needs.
        """
        self.network, self.tokenizer = network.eval(), tokenizer
        self._control = ControlTokens(tokenizer)
        own = LayoutSettings() if layout is None else layout
        self.layout = merge_layout_settings(self.format_name, own)
        self._is_set = own.classes is not None
        self._good, self._bad = self._find_good_and_bad_indices(
            *cast(tuple[str, str], self.layout.classes)
        )

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
            path: folder or Hugging Face name of the checkpoint.
            layout: settings in which the checkpoint departs from the layout of the format's
                authors; None if it does not.
            device: torch device; `auto` takes cuda if there is a GPU.
            trust_remote_code: true if Python code that comes with the checkpoint may run.

        Raises:
            EngineError: the checkpoint cannot be loaded.
            DataError: the tokenizer or the network lacks what the layout needs.
        """
        silence_transformers()
        device = check_device(device)
        of: dict[str, Any] = {"trust_remote_code": trust_remote_code, "setting_key": ""}
        tokenizer = load_tokenizer(str(path), **of)
        network: Any = load_model(cls.network_class, str(path), **of)
        return cls(network.to(device), tokenizer, layout)

    def score(
        self, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]
    ) -> list[list[float]]:
        """Score solutions as `PRM.score` does, and return scores in [0, 1], one per step.

        A solution is a list of steps, or one text whose lines or paragraphs are the steps. Line
        breaks around steps are removed.

        Raises:
            DataError: a solution has no steps, or a text contains the format's own marks.
        """
        pairs = zip(problems, solutions, strict=True)
        return self.score_encoded([self.encode(problem, solution) for problem, solution in pairs])

    def encode(
        self, problem: str, solution: str | Sequence[str], name_in_errors: str = "solution"
    ) -> EncodedSolution:
        """Encode a solution for the network.

        Raises:
            TooLongError: the solution is longer than the network's maximum length.
            DataError: the solution has no steps, or a text contains the format's own marks.
        """
        config = self.network.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None) or inf
        try:
            steps = self._split_into_steps(solution)
            if len(steps) > limit:  # refused early: a chat would be rendered once per step
                raise TooLongError(
                    f"{name_in_errors}: has {len(steps)} steps, which cannot fit in the model's "
                    "limit of "
                    f"{limit} tokens"
                )
            encoded = self.encode_steps(problem, steps)
        except TooLongError:
            raise
        except DataError as error:
            raise DataError(f"{name_in_errors}: {error}") from error
        if len(encoded.ids) > limit:
            raise TooLongError(
                f"{name_in_errors}: has {len(encoded.ids)} tokens, more than the model's limit of "
                f"{limit}"
            )
        return encoded

    def score_encoded(self, encoded: Sequence[EncodedSolution]) -> list[list[float]]:
        """Return the scores of encoded solutions."""

        def score_batch(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[list[float]]:
            logits = batch.run(self.network, lambda out: out.logits)
            scores = self.convert_logits_to_scores(
                select_step_states(logits, batch).float()
            ).tolist()
            return [
                row[: len(solution.positions)] for row, solution in zip(scores, group, strict=True)
            ]

        return map_solutions(
            encoded,
            score_batch,
            network=self.network,
            threads=None,
            on_progress=lambda done, total: None,
        )

    @abstractmethod
    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode a problem and the steps of a solution, and locate where each score is read."""

    def convert_logits_to_scores(self, logits: Tensor) -> Tensor:
        """Return scores [batch, steps]: P(good) / (P(good) + P(bad)) at each step.

        Args:
            logits: logits at the scored positions [batch, steps, classes or tokens].
        """
        return logits[..., [self._good, self._bad]].softmax(-1)[..., 0]

    def _split_into_steps(self, solution: str | Sequence[str]) -> list[str]:
        if isinstance(solution, str):
            solution = split_into_steps(solution, cast(Split, self.layout.split))
        steps = [self._strip_step(step) for step in solution]
        if not steps:
            raise DataError("a solution without steps has nothing to score")
        return number_steps(steps) if self.layout.numbering else steps

    def _strip_step(self, step: str) -> str:
        """Return a step without the line breaks around it."""
        return step.strip("\n")

    @abstractmethod
    def _find_good_and_bad_indices(self, good_class: str, bad_class: str) -> tuple[int, int]:
        """Return the indices of the good and the bad class among the network's logits.

        Args:
            good_class: name or token of the good class, as in `LayoutSettings.classes`.
            bad_class: name or token of the bad class.
        """

    def _tokenise(self, text: str) -> list[int]:
        return self._control.encode(text)

    def _find_single_token_id(self, text: str, preceding_text: str = "") -> int:
        """Return the id of a text that must be a single token of the vocabulary.

        Args:
            text: text of the token.
            preceding_text: preceding text, on which the tokenisation may depend.
        """
        ids = self._tokenise(preceding_text + text)[len(self._tokenise(preceding_text)) :]
        if len(ids) != 1 or ids[0] == self.tokenizer.unk_token_id:
            raise DataError(
                f"its tokenizer has no single token for {text!r}, which this format needs. Check "
                "format, or set layout.separator and layout.classes to the texts it was trained "
                "with"
            )
        return ids[0]

    def _encode_with_score_marks(
        self, ids: Sequence[int], mark_id: int, num_steps: int
    ) -> EncodedSolution:
        """Return an encoded solution that is scored at each occurrence of a mark.

        Args:
            ids: token ids of the prompt and the solution.
            mark_id: token id of the mark, which must occur once per step.
            num_steps: number of steps.
        """
        positions = tuple(i for i, token in enumerate(ids) if token == mark_id)
        if len(positions) != num_steps:
            raise DataError(
                f"has {len(positions)} marks {self.tokenizer.decode([mark_id])!r} for {num_steps} "
                "steps, because the text of the problem or the solution contains the mark. Remove "
                "the mark from the text"
            )
        return EncodedSolution(ids=tuple(ids), num_prompt=0, positions=positions)


class _ClassifierPRM(AdaptedPRM):
    """Base class of PRMs whose network has a classification head."""

    def _find_good_and_bad_indices(self, good_class: str, bad_class: str) -> tuple[int, int]:
        names = self.network.config.id2label
        if set(names) == {0, 1} and not self._is_set:
            return _find_good_and_bad_by_name(names)
        class_indices = {str(index): index for index in names} | {
            str(name): index for index, name in names.items()
        }
        if self._is_set and {good_class, bad_class} <= class_indices.keys():
            return class_indices[good_class], class_indices[bad_class]
        if len(names) < 2:
            raise DataError(
                "its head has one class, but step scores need a good and a bad class. The model "
                "may be a reward model of whole solutions: check format"
            )
        listed = ", ".join(f"{index} ({name})" for index, name in names.items())
        raise DataError(
            f"its head has the classes {listed}, and layout.classes is {good_class}, "
            f"{bad_class}. Set layout.classes=[GOOD, BAD] to two of them"
        )


def _find_good_and_bad_by_name(names: Mapping[int, str]) -> tuple[int, int]:
    """Return the indices of the good and the bad class, according to their names.

    Args:
        names: names of two classes by index. If no name says which class is good, class 1 is the
            good class, as in the formats' checkpoints.
    """
    kinds = {index: str(name).strip().casefold() for index, name in names.items()}
    for good, bad in ((0, 1), (1, 0)):
        if kinds[good] in _GOOD_NAMES and kinds[bad] in _BAD_NAMES:
            return good, bad
    logger.warning(
        "id2label names the classes %s and %s, which do not show which class is good. Class 1 is "
        "used as the good class. If this is wrong, set layout.classes=[GOOD, BAD]",
        *(names[index] for index in (0, 1)),
    )
    return 1, 0


class _TwoTokenPRM(AdaptedPRM):
    """Base class of PRMs that are language models and score by the probabilities of two tokens."""

    network_class = AutoModelForCausalLM


class TrlPRM(_ClassifierPRM):
    """A PRM trained with TRL's `PRMTrainer`.

    Prompt, steps and separators are tokenised separately, without a chat template.
    """

    format_name = "trl"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode the prompt, then each step and the separator at which its score is read."""
        start = self.tokenizer.bos_token_id
        text_ids = self._control.encode_plain
        separator = self._tokenise(cast(str, self.layout.separator))
        ids = [*([] if start is None else [start]), *text_ids(problem)]
        num_prompt, positions = len(ids), []
        for step in steps:
            ids += [*text_ids(step), *separator]
            positions.append(len(ids) - 1)
        return EncodedSolution(ids=tuple(ids), num_prompt=num_prompt, positions=tuple(positions))


class ShepherdPRM(_TwoTokenPRM):
    """A PRM in the format of Math-Shepherd: `problem Step 1: … ки`, one line per step.

    The whole text is tokenised at once.
    """

    format_name = "math-shepherd"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode the whole text. The score of a step is read at the tag `ки` after it."""
        fence, tag = self._control.fence_control_tokens, cast(str, self.layout.separator)
        lines = "\n".join(f"{fence(step)} {tag}" for step in steps)
        ids = self._control.encode_prompt(f"{fence(problem)} {lines}")
        return self._encode_with_score_marks(ids, self._mark_id, len(steps))

    def _find_good_and_bad_indices(self, good_class: str, bad_class: str) -> tuple[int, int]:
        self._mark_id = self._find_single_token_id(f" {self.layout.separator}", preceding_text="a")
        good_id = self._find_single_token_id(good_class)
        return good_id, self._find_single_token_id(
            f" {bad_class}", preceding_text=good_class
        )  # as "+ -" is read


class RlhflowPRM(_TwoTokenPRM):
    """A PRM of RLHFlow, which reads a chat in which + or - answers each step's turn.

    RLHFlow's evaluation does not number the steps. The step texts of Math-Shepherd's data already
    contain their numbers.
    """

    format_name = "rlhflow"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode a chat. The score of a step is read where the assistant's reply to it begins."""
        fence, good = (
            self._control.fence_control_tokens,
            cast(tuple[str, str], self.layout.classes)[0],
        )
        turns: list[dict[str, str]] = []
        positions = []
        for number, step in enumerate(map(fence, steps)):
            turns.append(
                {"role": "user", "content": step if number else f"{fence(problem)} {step}"}
            )
            asked = self._tokenise_chat(turns, add_generation_prompt=True)
            positions.append(len(asked) - 1)
            turns.append({"role": "assistant", "content": good})
        ids = self._tokenise_chat(turns, add_generation_prompt=False)
        if ids[: len(asked)] != asked:
            raise DataError(
                "its chat template renders the first turns of a chat differently when more turns "
                "follow, so steps cannot be located. Choose a model with another template"
            )
        return EncodedSolution(ids=tuple(ids), num_prompt=0, positions=tuple(positions))

    def _tokenise_chat(
        self, turns: list[dict[str, str]], *, add_generation_prompt: bool
    ) -> list[int]:
        return self._tokenise(
            render_chat(self.tokenizer, turns, add_generation_prompt=add_generation_prompt)
        )

    def _strip_step(self, step: str) -> str:
        return step.strip()

    def _find_good_and_bad_indices(self, good_class: str, bad_class: str) -> tuple[int, int]:
        return self._find_single_token_id(good_class), self._find_single_token_id(bad_class)


class Qwen2ForProcessRewardModel(Qwen2PreTrainedModel):
    """The network of Qwen2.5-Math-PRM, which transformers does not include."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.model = Qwen2Model(config)
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, **inputs: Any) -> TokenClassifierOutput:
        """Return the logits of two classes for every token."""
        return TokenClassifierOutput(logits=self.score(self.model(**inputs).last_hidden_state))


class QwenPRM(_ClassifierPRM):
    """A PRM in the format of Qwen2.5-Math-PRM.

    The chat template is used. The assistant's turn contains all steps, with a mark after each.
    """

    network_class = Qwen2ForProcessRewardModel
    format_name = "qwen"

    def encode_steps(self, problem: str, steps: Sequence[str]) -> EncodedSolution:
        """Encode a chat with one reply. The score of a step is read at the mark after it."""
        fence, mark = self._control.fence_control_tokens, cast(str, self.layout.separator)
        turns = [
            {"role": "system", "content": QWEN_SYSTEM},
            {"role": "user", "content": fence(problem)},
            {"role": "assistant", "content": "".join(f"{fence(step)}{mark}" for step in steps)},
        ]
        ids = self._tokenise(render_chat(self.tokenizer, turns, add_generation_prompt=False))
        return self._encode_with_score_marks(ids, self._mark_id, len(steps))

    def _find_good_and_bad_indices(self, good_class: str, bad_class: str) -> tuple[int, int]:
        self._mark_id = self._find_single_token_id(cast(str, self.layout.separator))
        return super()._find_good_and_bad_indices(good_class, bad_class)
