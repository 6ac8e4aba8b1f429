r"""Templates of critics' prompts, and functions that fill them with the texts of a solution.

Each built-in template except the last follows a published prompt, but in different words:

- `processbench`: paragraphs are tagged from `<paragraph_0>`, and the answer is an index in
  `\boxed{}`, -1 for none (ProcessBench, arXiv 2412.06559, QwenLM/ProcessBench).
- `lessons`: paragraphs are tagged from `<paragraph_1>`; each is analysed between tags until one is
  wrong, and a conclusion ends the answer (arXiv 2501.07301; sail-sg/ActivePRM has it in code).
- `step_verdicts`: steps are headed from `Step 1:`, and each gets `\boxed{correct}` or
  `\boxed{incorrect}` (ThinkPRM, arXiv 2504.16828, mukhal/ThinkPRM).
- `thinkprm`: the prompt with which ThinkPRM's models were trained, word for word. It does not
  specify the form of the verdicts, so it suits only models that were trained to write them.

The wording alone changes a critic's F1 by several points. To use the exact wording of a paper, give
its text as your own template with the placeholders {problem}, {steps} and {reference}, and name the
parser of its answers.

The texts of problems and steps come from models and data sets. Parts of them that look like a tag
or a heading of a prompt are escaped, so that no text can end a step early or imitate another step.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mclabel.core.errors import ConfigError, DataError
from mclabel.judge.critic.parse import FIRST_INDEX, check_parser

HASH_LENGTH = 16
"""Number of hexadecimal digits in the hash of a template."""


@dataclass(frozen=True)
class Template:
    """A prompt with placeholders, and the parser of the answers to it."""

    text: str
    """Text of the prompt. It contains {problem} and {steps}, and may contain {reference}."""
    parser: str
    """Name of the parser of answers. It also decides how the steps are numbered in the prompt."""
    reference_section: str | None = None
    """Section that replaces {reference} in `text` if there is a reference. It contains {reference}
    itself. Without a reference, {reference} is replaced by nothing. None means that the reference
    alone replaces {reference}, and that a reference must be given."""


def fill_critic_prompt(
    template: Template, problem: str, steps: Sequence[str], reference: str | None = None
) -> str:
    """Return the text of the user message that asks a critic about a solution.

    Args:
        template: built-in template, or a template made by `make_user_template`.
        problem: statement of the problem.
        steps: texts of the solution's steps, in order.
        reference: right solution or answer that is shown to the critic; None shows none.

    Raises:
        ConfigError: the template has no placeholder for the reference.
        DataError: there are no steps, or the template needs a reference and there is none.
    """
    if not steps:
        raise DataError("the solution has no steps, but a critic needs at least 1. Leave it out")
    has_place = "{reference}" in template.text
    if reference is not None and not has_place:
        raise ConfigError(
            "the template has no {reference}, but a reference was given. Add {reference} to the "
            "template, or set use_reference=false"
        )
    if reference is None and has_place and template.reference_section is None:
        raise DataError(
            "the template contains {reference}, but the problem has no reference. Give one, or "
            "remove {reference} from the template"
        )
    section = "" if reference is None else _escape_tags(reference.strip())
    if reference is not None and template.reference_section is not None:
        section = _fill_placeholders(template.reference_section, {"{reference}": section})
    return _fill_placeholders(
        template.text,
        {
            "{problem}": _escape_tags(problem.strip()),
            "{steps}": _format_numbered_steps(steps, template.parser),
            "{reference}": section,
        },
    )


def make_user_template(text: str, parser: str) -> Template:
    """Return a template with the user's own text.

    Args:
        text: text of the prompt, which contains {problem} and {steps}, and optionally {reference}.
            Other braces are kept.
        parser: name of the parser that reads the answers.

    Raises:
        ConfigError: a placeholder is missing, or there is no such parser.
    """
    check_parser(parser)
    if fault := describe_missing_placeholders(text):
        raise ConfigError(fault)
    return Template(text.strip(), parser)


def describe_missing_placeholders(text: str) -> str | None:
    """Return a message about placeholders that a template lacks; None if it lacks none."""
    missing = [placeholder for placeholder in ("{problem}", "{steps}") if placeholder not in text]
    if not missing:
        return None
    return (
        f"the template lacks {' and '.join(missing)}: it must contain {{problem}} and {{steps}}, "
        "which are replaced by the problem and the numbered steps. Add the missing placeholder"
    )


def hash_template(template: Template) -> str:
    """Return 16 hexadecimal digits that identify a template.

    The hash changes with the wording, the section of the reference, the parser, and the form in
    which steps are numbered.
    """
    sample = _format_numbered_steps(("a", "b"), template.parser)
    parts = [template.text, template.reference_section, template.parser, sample]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:HASH_LENGTH]


_PLACEHOLDER = re.compile(r"\{(?:problem|steps|reference)\}")


def _fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced; inserted texts are not searched again."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[0], match[0]), text)


def _format_numbered_steps(steps: Sequence[str], parser: str) -> str:
    """Return the steps with tags or headings that number them as this parser expects."""
    first = FIRST_INDEX[parser]
    if parser == "step_verdicts":
        return "\n".join(
            f"Step {index}: {_neutralize_step_headings(_escape_tags(step.strip()))}"
            for index, step in enumerate(steps, first)
        )
    return "\n\n".join(
        f"<paragraph_{index}>\n{_escape_tags(step.strip())}\n</paragraph_{index}>"
        for index, step in enumerate(steps, first)
    )


_TAG = re.compile(
    r"<(?=\s{0,3}/?\s{0,3}(?:paragraph|analysis|analyze|conclusion|step|math_problem|solution|"
    r"reference|think|thinking)(?![A-Za-z])[^<>]{0,20}>)|<(?=\|[A-Za-z_]{2,40}\|>)",
    re.IGNORECASE,
)
"""Pattern of the bracket that opens a tag of a prompt or a control token of a chat."""
_HEADING = re.compile(r"^[ \t#*>-]{0,8}step[ \t_]{0,3}(\d{1,6})[ \t*]{0,4}[:.)]\**", re.I | re.M)


def _escape_tags(text: str) -> str:
    """Return the text with the opening brackets of prompt tags replaced by `&lt;`."""
    return _TAG.sub("&lt;", text)


def _neutralize_step_headings(text: str) -> str:
    """Return a step's text without a heading such as `Step 2:` at its start.

    Later headings are put in brackets, so that they do not look like the start of another step.
    """
    first = _HEADING.match(text)
    return _HEADING.sub(r"[step \1]", text[first.end() :].lstrip() if first else text)


_REFERENCE = """[Reference]

