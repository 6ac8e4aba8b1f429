r"""Normalises answers, so that answers that differ only in typesetting have the same text.

The result consists of ASCII, LaTeX commands and a few signs (`≤ ≥ ≠ ∪ ∩ ∈ ∞ ± ∓ ∅ π ° ℝ`), which
replace their LaTeX, Unicode and ASCII spellings. Runs of spaces become one space, which
distinguishes `1 1/2` from `11/2`. `$` remains only as a currency sign. Every pass takes time
proportional to the length.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from mclabel.answers.reading.dates import read_date
from mclabel.answers.reading.languages import translate_to_english

MAX_LENGTH = 1000
"""Maximum number of characters of an answer that is parsed. Longer answers are compared as text."""

_PLAIN = re.compile(r"[+-]?\d+(?:[./]\d+)?")

_GROUPED_OTHERWISE = re.compile(r"[+-]?\d{1,3}(?:(?:_\d{3})++|(?:'\d{3})++)(?:\.\d+)?")
"""A number with groups of three digits as in Switzerland and in programs: 1'234'567, 1_234_567."""

_POINTS_THEN_COMMA = re.compile(r"(?<![\d.,])(\d{1,3})((?:\.\d{3})++),(\d{1,2})(?![\d.,]*\d)")
"""A number with points between groups and a decimal comma, as in most of Europe: 1.234,50."""


def normalize(answer: str) -> str:  # noqa: C901  (a list of independent rewrites)
    """Return the normalised text of an answer, without typesetting.

    An answer is returned unchanged if it or its normalised text is longer than `MAX_LENGTH`. It is
    not truncated, because different answers may begin with the same text.
    """
    text = answer.strip()
    if (_PLAIN.fullmatch(text) and text.isascii()) or len(text) > MAX_LENGTH:
        return text
    if ("_" in text or "'" in text) and _GROUPED_OTHERWISE.fullmatch(text):
        return text.replace("_", "").replace("'", "")
    date = read_date(text)
    if date is not None:
        return " ".join((*date.words[:1], *date.words[2:], date.words[1]))
    if "," in text and "." in text:
        text = _POINTS_THEN_COMMA.sub(lambda m: f"{m[1]}{m[2].replace('.', '')}.{m[3]}", text)
    text = translate_to_english(text)
    if not text.isascii():
        text = _convert_to_ascii(text)
    text = _remove_math_dollars(text)
    if "\\\\" in text:
        text = _replace_double_backslashes(text)
    if text.endswith("\\"):
        text = text.rstrip("\\ ")
    if "~" in text:
        text = text.replace("~", " ")
    if "\\" in text or "{" in text or "^" in text:
        text = _canonicalize_latex(text)
    if "C_" in text or "choose" in text or "(" in text:
        text = _CHOOSE.sub(_replace_binomial, text)
    if "or" in text or "and" in text:
        text = _GLUED.sub(r" \1 ", text)
    if "&" in text and "\\begin" not in text:
        text = text.replace("&", " ")
    if "**" in text:
        text = text.replace("**", "^" if _POWER_STARS.search(text) else " ")
    text = _TIMES_TEN.sub("*", text) if "10" in text else text
    if "=" in text:
        text = text.replace("<=", "≤").replace(">=", "≥").replace("!=", "≠")
    if any(map(text.__contains__, "\"`'“”")):
        text = _RULES_OUT.sub(" ", text)
    text = " ".join(text.split())
    return text if len(text) <= MAX_LENGTH else answer.strip()


def remove_spaces(normalized: str) -> str:
    """Remove spaces, except between two digits or two letters, where they carry meaning."""
    return _FREE_SPACE.sub("", normalized) if " " in normalized else normalized


_FREE_SPACE = re.compile(r"(?<=\d) (?!\d)|(?<=[A-Za-z]) (?![A-Za-z])|(?<![A-Za-z\d]) ")
_TIMES_TEN = re.compile(r"(?<=\d)\s*+[xX]\s*+(?=10\s*+\^)")
_POWER_STARS = re.compile(r"[\w)\]}]\*\*[\w({\[+-]")
_RULES_OUT = re.compile(r"[\"`“”]|(?<![\w})'])'|'(?!\w)(?<![\w})']')")

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "‒": "-", "﹣": "-", "－": "-",
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "•": "*", "✕": "*", "∗": "*", "÷": "/", "∕": "/",
    "⁄": "/", "≦": "≤", "⩽": "≤", "≧": "≥", "⩾": "≥", "⋃": "∪", "⋂": "∩", "∊": "∈", "∣": "|",
    "∶": ":", "º": "°", "˚": "°", "ø": "∅", "Ø": "∅", "⌀": "∅", "𝜋": "π", "ϕ": "φ", "…": "...",
    "⋯": "...", "’": "'", "‘": "'", "′": "'", "，": ",", "。": ".", "≈": " ≈ ", "⟨": "\\langle ",
    "⟩": "\\rangle ", "→": "\\to ", "⟶": "\\to ", "∠": "\\angle ", "Å": " angstrom",
    "\u212b": " angstrom", "△": "\\triangle ",
    "≡": "\\equiv ", "∑": "\\sum ", "∏": "\\prod ", "∫": "\\int ",
    "〈": "\\langle ", "〉": "\\rangle ", "∛": "\\sqrt[3]", "∜": "\\sqrt[4]",
    "✓": "", "✔": "", "✅": "", "■": "", "∎": "", "□": "", "\ufe0f": "",
    "℃": "°C", "℉": "°F", "￥": "¥", "＄": "$", "％": "%", "ℝ": "ℝ", "ℤ": "\\mathbb{Z}",
    "ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}", "\u00a0": " ",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta",
    "λ": "lambda", "μ": "mu", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ω": "omega",
    "Δ": "Delta", "Σ": "Sigma", "Ω": "Omega", "Γ": "Gamma", "Θ": "Theta", "Φ": "Phi",
}  # fmt: skip
_KEPT = frozenset("≤≥≠∪∩∈∉∞±∓∅π°ℝ≈€£¥√")
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_TABLE = str.maketrans({**_SIGNS, **{k: f"\\{v} " for k, v in _GREEK.items()}})
_SCRIPT_RUN = re.compile(f"([{''.join(_SUPERSCRIPTS)}]+)|([{''.join(_SUBSCRIPTS)}]+)")
_VULGAR = re.compile(r"(\d?)([¼½¾⅐-⅞↉])")
_OVERLINE = re.compile("((?:\\d[\u0304\u0305])+)")
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-zπ])")


def _convert_to_ascii(text: str) -> str:
    """Replace Unicode digits, signs, fractions, roots and scripts by their normalised spellings."""
    text = _VULGAR.sub(_replace_fraction, text)
    text = _SCRIPT_RUN.sub(_replace_super_or_subscripts, text)
    text = _OVERLINE.sub(lambda m: f"\\overline{{{re.sub('[^0-9]', '', m[1])}}}", text)
    text = text.translate(_TABLE)
    text = "".join(map(_convert_to_compatibility_form, text)).translate(_TABLE)
    return _ROOT.sub(r"\\sqrt{\1}", text).replace("√", "\\sqrt")


def _replace_fraction(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[2]).partition("\u2044")
    return f"{match[1]}\\frac{{{top}}}{{{bottom}}}"


def _replace_super_or_subscripts(match: re.Match[str]) -> str:
    if match[1]:
        return f"^{{{''.join(_SUPERSCRIPTS[c] for c in match[1])}}}"
    return f"_{{{''.join(_SUBSCRIPTS[c] for c in match[2])}}}"


@lru_cache(maxsize=4096)
def _convert_to_compatibility_form(char: str) -> str:
    """Return the Unicode compatibility form of a character.

    It may have several characters, and is empty for an invisible character.
    """
    if char.isascii() or char in _KEPT:
        return char
    return "".join(map(_convert_digit_to_ascii, unicodedata.normalize("NFKC", char)))


def _convert_digit_to_ascii(char: str) -> str:
    """Return a character, or the ASCII digit for a digit of another script.

    The result is empty for control, bidi and zero-width characters.
    """
    if char.isascii() or char in _KEPT:
        return char
    if unicodedata.category(char) in ("Cf", "Cc", "Cn", "Mn"):
        return ""
    digit = unicodedata.digit(char, None)
    return char if digit is None else str(digit)


_CURRENCY = re.compile(r"\$\s?(?=-?(?:\d|\.\d))")


def _remove_math_dollars(text: str) -> str:
    """Remove each `$` that delimits a formula, and keep each `$` that is a currency sign."""
    if "$" not in text:
        return text
    bare = text.replace("\\$", "")
    count = bare.count("$")
    if count % 2 and _CURRENCY.match(bare) and count == 1:
        return text.replace("\\$", "$")
    return text.replace("\\$", "\x01").replace("$", " ").replace("\x01", "$")


_DROPPED = (
    "left right bigl bigr Bigl Bigr biggl biggr Biggl Biggr big Big bigg Bigg middle displaystyle "
    "textstyle scriptstyle limits nolimits rm bf it sf tt mathstrut phantom ensuremath boldmath "
    "large Large normalsize bigm"
).split()
_SPACES = "quad qquad , ; : > ~ thinspace enspace hspace space hfill newline".split()
_SAME = {
    "dfrac": "\\frac", "tfrac": "\\frac", "cfrac": "\\frac", "dbinom": "\\binom",
    "tbinom": "\\binom", "cdot": "*", "times": "*", "ast": "*", "bullet": "*", "div": "/",
    "le": "≤", "leq": "≤", "leqslant": "≤", "leqq": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥",
    "geqq": "≥", "ne": "≠", "neq": "≠", "lt": "<", "gt": ">", "cup": "∪", "bigcup": "∪",
    "cap": "∩", "in": "∈", "notin": "∉", "infty": "∞", "pm": "±", "mp": "∓", "emptyset": "∅",
    "varnothing": "∅", "pi": "π", "degree": "°", "colon": ":", "mid": "|", "vert": "|",
    "lvert": "|", "rvert": "|", "|": "|", "ldots": "...", "dots": "...", "cdots": "...",
    "dotsc": "...", "%": "%", "&": "&", "#": "#", "lbrace": "\\{", "rbrace": "\\}", "lbrack": "[",
    "rbrack": "]", "(": " ", ")": " ", "[": " ", "]": " ", "approx": "≈", "simeq": "≈",
    "implies": " ",
    "blacksquare": " ", "square": " ", "Box": " ", "qed": " ", "checkmark": " ",
    "rightarrow": "\\to ", "longrightarrow": "\\to ", "Z": "\\mathbb{Z}",
    "Rightarrow": " ", "therefore": " ", "varphi": "\\phi ",
    "varepsilon": "\\epsilon ", "land": " and ", "lor": " or ", "wedge": " and ", "vee": " or ",
    "lang": "\\langle ", "rang": "\\rangle ", "prime": "'", "euro": "€", "pounds": "£",
    "textdollar": "$", "textdegree": "°", "textpercent": "%", "R": "ℝ", "Reals": "ℝ",
    "reals": "ℝ", "arcsin": "\\arcsin ", "underline": "", "_": "_", "!": "", "colorbox": "",
}  # fmt: skip
_ALPHABETS = "mathrm mathbf mathit mathsf mathtt mathcal boldsymbol bm pmb operatorname vec".split()
_TEXTS = "text textbf textit textrm textsf texttt mbox hbox textnormal emph textup".split()
_COMMANDS = {
    **dict.fromkeys(_DROPPED, ""),
    **dict.fromkeys(_SPACES, " "),
    " ": " ",
    **_SAME,
    **dict.fromkeys(_ALPHABETS, "\\mathrm"),
    **dict.fromkeys(_TEXTS, "\\text"),
}
_COMMAND = re.compile(r"\\([A-Za-z]+\*?|.)\s*", re.DOTALL)
_DOT_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_ROW_GAP = re.compile(r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in|mu)\s*\]")
_THOUSANDS_MARKS = re.compile(r"(?<=\d)(?:\{,\}|,\s*\\!|\\!\s*,|\\,(?=\d{3}))\s*(?=\d)")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_ALPHABET = re.compile(r"\\mathrm\s*(?:\{([^{}]*)\}|([A-Za-z0-9]))")
_UNIT_VECTOR = re.compile(
    r"\\hat\s?\{?\s?(?:\\(?:mathbf|mathrm|bm|boldsymbol)\s?\{?\s?)?"
    r"\\?([ijk])(?:math)?(?![A-Za-z])[ }]{0,3}"
)
_NOT_IN = re.compile(r"\\not\s*(?:\\in(?![A-Za-z])|∈)")
_LAYOUT = re.compile(
    r"\\(begin|end)\s*\{(?:(align|gather|split|gathered|eqnarray|alignat)\*?|(?:equation|center|"
    r"displaymath|math)\*?)\}"
)
"""Begin or end of an environment that aligns several lines (group 2) or shows one formula."""
_BLACKBOARD = re.compile(r"\\mathbb\s?\{?\s?([A-Z])(?![A-Za-z])\s?\}?")
_DEGREE = re.compile(r"(?<!\s)\s*+\^\s*+(?:\{\s*+(?:\\circ|o|∘)\s*+\}|\\circ|o\b|∘)|\\circ\b")
_SINGLE = re.compile(r"(?<!\\)\\(?:\\\\)*+(?!\\)")
"""A run of an odd number of backslashes."""
_DOUBLED_COMMAND = re.compile(r"\\\\(?=[A-Za-z]{2})")
_GLUED = re.compile(r"(?<=[\d)\]}])(or|and)(?=[\d(\[{\\]|[A-Za-z] ?[=(<>≤≥])")
_CHOOSE = re.compile(
    r"(?<![\w}])(?:(?:\{ ?\} ?)?_\{?(\d{1,4}|[a-z])\}? ?C_\{?(\d{1,4}|[a-z])\}?|"
    r"\^\{?(\d{1,4}|[a-z])\}?C_\{?(\d{1,4}|[a-z])\}?|"
    r"(\d{1,4}) {1,3}choose {1,3}(\d{1,4})|"
    r"(?:binomial|binom|comb|nCr)\( ?(\w{1,4}) ?, ?(\w{1,4}) ?\)|"
    r"C_\{?(\d{1,4})\}?\^\{?(\d{1,4})\}?)"
)
"""A spelling of a binomial coefficient other than `\\binom`: `5C2`, `5 choose 2`, `nCr(5, 2)`."""
_GREEK_UNIT = re.compile(
    r"(?<=[\d} ])([kMm]?)\\(?:(mu) ?(m|s|g|F|C|A|L|l|V|T|W|J|N|Pa|H|mol)|Omega)(?![A-Za-z{(_^])"
)
_PRIME = re.compile(r"\^\s?\{?\s?((?:\\prime\s?){1,3}+)\}?")
_SPACERS = re.compile(r"\\(?:hspace|vspace|phantom|hphantom|vphantom|label|tag)\*?\s*\{[^{}]*\}")
_BRACED_SIGN = re.compile(r"(?<![\^_A-Za-z}])\{\s*([:,=<>+\-*/°])\s*\}")
_EMPTY_BASE = re.compile(r"(?<![A-Za-z}\]])\{\s*+\}\s*+(?=\^)")
"""An empty base of a power, as in `{ }^{\\circ} C`."""
_BEFORE_OVER = r"((?:[^{}\\]|\\(?!over(?![A-Za-z])))*+)"
_SHORT_FRACTIONS = (
    (re.compile(r"\\(frac|binom)\s*(\d)\s*(\d)"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\(frac|binom)\s*([\dπ]|(?<=\s)[A-Za-z])\s*([A-Za-z\dπ])"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\(frac|binom)\s*([A-Za-z\dπ])\s*\{"), r"\\\1{\2}{"),
    (re.compile(r"(\\(?:frac|binom)\s*\{[^{}]*\})\s*([A-Za-z\dπ])"), r"\1{\2}"),
    (re.compile(r"\\frac\s*\{"), r"\\frac{"),
    (re.compile(r"(\\frac\{[^{}]*\})\s+\{"), r"\1{"),
)
_SHORT_ROOT = re.compile(r"\\sqrt\s*([A-Za-z\dπ])")
_OVER = (
    (re.compile(rf"\{{{_BEFORE_OVER}\\over(?![A-Za-z])([^{{}}]*+)\}}"), r"\\frac{\1}{\2}"),
    (re.compile(rf"^{_BEFORE_OVER}\\over(?![A-Za-z])([^{{}}]*+)$"), r"\\frac{\1}{\2}"),
)


def _canonicalize_latex(text: str) -> str:  # noqa: C901, PLR0912  (a list of independent rewrites)
    """Replace LaTeX commands for spacing, sizes and fonts, and synonyms, by canonical spellings.

    Before each pattern, a substring test that takes a tenth of the time checks whether the pattern
    can match.
    """
    if "\\\\" in text:
        text = _ROW_GAP.sub(r"\\\\ ", text)
    if "," in text or "!" in text:
        text = _THOUSANDS_MARKS.sub(",", text)
    if "{ }" in text or "{}" in text:
        text = _EMPTY_BASE.sub("", text)
    if "." in text:
        text = _DOT_DELIMITER.sub("", text)
    if any(map(text.__contains__, ("space", "phantom", "\\label", "\\tag"))):
        text = _SPACERS.sub(" ", text)
    if "^" in text or "\\circ" in text:
        text = _DEGREE.sub("°", text)
    if "\\prime" in text:
        text = _PRIME.sub(lambda m: "'" * m[1].count("p"), text)
    if "\\hat" in text:
        text = _UNIT_VECTOR.sub(r"\1", text)
    if "\\not" in text:
        text = _NOT_IN.sub("∉", text)
    if "\\begin" in text:
        text = _LAYOUT.sub(lambda match: f"\\{match[1]}{{aligned}}" if match[2] else " ", text)
    if "\\mathbb" in text:
        text = _BLACKBOARD.sub(
            lambda match: "ℝ" if match[1] == "R" else f"\\mathbb{{{match[1]}}}", text
        )
    text = _COMMAND.sub(_replace_latex_command, text)
    for _ in range(4):
        if "\\text" not in text and "\\mathrm" not in text:
            break
        text = _ALPHABET.sub(lambda m: m[1] if m[1] is not None else m[2], text)
        text = _TEXT.sub(r" \1 ", text)
    if "{" in text:
        text = _BRACED_SIGN.sub(r"\1", text)
    if "\\frac" in text or "\\binom" in text:
        for pattern, spelling in _SHORT_FRACTIONS:
            text = pattern.sub(spelling, text)
    if "\\sqrt" in text:
        text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    if "\\over" in text:
        for pattern, spelling in _OVER:
            text = pattern.sub(spelling, text)
    if "\\mu" in text or "\\Omega" in text:
        text = _GREEK_UNIT.sub(
            lambda match: f" {match[1]}u{match[3]}" if match[2] else f" {match[1]}ohm", text
        )
    return _DEGREE.sub("°", text) if "^" in text or "\\circ" in text else text


def _replace_binomial(match: re.Match[str]) -> str:
    top, bottom = [part for part in match.groups() if part]
    return f"\\binom{{{top}}}{{{bottom}}}"


def _replace_double_backslashes(text: str) -> str:
    r"""Replace doubled backslashes by single ones, because LaTeX is sometimes escaped twice.

    In a matrix, `\\` ends a row and is kept. Elsewhere it has no meaning in an answer.
    """
    if not _SINGLE.search(text):
        return text.replace("\\\\", "\\") if _DOUBLED_COMMAND.search(text) else text
    return text if "\\begin" in text else _DOUBLED_COMMAND.sub(r"\\", text)


def _replace_latex_command(match: re.Match[str]) -> str:
    name = match[1]
    replacement = _COMMANDS.get(name)
    if replacement is not None:
        return replacement
    if name.isdigit():
        return name
    if not name[-1:].isalpha():
        return match[0]
    follows = match.string[match.end() : match.end() + 1]
    return f"\\{name} " if follows.isalpha() else f"\\{name}"
