r"""Finds parts of a critic's answer: text outside of `<think>` tags (thoughts), boxes, and verdict
words.

All functions run in time linear in the length of the text. Patterns have bounded repetitions, and
the content of a box or a conclusion is limited to `MAX_CONTENT` characters.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

MAX_CONTENT = 200
"""Maximum number of characters in a box or a conclusion. A longer one counts as never closed."""
_THINK = re.compile(r"<\s{0,3}(/?)\s{0,3}think(?:ing)?\s{0,3}>|◁(/?)think▷", re.IGNORECASE)
_BRACE = re.compile(r"\\{1,2}(?:boxed|fbox)\s{0,3}(?:\{|(\d{1,9}))|\\.|[{}]", re.DOTALL)
"""Pattern of an opening box, of another command or escaped brace, or of a brace."""
_WRAPPERS = re.compile(
    r"\\(?:boxed|fbox|mbox|emph|underline|bf|rm|sf|large|Large|(?:text|math)(?:bf|it|rm|tt|sf|sc)"
    r"|text|(?:text)?color\s?\{[A-Za-z!0-9]{1,30}\}|operatorname\*?)(?![A-Za-z])"
)
_SPACING = re.compile(r"\\(?:quad|qquad|[,;:! ])|~")
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2010": "-", "\u2011": "-"})
_QUOTES = " \t\r\n.,;:!?*$`'\"()[]{}#\u3002\u201c\u201d\u2018\u2019"
_SIGNS = " \ufe0f✓✔✅✗✘❌"
"""Signs that are removed from content that also contains words."""
_CORRECT = frozenset(
    (
        *("correct", "right", "正确", "對", "对", "正確", "correcto", "correcta", "richtig"),
        *("korrekt", "correcte", "juste", "correto", "correta", "верно", "правильно"),
        *("正しい", "맞음", "옳음", "✓", "✔", "✅", "checkmark"),
    )
)
_INCORRECT = frozenset(
    (
        *("incorrect", "not correct", "wrong", "不正确", "错误", "有误", "错", "錯誤", "不正確"),
        *("incorrecto", "incorrecta", "falsch", "inkorrekt", "erroné", "incorrecte", "faux"),
        *("fausse", "incorreto", "incorreta", "неверно", "неправильно"),
        *("誤り", "間違い", "틀림", "✗", "✘", "❌"),
    )
)
_REFUSAL = re.compile(
    r"\b(?:(?:I|we)(?:'m| am| are)? (?:sorry|(?:can(?:'|no)?t|unable to|not able to|won't) "
    r"(?:help|assist|provide|comply|complete|do|fulfil|verify|review|evaluate))|as an AI\b)"
    r"|抱歉|对不起|无法(?:提供|协助|回答|完成)|不能(?:提供|协助|回答)|lo siento|es tut mir leid",
    re.IGNORECASE,
)
_MAX_REFUSAL = 600
"""Number of characters at the start of an answer that are searched for a refusal."""


@dataclass(frozen=True)
class AnswerBox:
    r"""A closed `\boxed{}` in a text; its content is usually a verdict or a step number."""

    start: int
    end: int
    """Character index after the closing brace."""
    content: str
    """Content of the box, normalised by `normalize_box_content`."""
    is_negated: bool
    r"""True if there is a minus sign right before the box, as in $-\boxed{1}$."""


def split_thoughts(text: str) -> tuple[str, str, bool]:
    """Split an answer into the text outside of thoughts and the text inside of thoughts.

    A closing tag without an opening tag ends a thought that began in the prompt.

    Returns:
        Text outside of thoughts, text inside of thoughts, and True if the last thought was never
        closed.
    """
    outside: list[str] = []
    inside: list[str] = []
    place, is_thinking = 0, False
    for match in _THINK.finditer(text):
        is_closing = bool(match[1] or match[2])
        part, place = text[place : match.start()], match.end()
        if is_closing and not is_thinking:
            inside += [*outside, part]
            outside.clear()
        else:
            (inside if is_thinking else outside).append(part)
        is_thinking = not is_closing
    (inside if is_thinking else outside).append(text[place:])
    return "\n".join(outside), "\n".join(inside), is_thinking


def find_boxes(text: str) -> list[AnswerBox]:
    """Return the closed, non-empty boxes of a text, in order. Boxes in a box are left out."""
    closed: list[AnswerBox] = []
    openings: list[tuple[int, int] | None] = []
    for match in _BRACE.finditer(text):
        token = match[0]
        if token == "}" and openings:
            opening = openings.pop()
            if opening is None or match.start() - opening[1] > MAX_CONTENT:
                continue
            while closed and closed[-1].start > opening[0]:
                closed.pop()
            content = normalize_box_content(text[opening[1] : match.start()])
        elif match[1]:
            opening, content = (match.start(), match.start(1)), match[1]
        else:
            if token.endswith("{") and token != "\\{":
                openings.append((match.start(), match.end()) if token != "{" else None)
            continue
        if content:
            closed.append(
                AnswerBox(opening[0], match.end(), content, _is_negated(text, opening[0]))
            )
    return closed


def _is_negated(text: str, start: int) -> bool:
    """Return whether a minus sign precedes the box that starts at a character index.

    A hyphen or a bullet is not a minus sign.
    """
    before = text[max(0, start - 4) : start].replace("\u2212", "-")
    return before.endswith("-") and not before[:-1].endswith("-") and not before[-2:-1].isalnum()


def normalize_box_content(box_content: str) -> str:
    """Return the normalised content of a box: lower case, ASCII digits, no LaTeX or quotes."""
    text = unicodedata.normalize("NFKC", box_content[:MAX_CONTENT]).translate(_MINUS)
    text = _SPACING.sub(" ", _WRAPPERS.sub("", text))
    text = text.replace("\\_", "_").replace("{", "").replace("}", "").replace("\\", "")
    words = " ".join(text.split()).strip(_QUOTES).lower()
    return words.strip(_SIGNS) or words


def means_correct(normalized_content: str) -> bool | None:
    """Return True for content that means correct, False for incorrect, None for other content.

    Args:
        normalized_content: content that `normalize_box_content` has normalised.
    """
    if normalized_content in _CORRECT:
        return True
    return False if normalized_content in _INCORRECT else None


def is_refusal(text: str) -> bool:
    """Return whether a text without a verdict begins like a refusal."""
    return bool(_REFUSAL.search(text[:_MAX_REFUSAL].replace("\u2019", "'")))
