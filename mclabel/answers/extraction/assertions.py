"""Extracts an answer that the last sentence of a text asserts without a mark: `he has 12 left`.

A number counts as asserted under two conditions. It follows a verb (`there are 3 apples`) or is the
subject (`8 litres remain`), and every other number of the sentence belongs to something else (`in
the 2 baskets`). If a sentence is less clear, the functions return None. A sentence is first split
into words, numbers and signs.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from mclabel.answers.extraction.conclusions import is_value_denied
from mclabel.answers.reading.numerals import (
    BEGINNINGS,
    MAX_WORDS,
    PARTS,
    SCALES,
    is_number_word,
    no_number_word_follows,
    parse_number_at,
    split_words,
)

_MAX_SENTENCE = 500
_BOUNDARIES = (". ", "\n", "! ", "? ", ".** ", "\\] ", ".) ")
"""Strings that end a sentence. A displayed formula ends one, too."""
_TITLES = ("Mr", "Mrs", "Ms", "Dr")
_DIVISION, _QUOTIENT = re.compile(r"(?<=\d)/(?=[A-Za-z])"), re.compile(r"\d/\d")
_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
_CIRCLE = re.compile(r"\^(?:\{\\circ\}|\\circ(?![a-z]))")
_MAX_PLEASANTRIES = 3
_BOLD_VALUE = re.compile(r"\*\*([-−]?[$€£]?\d[\d,.]*+%?+(?: [A-Za-z]{1,15})?)[.!]?\*\*")
_RECKONED = re.compile(r"[+*/^<>_\\{}=×÷·≈\x00]|\s[-−]\s")
"""Pattern of signs that a formula has. In a sentence with such a sign, only the number after the
last `=` may be an asserted value."""
_PLEASANTRIES = ("i hope", "hope ", "let me know", "if you need", "if you have", "please ")
_CONCLUDING = frozenset(
    "so therefore thus hence leaving meaning giving making leading resulting yielding".split()
)
_SUBORDINATE = frozenset(
    "if when while because since after before that which who where although as until unless "
    "whereas than once though by assuming given whose".split()
)
_VERBS = frozenset(
    "is are was were equals has have had cost costs need needs needed get gets got make makes "
    "made earn earns earned spend spends spent save saves saved pay pays paid receive receives "
    "received use uses used take takes took score scores scored sell sells sold buy buys bought "
    "eat eats ate drink drinks drank weigh weighs weighed totals totaled equal travel travels "
    "traveled travelled walk walks walked run runs ran drive drives drove read reads contain "
    "contains contained require requires required produce produces produced collect collects "
    "collected give gives gave leaves lose loses lost gain gains gained win wins won grow grows "
    "grew own owns owned hold holds held raise raises raised charge charges charged work works "
    "worked owe owes owed keep keeps kept lasts lasted cover covers covered plant plants planted "
    "bake bakes baked be been wrote writes found finds caught catches yield yields "
    "there's it's that's".split()
)
_WITH_TWO_OBJECTS = frozenset(
    "take takes took taken cost costs give gives gave pay pays paid leaves left owe owes owed "
    "charge charges charged earn earns earned save saves saved".split()
)
_PRONOUNS = frozenset("me you him her it us them".split())
_HE = frozenset("he she it they we i you so".split())
"""Words that begin a new clause after "and"."""
_MODALS = frozenset("will would can could should must may might did does do".split())
_BEFORE_INFINITIVE = frozenset("need needs needed has have had going able required".split())
_ADVERBS = frozenset(
    "only now still exactly about approximately around roughly just also then each a an total sum "
    "additional extra another left over up".split()
)
"""Words between a verb and its number: `has only 3`, `is left with 3`, `ends up with 3`."""
_WITH = frozenset("left up end ends ended start starts started begin begins began".split())
_SUMMED = frozenset("total sum".split())
_BELONGING = frozenset(
    "in of over for per on from with to at by within during between through into out after before "
    "than the these those all every each his her their its our my both other first last next "
    "across among remaining original same a an using".split()
)
"""Words before a number that is not the answer: `in the 2 baskets`, `a 42 kg bag`."""
_SCALES = frozenset("hundred thousand million billion".split())
_RELATIVE = frozenset("more fewer less times".split())
_ARE = frozenset("are were be".split())
_JOINTS = frozenset(("and", ",", "or"))
_ASSIGNED = re.compile(
    r"(?<![\w\\=])([A-Za-z](?:_\{?\d\}?)?)\s?=\s?"
    r"(-?\s?(?:\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?|\\[dt]?frac\{-?\d+\}\{\d+\}))(?![\w^\\/*+(={])"
)
_BETWEEN = re.compile(r"\s*+(?:[,;]\s*+(?:and|or)?+|and|or)\s*+")
_DELIMITERS = re.compile(r"\$|\\[()\[\]]")


def _strip_markup(sentence: str) -> str:
    """Remove the markup of a sentence and write its fractions as a/b and its degrees as °."""
    text = sentence.replace("**", "")
    if "\\" in text:
        text = text.replace("\\$", "$").replace("\\%", "%")
        text = _FRACTION.sub(r"\1/\2", _CIRCLE.sub("°", text))
    return text


def find_last_sentence(text: str) -> str:
    """Return the last sentence of a text, at most its last `_MAX_SENTENCE` characters.

    Pleasantries after it, such as `I hope this helps`, are ignored.
    """
    text = text[-2 * _MAX_SENTENCE :].rstrip()
    if "M" in text or "D" in text:
        for title in _TITLES:
            text = text.replace(f"{title}. ", f"{title} ")
    end = len(text)
    for _ in range(_MAX_PLEASANTRIES):
        low = max(0, end - _MAX_SENTENCE)
        place, begin = -1, low
        for mark in _BOUNDARIES:
            position = text.rfind(mark, begin, end)
            if position >= 0:
                place, begin = position, position + len(mark)
        sentence = text[begin:end].strip()
        if place < 0 or (sentence and not sentence.lower().startswith(_PLEASANTRIES)):
            break
        end = place + 1
    return sentence


def find_closing_assignments(sentence: str) -> str | None:
    """Return the assignments at the end of a sentence, such as `x = 3 and y = 4`.

    The result is None if there are fewer than two.
    """
    if sentence.count("=") < 2:
        return None
    sentence = _DELIMITERS.sub("", sentence)
    assignments = [*_ASSIGNED.finditer(sentence)]
    if len(assignments) < 2 or sentence[assignments[-1].end() :].strip(" .!*"):
        return None
    first = assignments[-1]
    for before, after in reversed([*pairwise(assignments)]):
        if not _BETWEEN.fullmatch(sentence, before.end(), after.start()):
            break
        first = before
    if first is assignments[-1] or is_value_denied(sentence, first.start()):
        return None
    return sentence[first.start() : assignments[-1].end()]


def find_bold_value(sentence: str) -> str | None:
    """Return the only bold number of a sentence; None if there is none or there are several."""
    if "**" not in sentence:
        return None
    values = {match[1].strip() for match in _BOLD_VALUE.finditer(sentence)}
    return values.pop() if len(values) == 1 else None


def find_asserted_value(sentence: str) -> str | None:
    """Return the number or the list of numbers that a sentence asserts; None if it is not clear.

    Args:
        sentence: a sentence in which each formula is replaced by its result.
    """
    text = _strip_markup(sentence)
    if text.endswith(":"):
        return None
    left, equals, right = text.rpartition("=")
    if equals:
        return None if left.endswith(("!", "<", ">")) else _find_value_after_equals(right)
    if _RECKONED.search(text):
        return None
    read = TokenizedSentence(text)
    if not read.numbers:
        return None
    several = _find_final_list(read)
    if several is not None:
        return several
    for among in (_find_main_clause_numbers(read), read.numbers):
        roles = {i: _classify_number_role(read, i) for i in among}
        candidates = [i for i, role in roles.items() if role == "verb"]
        candidates = candidates or [i for i, role in roles.items() if role == "subject"]
        if len(candidates) == 1 and "other" not in roles.values():
            if read.is_denied(candidates[0]) or _has_later_clause(read, candidates[0]):
                return None
            return _read_number_with_unit(read, candidates[0])
        if candidates:
            return None
    return None


def find_name_ranked_first(sentence: str) -> str | None:
    """Return the name that a sentence ranks first: `Alice` for `So Alice is the tallest.`

    The result is None if the sentence contains anything else, such as another name, a number or a
    negation.
    """
    if " is the " not in sentence:
        return None
    match = _FIRST_OF_ALL.fullmatch(sentence.replace("**", ""))
    if match is None or match[1].lower() in _NO_NAMES or is_number_word(match[1].lower()):
        return None
    return match[1]


_FIRST_OF_ALL = re.compile(
    r"(?:(?:So|Thus|Hence|Therefore|Then|This means(?: that)?|We conclude that),? )?+"
    r"([A-Z][a-z]{1,20}) is (?:therefore |thus |hence |indeed |clearly )?the "
    r"(?:(?:most|least) [a-z]{2,15}|[a-z]{2,12}est|worst|winner|loser)"
    r"(?: (?:person|one|overall|student|child|player|runner|friend|day|month|color|colour))?"
    r"(?: (?:of|among) (?:all|them|(?:all |the )?(?:two|three|four|five|six)))?[.!]?"
)
_NO_NAMES = frozenset(
    "this that there here which who what one none nobody everyone someone either neither both "
    "each every all no not answer result value solution number sum total option choice first "
    "second third fourth fifth last next former latter it he she they we i you".split()
)
"""Words that may begin a sentence but cannot be its named subject."""


def _find_value_after_equals(text_after_equals: str) -> str | None:
    """Return the value directly after the last equals sign of a sentence.

    The result is None if another number is asserted after it.

    Args:
        text_after_equals: text after the last equals sign of a sentence.
    """
    text_after_equals = _DIVISION.sub(" per ", text_after_equals)
    if _RECKONED.search(_QUOTIENT.sub(" ", text_after_equals)):
        return None
    sentence = TokenizedSentence(text_after_equals)
    if sentence.numbers[:1] != [0] or sentence.numbers[1:2] == [1] or 0 in sentence.unclear:
        return None
    if any(_classify_number_role(sentence, i) in ("verb", "subject") for i in sentence.numbers[1:]):
        return None
    return _read_number_with_unit(sentence, 0)


def _find_final_list(sentence: TokenizedSentence) -> str | None:
    """Return the list of values at the end of a sentence: `5 and 3` for `The roots are 5 and 3.`"""
    places = sentence.numbers
    first = next((i for i in places if sentence.get_word(i - 1) in _ARE), places[-1])
    last = places[-1]
    if first == last or sentence.unclear:
        return None
    rest = [*range(first, len(sentence.tokens))]
    while rest and sentence.tokens[rest[-1]] in ".!":
        rest.pop()
    if not rest or rest[-1] != last:
        return None
    if any(i not in places and sentence.get_word(i) not in _JOINTS for i in rest):
        return None
    if any(a + 1 == b for a, b in pairwise(places)) or sentence.is_denied(first):
        return None
    return " ".join(sentence.tokens[first : last + 1]).replace(" ,", ",")


def _find_main_clause_numbers(sentence: TokenizedSentence) -> list[int]:
    """Return the token indices of the numbers in the last main clause of a sentence.

    The main clause begins after a concluding word such as "so". Subordinate clauses do not count.
    """
    places = sentence.numbers
    if len(places) == 1:
        return places
    begin, words = 0, sentence.words
    for i in range(1, places[-1]):
        if words[i] in _CONCLUDING and words[i - 1] in ",;":
            begin = i
    kept, subordinate = [], False
    for i, word in enumerate(words[begin : places[-1] + 1], begin):
        if word in ",;":
            subordinate = False
        elif word in _SUBORDINATE:
            subordinate = not (word == "which" and words[i + 1] in _VERBS)
        elif i in places and not subordinate:
            kept.append(i)
    return kept


def _classify_number_role(sentence: TokenizedSentence, number_index: int) -> str:
    """Return the role of the number at token index `number_index`.

    The role is `verb` after a verb that gives a value, `subject` for the subject, `belongs` for a
    number that belongs to something else, and `other` if the role is not clear.
    """
    if number_index in sentence.unclear:
        return "other"
    if sentence.get_word(number_index + 1) in _RELATIVE and len(sentence.numbers) > 1:
        return "other"
    j = number_index - 1
    while j >= 0 and (sentence.get_word(j) in _ADVERBS or _introduces_total(sentence, j)):
        j -= 1
    word, before = sentence.get_word(j), sentence.get_word(j - 1)
    if word in _VERBS or (word.endswith("ed") and before not in _BELONGING):
        return (
            "belongs"
            if before == "to" and not _makes_infinitive_part_of_verb(sentence, j - 2)
            else "verb"
        )
    if word.isalpha() and before in _MODALS:
        return "verb"
    if word.isalpha() and before == "to":
        return "verb" if _makes_infinitive_part_of_verb(sentence, j - 2) else "belongs"
    if word in _PRONOUNS and before in _WITH_TWO_OBJECTS:
        return "verb"
    if word.isalpha() and _WITH_TWO_OBJECTS & {before, sentence.get_word(j - 2)}:
        return "belongs" if word in _BELONGING else "verb"
    if sentence.get_word(number_index - 1) in _BELONGING:
        return "belongs"
    if word == "" or word in _CONCLUDING or (word == "," and j - 1 not in sentence.numbers):
        follows = sentence.get_word(number_index + 1)
        plain = follows.isalpha() and follows not in _JOINTS
        return "subject" if plain and follows not in _BELONGING - {"of"} else "other"
    return "other"


def _has_later_clause(sentence: TokenizedSentence, number_index: int) -> bool:
    """Return whether a clause follows a number so that the number may not be the answer.

    After a number in words, any clause counts. After a number in digits, it must have a number.
    """
    later = range(number_index + 1, len(sentence.words))
    if not sentence.tokens[number_index][-1:].isalpha():
        later = range(number_index + 1, sentence.numbers[-1])
        return any(
            sentence.get_word(i) == "and"
            and (sentence.get_word(i - 1) == "," or sentence.get_word(i + 1) in _HE)
            for i in later
        )
    return any(sentence.get_word(i) in _SUBORDINATE or sentence.get_word(i) in ",;(" for i in later)


def _introduces_total(sentence: TokenizedSentence, word_index: int) -> bool:
    """Return whether a word is the "of" in "a total of 5" or the "with" in "is left with 5"."""
    word, before = sentence.get_word(word_index), sentence.get_word(word_index - 1)
    return (word == "of" and before in _SUMMED) or (word == "with" and before in _WITH)


def _makes_infinitive_part_of_verb(sentence: TokenizedSentence, word_index: int) -> bool:
    """Return whether the word before an infinitive makes it part of the verb, as in `needs to pay`.

    Otherwise the infinitive states a purpose.
    """
    return sentence.get_word(word_index) in _BEFORE_INFINITIVE


def _read_number_with_unit(sentence: TokenizedSentence, number_index: int) -> str:
    """Return a number as it is written, followed by its unit or scale word such as `million`."""
    token = sentence.tokens[number_index].rstrip(",")
    follows = sentence.get_word(number_index + 1)
    if follows in _SCALES or follows in _MEASURES:
        return f"{token} {sentence.tokens[number_index + 1]}"
    return token


_MEASURES = frozenset(
    "cents cm mm km kg g m feet foot inches miles meters dollars hours minutes seconds days weeks "
    "years degrees percent mph pm am".split()
)


_TOKEN = re.compile(
    r"[A-Za-z]++(?:['’-][A-Za-z]++)*+|"
    r"[-−]?+[$€£]?+(?:\d++(?:,\d{3})*+(?:\.\d++)?+|\.\d++)(?:/\d++)?+[%°]?+|\S"
)
_COPULAS = frozenset("is are was were be equals it's that's".split())
_BEHIND_FRACTION = frozenset(
    ". ! ; : ) percent cup cups hour hours minute minutes day days week weeks year years mile "
    "miles pound pounds ounce ounces gallon gallons liter liters litre litres inch inches foot "
    "feet meter meters metre metres".split()
)
"""Words that may follow an asserted fraction in words. Before any other word, the fraction is a
share of something, as in `half the money`."""
_NUMBER_ENDS = frozenset("0123456789%°")
_NUMERAL = (BEGINNINGS - {"a", "an", "one"}) | PARTS | SCALES
"""Number words. A sentence without any of them and without hyphens has no number in words."""
_DENYING = frozenset("not cannot never neither nor without except".split())
_MAX_DENYING = 4
"""Number of words before a number that are searched for a negation."""


class TokenizedSentence:
    """The tokens of a sentence (words, numbers and signs) and the indices of its numbers.

    A number in several words, such as `two and a half`, is one token.
    """

    def __init__(self, text: str) -> None:
        tokens: list[str] = _TOKEN.findall(text)
        lower = "\n".join(tokens).lower().split("\n") if tokens else []
        self.tokens, self.words = tokens, lower
        self.unclear: set[int] = set()
        """Indices of numbers in words that may mean something else, such as an ordinal."""
        in_words: set[int] = set()
        if "-" in text or not _NUMERAL.isdisjoint(lower):
            in_words = self._join_number_words(tokens, lower)
        self.numbers = [
            i
            for i, word in enumerate(self.words)
            if (word[-1] in _NUMBER_ENDS and word not in "%°") or i in in_words
        ]

    def _join_number_words(self, tokens: list[str], lower: list[str]) -> set[int]:
        """Join the words of each number in words to one token in place.

        Return the indices of these tokens.
        """
        joined: list[str] = []
        places: set[int] = set()
        at = 0
        while at < len(tokens):
            end = _find_number_end(lower, at)
            if end:
                places.add(len(joined))
                if not _is_clear_number(lower, at, end):
                    self.unclear.add(len(joined))
            joined.append(" ".join(tokens[at:end]) if end else tokens[at])
            at = end or at + 1
        self.tokens, self.words = joined, [token.lower() for token in joined]
        return places

    def get_word(self, token_index: int) -> str:
        """Return a token in lower case; empty if the index is out of range."""
        return self.words[token_index] if 0 <= token_index < len(self.words) else ""

    def is_denied(self, token_index: int) -> bool:
        """Return whether one of the few words before token `token_index` negates it."""
        return any(
            word in _DENYING or word.endswith(("n't", "n’t"))
            for word in self.words[max(0, token_index - _MAX_DENYING) : token_index]
        )


def _find_number_end(tokens: list[str], start: int) -> int:
    """Return the index after the last token of the number in words that begins at index `start`.

    The result is 0 if no such number begins there.
    """
    if tokens[start].partition("-")[0] not in BEGINNINGS:
        return 0
    number = parse_number_at(words := _list_words_from(tokens, start), 0)
    if number is None or words[: number[1]] == ["one"]:
        return 0  # "one" is usually a pronoun
    end, count = start, 0
    while count < number[1]:
        count += len(split_words(tokens[end]))
        end += 1
    return end


def _is_clear_number(tokens: list[str], start: int, end: int) -> bool:
    """Return whether a number in words is clearly a number, rather than a share or an ordinal."""
    words = _list_words_from(tokens, start)
    value, count = parse_number_at(words, 0) or (Fraction(0), 0)
    follows = tokens[end] if end < len(tokens) else ""
    if count != len(split_words(" ".join(tokens[start:end]))) or not no_number_word_follows(
        words, count
    ):
        return False
    if value.denominator == 1 or abs(value) > 1:
        return follows != "or"
    if follows and follows not in _BEHIND_FRACTION:
        return False
    return follows.isalpha() or (start > 0 and tokens[start - 1] in _COPULAS)


def _list_words_from(tokens: list[str], start: int) -> list[str]:
    """Return the words from token `start` up to a sign, at most as many as a number may have."""
    words: list[str] = []
    for token in tokens[start : start + MAX_WORDS]:
        if not token[0].isalpha():
            break
        words += split_words(token)
    return words
