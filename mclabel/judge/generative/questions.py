r"""What a generative PRM is asked, to the letter of the authors, and the probability of its
verdict.

- `thinkprm` (arXiv 2504.16828, mukhal/ThinkPRM `utils/helper.py`, `prm/thinkprm_api.py`): one chain
  verifies all steps, each with `\boxed{correct}` or `\boxed{incorrect}`. It is stopped where the
  thought ends, the question for the whole comes, or a step is verified that does not exist. Then
  "Is the solution correct?" is put behind it.
- `genprm` (arXiv 2504.00891, RyanLiu112/GenPRM `src/prm_evaluation`, without code): each step is a
  turn of a chat, answered by an analysis and a judgement in `\boxed{Yes}` or `\boxed{No}`. As in
  their code, no mark of an answer stands between the question and the analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite

from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.seeds import content_id
from mclabel.engines import Engine
from mclabel.judge.critic.prompts import Template, template_hash

PARSER = "step_verdicts"
"""By which chains that verify all steps are read, those of a template of one's own among them."""
THINKPRM = Template(
    """You are given a math problem and a proposed step-by-step solution:

[Math Problem]

{problem}

[Solution]

{steps}

Review and critique each step in the proposed solution to determine whether each step is correct. \
If the solution is incomplete, only verify the provided steps.""",
    PARSER,
)
THINKPRM_START = "\nLet's verify step by step:"
"""Begins every chain."""
THINKPRM_STOPS = ("Is the solution correct?", "</think>")
"""Texts that end a chain; so does the heading of a step behind the last one."""
WHOLE_QUESTION = "\nIs the solution correct? "
WHOLE_VERDICTS = ("yes", "no")

GENPRM_SYSTEM = (
    "You are a math teacher. Your task is to review and critique the paragraphs in solution step "
    "by step."
)
GENPRM_START = "<analyze>\nLet's analyze the Paragraph {number} step by step: "
GENPRM_STOP = "</analyze>"
GENPRM_QUESTION = "</analyze>\n<output>\n**Judgement**: $\\boxed{"
GENPRM_END = "}$\n</output>\n"
GENPRM_VERDICTS = ("Yes", "No")


def wording_hash(template: str) -> str:
    """Identifies what a model is asked and which answers are read.

    Args:
        template: a name, or a text of one's own.
    """
    if template == "genprm":
        parts = (GENPRM_SYSTEM, GENPRM_START, GENPRM_STOP, GENPRM_QUESTION, GENPRM_END)
        return content_id(*parts, *GENPRM_VERDICTS)
    is_built_in = template == "thinkprm"
    asked = THINKPRM if is_built_in else Template(template.strip(), PARSER)
    more = (THINKPRM_START, *THINKPRM_STOPS) if is_built_in else ()
    return content_id(template_hash(asked), *more, WHOLE_QUESTION, *WHOLE_VERDICTS)


@dataclass(frozen=True)
class VerdictTokens:
    """A question, and the tokens of its two answers."""

    question: tuple[int, ...]
    """Ids of the question, up to where the answers part."""
    good: int
    bad: int

    @classmethod
    def of(cls, engine: Engine, question: str, answers: tuple[str, str]) -> VerdictTokens:
        """Find the tokens.

        Question and answer are tokenised in one piece, as the model has read them in training: what
        both answers begin with, such as a space, belongs to the question.

        Args:
            engine: started.
            question: that is put behind a chain.
            answers: the good one and the bad one.

        Raises:
            ConfigError: an answer is not one token.
        """
        good, bad = (engine.encode(question + answer) for answer in answers)
        num_common = 0
        while num_common < min(len(good), len(bad)) and good[num_common] == bad[num_common]:
            num_common += 1
        for answer, ids in zip(answers, (good, bad), strict=True):
            if len(ids) != num_common + 1:
                raise ConfigError(
                    f"generative.read=token: {answer!r} is {len(ids) - num_common} tokens of this "
                    f"model's tokenizer after {question!r}, and must be one for its probability to "
                    "be read. Set generative.read=text"
                )
        return cls(good[:num_common], good[num_common], bad[num_common])

    async def chance(
        self, engine: Engine, prompt: Sequence[int], prefix: Sequence[int]
    ) -> float | None:
        """P(good) / (P(good) + P(bad)) after the question; None from an engine that tells none.

        Args:
            engine: started.
            prompt: ids of the prompt.
            prefix: ids of the chain.

        Raises:
            EngineError: the engine gives no numbers.
        """
        found = await engine.logprobs(prompt, (*prefix, *self.question), (self.good, self.bad))
        if found is None:
            return None
        good, bad = found
        if not isfinite(max(good, bad)):
            raise EngineError(
                f"generative.read=token: the engine gives the log-probabilities {good} and {bad}, "
                "of which one must be finite. The model's weights are damaged, or overflow"
            )
        least = min(good - bad, 700.0) if good > bad else max(good - bad, -700.0)
        return 1 / (1 + exp(-least))
