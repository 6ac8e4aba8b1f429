"""Words that decide whether a number beside them has the value that a formula gives it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mclabel.judge.symbolic.lexing import Token, TokenKind


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHANGE_BEFORE = _split_words(
    "times plus minus by over half twice thrice double triple quadruple than square squared root "
    "cube cubed average mean median quarter quarters third thirds fourth fourths fifth fifths "
    "sixth sixths eighth eighths tenth tenths ratio remainder percent percentage negative log ln "
    "sin cos tan factorial modulo mod base power multiple multiples reciprocal product difference "
    "quotient inverse opposite multiply divide subtract add to from step case part day week month "
    "year number chapter equation method option problem"
)
"""Words before a formula that change its value (`half of 6`), or that number an item (`Step 2`)."""
CHANGE_BEHIND = _split_words(
    "times plus minus hundred thousand million billion trillion dozen dozens pair pairs half "
    "halves quarter quarters third thirds fourths fifths sixths eighths tenths hundredths "
    "thousandths over divided multiplied out remainder rem base mod modulo more less fewer "
    "percent am pm noon midnight o'clock squared cubed factorial not"
)
"""Words that change the number before them (`3.5 million`, `5 more than`, `17 rem 2`, `10 pm`)."""
CHANGE_BEFORE_NUMBER = _split_words("in to through and of r")
"""Words that change a number only if another number follows: `3 in 5`, `3 and 1/2`, `17 r 2`."""
END = _split_words(
    "and so which that this then is are was were we he she they it because since or but where who "
    "while will would has have had left leaving means equals equal gives giving therefore thus "
    "hence also with as at on let let's now he's after before until again too both each all can "
    "there what how the one two if when in to through of r for yields yield yielding get gets got "
    "obtain gives give makes make becomes results shows leads implies so"
)
"""Words after a number that end the formula. Other words may be the number's unit."""
CONVERSIONS = frozenset(
    (2, 3, 4, 5, 7, 8, 10, 12, 14, 16, 20, 24, 25, 28, 30, 31, 36, 48, 50, 52, 60, 64, 100, 128,
     144, 168, 180, 360, 365, 366, 400, 1000, 1440, 1760, 2000, 3600, 5280, 10_000, 1_000_000)
)  # fmt: skip
"""Factors by which units are converted, such as 60 for seconds and minutes."""

SOLVING = _split_words(
    "subtract subtracting add adding divide dividing multiply multiplying both sides side by from "
    "to of the this that simplify simplifies simplifying solve solving for so then thus therefore "
    "hence we get gives giving have obtain find now next finally step equation each term terms "
    "like combine combining distribute distributing expand expanding isolate isolating move "
    "moving left right hand rearrange rearranging which implies and it us becomes yields means "
    "can be rewritten as is in results value our variable constant constants let's let us into "
    "out on a an following expression further more taking take root square squaring factor "
    "factoring factored factors factorization last cancel canceling collect collecting do "
    "operation inside parentheses unknown number with continue need will calculate calculating "
    "result"
)
"""Words that may occur between an equation and the next equation of its solution."""
ROUNDED = re.compile(
    r"\bround|\bwhole\b|\binteger|\bnearest\b|\bfull\b|\bcomplete|\bfloor|\bceil|\bapprox"
    r"|\babout\b|\bremainder|\bquotient|\bestimat|\broughly\b|\bleft over\b|\bleftover|\bpartial\b"
    r"|\bat (?:most|least)\b|\bfraction",
    re.I,
)
"""Pattern of words that show that whole numbers in a step may be rounded fractions."""
DENIED = re.compile(
    r"\b(?:not|cannot|[a-z]{2,6}n['’]t|contradict(?:s|ion|ory)?|incorrect(?:ly)?|wrong(?:ly)?"
    r"|false|mistakes?|errors?|impossible|invalid|inconsistent|discrepancy|misunderstanding"
    r"|fails?|absurd|unequal|never|oops|wait|untrue|no solutions?"
    r"|too (?:high|low|large|small|big|many|few|much))\b|≠|\\neq?\b|\\not\b|!=|[✗✘×]\s*$",
    re.IGNORECASE,
)
"""Pattern of words around an equality by which its step denies the equality."""
TESTED = re.compile(
    r"\b(?:if|suppose|supposing|assumes?|assumed|assuming|try|trying|tried|tests?|testing|checks?"
    r"|checking|guess(?:es)?|verify|verifying|satisf(?:y|ies|ying)|candidates?|whether|trial"
    r"|instead of|should be|should have been|would be|mistaken(?:ly)?|re-?evaluate"
    r"|plug(?:ging)?)\b|\?",
    re.IGNORECASE,
)
"""Pattern of words before an equality, in its sentence, that mark a test or an assumption."""
REMAINDERS = re.compile(r"\\[pb]?mod\b|\bmod(?:ulo|ular)?\b|≡|\\equiv\b|\bcongruences?\b", re.I)
"""Pattern of tokens and words that show that "equal" may mean "has the same remainder"."""
OTHER_BASES = re.compile(
    r"\bbases?[ -](?:\$|\\\()?(?:\d|b\b|n\b|two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve|sixteen)|\bbinary\b|\bhexadecimal\b|\boctal\b|\bnumber bases?\b|[0-9)}]_\{?[0-9]",
    re.I,
)
"""Pattern of words that show that numbers may be written in another base than ten."""
_OTHER_SIGNS = re.compile(
    r"\\(?:star|oplus|otimes|diamond|spadesuit|clubsuit|heartsuit|Box|dagger|odot)\b"
    r"|\bcryptarithm",
    re.I,
)
_IN_ONE_SENTENCE = [
    (re.compile(first, re.I), re.compile(then, re.I))
    for first, then in (
        (r"\boperations?\b", r"defined?|denote|means?|symbol|such that"),
        (r"\bdefine[sd]?\b", r"[*@#&⊕◦∗★]"),
        (r"\b(?:insert|add|plac|put|remov)", r"\bparenthes[ei]s\b"),
        (r"\bdigits?\b", r"\bletters?\b"),
    )
]