{reference}

The reference is known to be right. The solution may take another way and still be right: compare \
what it states, not how it is written.

"""

_PROCESSBENCH = r"""Below are a mathematical problem and a solution that somebody proposes. The \
solution is divided into paragraphs. Tags around each paragraph give its index, and the indices \
begin at 0.

[Problem]

{problem}

{reference}[Solution]

{steps}

Examine the paragraphs in their order. Decide for each whether what it states follows from the \
problem and from the paragraphs before it, and redo its calculations. The answer is the index of \
the first paragraph with an error in it, or -1 if none has an error.

Explain your reasoning first. Then end with the answer, a single integer, in \boxed{}.""".replace(
    "\\\n", ""
)

_LESSONS = """Below are a mathematical problem and a solution that somebody proposes. The solution \
is divided into paragraphs. Tags around each paragraph give its number, and the numbers begin at 1.

[Problem]

{problem}

{reference}[Solution]

{steps}

Examine the paragraphs in their order, and write one analysis for each, in tags with the \
paragraph's number. In it, verify the reasoning and redo the calculations. If the paragraph has an \
error, explain it and how to mend it, do not analyse the paragraphs after it, and conclude with \
Incorrect. If you reach the end and no paragraph has an error, conclude with Correct.

Write nothing but analyses and a conclusion. Where, for example, the second paragraph is the first \
with an error, the form is:

<analysis_1>
(why paragraph 1 is right)
</analysis_1>
<analysis_2>
(what is wrong in paragraph 2)
</analysis_2>
<conclusion>
Incorrect
</conclusion>"""

_STEP_VERDICTS = r"""Below are a mathematical problem and a solution that somebody proposes, in \
numbered steps. The solution may be unfinished: examine the steps that are there.

[Problem]

{problem}

{reference}[Solution]

{steps}

Examine the steps in their order. For each, write its heading, such as "Step 1:", verify it, and \
end with a verdict on it: \boxed{correct} or \boxed{incorrect}. After the first step that is \
incorrect, stop.""".replace("\\\n", "")

_THINKPRM = """You are given a math problem and a proposed step-by-step solution:

[Math Problem]

{problem}

{reference}[Solution]

{steps}

Review and critique each step in the proposed solution to determine whether each step is correct. \
If the solution is incomplete, only verify the provided steps.""".replace("\\\n", "")

TEMPLATES: Mapping[str, Template] = {
    "processbench": Template(_PROCESSBENCH, "processbench", _REFERENCE),
    "lessons": Template(_LESSONS, "lessons", _REFERENCE),
    "step_verdicts": Template(_STEP_VERDICTS, "step_verdicts", _REFERENCE),
    "thinkprm": Template(_THINKPRM, "step_verdicts", _REFERENCE),
}
"""The built-in templates by name."""