def redefines_notation(problem: str) -> bool:
    """Return whether a problem text defines its own operators or digits, as in `a # b = 2a`."""
    if _OTHER_SIGNS.search(problem):
        return True
    return any(
        (begun := first.search(sentence)) is not None and then.search(sentence, begun.end())
        for sentence in problem.split(".")
        for first, then in _IN_ONE_SENTENCE
    )


_MAX_WORDS = 5
"""Maximum number of words in a unit."""


class UnreadableFormula(Exception):
    """Raised if a formula may continue in an unsupported form, so that its side is not read."""


def read_unit_words(tokens: Sequence[Token], start: int, end_index: int) -> tuple[set[str], int]:
    """Return the words of the unit after a number, and the index of the token after the unit.

    Args:
        tokens: tokens of the step.
        start: index of the first token after the number.
        end_index: index of the token at which the side must end.

    Raises:
        UnreadableFormula: a word changes the value of the number before it.
    """
    at = start
    names: set[str] = set()
    while at < len(tokens) and tokens[at].kind is TokenKind.WORD:
        pieces = tokens[at].text.lower().split()
        if any(piece in CHANGE_BEHIND for piece in pieces):
            if at == start or at < end_index < len(tokens):
                raise UnreadableFormula
            break
        if (pieces and pieces[0] in END) or at - start == _MAX_WORDS:
            break
        names.update(pieces)
        at += 1
    return names, at


def is_number_among_next_two(tokens: Sequence[Token], token_index: int) -> bool:
    """Return whether one of the two tokens after an index is a number or a word such as `half`."""
    return any(
        token.kind is TokenKind.NUMBER or token.text.lower() in ("half", "third", "quarter")
        for token in tokens[token_index + 1 : token_index + 3]
    )


def skip_unit_power(tokens: Sequence[Token], token_index: int) -> tuple[int, Token | None]:
    """Return the index after the power of a unit (`cm^2`, `cm^{2}`), and the token there.

    If there is no power at `token_index`, the index is unchanged. At the end, the token is None.
    """
    if token_index < len(tokens) and tokens[token_index].text == "^":
        if token_index + 1 < len(tokens) and tokens[token_index + 1].kind is TokenKind.NUMBER:
            token_index += 2
        elif (
            token_index + 3 < len(tokens)
            and tokens[token_index + 1].text == "{"
            and tokens[token_index + 3].text == "}"
        ):
            token_index += 4
        else:
            raise UnreadableFormula
    return token_index, tokens[token_index] if token_index < len(tokens) else None


def read_single_number(parts: Sequence[str]) -> str | None:
    """Return the digits of a side that is a single number; None for other sides.

    Brackets, a minus and a percent sign around the number are allowed.
    """
    body = list(parts)
    while body and body[0] in ("-", "(", "{") and len(body) > 1:
        body = body[1:]
    while body and body[-1] in ("%", ")", "}"):
        body = body[:-1]
    return body[0] if len(body) == 1 and body[0][0] in "0123456789." else None
