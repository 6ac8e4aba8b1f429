"""Finds reasons why a number is not the answer of a text.

The text may refuse to answer, break off or retract its answer. It may negate the number or only
bound it (`less than 5`). The number may also belong to a theorem or a step. Every pattern is
applied to a bounded part of a text.
"""

from __future__ import annotations

import re

_MIN_DOUBT, _MAX_DOUBT = 12, 600
"""Minimum and maximum number of characters after an answer that are searched for a retraction."""
_DOUBTING = (
    "wrong", "incorrect", "mis", "mess", "not ", "n't ", "n’t ", "error", "scratch", "gnor", "forg",
    "disreg", "overl", "too ", "correction", "false", "? no", "?no",
)  # fmt: skip
"""Substrings that are cheap to search for. A text without any of them retracts nothing."""
_FALSE = (
    r"(?:also |clearly |obviously |actually |still |definitely )?"
    r"(?:wrong|incorrect|false|mistaken|impossible|an? (?:mistake|error)|"
    r"not (?:right|correct|true|possible|the (?:right |correct |final )?answer)|"
    r"too (?:small|large|big|low|high|few|many|much))\b"
)
_IT = r"(?:that|this|it)"
_OWN = (
    r"(?:my|the|this|that) (?:above |final |previous |last |first )?(?:answer|result|calculation)"
    r"(?: above| i gave)?"
)
_IS_FALSE = (
    rf"(?:(?: is| was| seems| looks|[’']s| must be) {_FALSE}|"
    r"(?: can[’']t| couldn[’']t| isn[’']t| wasn[’']t| cannot| can not)(?: be)? "
    r"(?:right|correct|true|the (?:right |correct |final )?answer)\b)"
)
_AT_ONCE = re.compile(
    r" (?:was|is) (?:my|our|the) (?:first|initial|original|earlier|previous) [a-z]{3,12},? "
    rf"(?:which|but {_IT}|and {_IT}){_IS_FALSE}|"
    r"[\s\"*$\]})\\.,!?;—–-]{0,8}(?:(?:but|however|and|so|unfortunately)\b,? ?)?"
    rf"(?:{_IT}|which|{_OWN}){_IS_FALSE}|"
    r"[\s\"*$\]})\\.]{0,6}\? ?(?:no|nope|wrong|incorrect)\b",
    re.IGNORECASE,
)
"""Words directly after an answer that call it false."""
_TAKEN_BACK = re.compile(
    r"(?:^|[.!?;:)\n—])[\s\"*$\]}]{0,6}"
    r"(?:"
    r"(?:(?:but|oh|ah|and) )?"
    r"(?:wait|hold on|hmm{1,4}|no|nope|oops|sorry|actually)\b[\s,.!:;…—–-]{1,4}"
    r"(?:(?:no|wait|actually|but|sorry|so)\b[\s,.!:;…—–-]{1,4})?"
    rf"(?:{_IT}|{_OWN}){_IS_FALSE}|"
    r"(?:(?:but|so|oh|however|wait|hold on|hmm{1,4}|oops|sorry|no|ah|actually|unfortunately)\b"
    r"[\s,.!:;…—–-]{1,4})?(?:"
    rf"{_OWN}{_IS_FALSE}|"
    r"i(?: have|[’']ve| think i)? (?:mis(?:read|understood|interpreted|calculated|counted|took)|"
    r"forgot|overlooked|made an? (?:[a-z]{2,15} )?(?:mistake|error)|was wrong|messed up)\b|"
    r"(?:please )?(?:scratch|ignore|disregard|forget) (?:that|this|it|the|my)\b|"
    r"correction\b|wrong(?: answer)?[.!])"
    r")",
    re.IGNORECASE,
)
_CALLED_FALSE = re.compile(
    r"[\s*_$(\[{]{0,6}\S{1,60}(?: [a-z]{1,15})?(?: [a-z]{1,15})?(?:"
    r",? but (?:they|he|she|i) (?:made|makes) an? (?:[a-z]{2,15} )?(?:mistake|error)\b|"
    rf",? (?:which|but {_IT}|and {_IT}){_IS_FALSE}|(?:(?<=[.!])|[.!?]) {{0,2}}(?:but |however, )?"
    rf"(?:{_IT}|{_OWN}){_IS_FALSE}|(?:(?<=\?)|\?) ?(?:no|nope|wrong|incorrect)\b)",
    re.IGNORECASE,
)
_BREAKING = frozenset(
    "and or but because since as of the a an every per than from by with for into if when while "
    "which who whose where therefore thus hence is are was were be equals equal gets get has he "
    "she we they its his their our i to between would will".split()
)
"""Words that cannot end a sentence. `in` is not included, because it may stand for inches."""
_BREAKING_SIGNS = (",", "(", "[", "{", "+", "=", "−", "×", "÷", "·", "/", "<", ">", ":", "\\cdot")
_NAMES = frozenset(
    f"{name}{end}"
    for name in "theorem lemma corollary proposition definition equation eq eqn formula problem "
    "exercise question step table figure example confidence teorema problema ecuación paso "
    "pregunta ejercicio número schritt aufgabe satz gleichung théorème étape numéro exercice "
    "équation passo questão pergunta exercício equação langkah soal".split()
    for end in ("", "s")
)
"""Words for numbered things, such as theorems. A number after such a word is not the answer."""
_CERTAINTY = frozenset({"sure", "confident", "certain"})
_DENYING_WORDS = frozenset(
    "no n'est pas nicht keine si sio siyo menor mayor menos maior mais kleiner weniger mehr chini "
    "zaidi moins plus não más größer höchstens mindestens máximo inférieure inférieur supérieure "
    "supérieur al au como ao pelo almeno massimo".split()
)
"""Words of which every negation of a number in Latin letters has at least one."""
_DOUBTING_WORDS = frozenset(
    "wrong incorrect false mistaken impossible mistake error not can't couldn't isn't wasn't "
    "cannot too no nope misread misunderstood misinterpreted miscalculated miscounted mistook "
    "forgot overlooked messed scratch ignore disregard forget correction".split()
)
"""Words of which every retraction of an answer has at least one."""
_OTHER_SCRIPT = re.compile("[\u0400-\u0e7f\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_REFUSAL = re.compile(
    r"\b(?:i (?:do not know|don't know|give up|have no idea|am not sure|am unable|am not able)|"
    r"(?:i|we) (?:cannot|can't|could not|couldn't|can not|was unable to|were unable to) "
    r"(?:solve|answer|determine|provide|help|complete|say|proceed)|"
    r"(?:not enough|insufficient) information|unable to (?:determine|solve|find|answer)|"
    r"(?:cannot|can not|can't) be (?:determined|solved|answered|found)|"
    r"(?:i|we) (?:cannot|can't|could not|couldn't|can not|was unable to|were unable to|"
    r"am unable to|was not able to|were not able to|did not|didn't|failed to|never) (?:manage to )?"
    r"(?:find|reach|arrive at|get|obtain|come up with|give|derive)(?: to)? "
    r"(?:an?|the|any|this|its|one)? ?(?:final |correct |exact |single |definite |valid )?"
    r"(?:answer|solution|result|value)|"
    r"no (?:final |clear |correct |conclusive |definite |definitive |valid )?"
    r"(?:answer|solution|result|value)s? (?:could|can|was|were|has been|have been)|"
    r"no (?:final|conclusive|definite|definitive) (?:answer|result|conclusion)|"
    r"answer is (?:still |currently )?(?:unclear|unknown|undetermined|not (?:clear|known))|"
    r"je ne sais pas|no lo sé|no sé|ich wei(?:ß|ss) (?:es |die antwort )?nicht|"
    r"não sei|я не знаю|sijui|"
    r"ran out of (?:time|space|tokens)|as an ai|i'm sorry|i apologi[sz]e)\b"
)
_REFUSING_WORDS = frozenset(
    "cannot can't not couldn't know give idea unable information didn't failed never ran no ai "
    "sorry apologize apologise unclear unknown undetermined sais sé weiß weiss sei знаю "
    "sijui".split()
)
"""Words of which every refusal to answer has at least one."""
_ITS_NUMBER = (
    r"(\(\d{1,6}(?:\.\d{1,6}){0,3}\)|\d{1,6}(?:[.,]\d{1,6}){0,3}%?(?![\w%.]|\*(?!\*)|[\^/+=(])|"
    r"\d{1,6}(?:\.\d{1,6}){0,3}%?(?=\.(?:\s|$)))"
)
_NUMBER_OF_NAME = re.compile(rf"s?\.?(?: no\.| number)?[ #~*$]{{0,4}}+{_ITS_NUMBER}", re.IGNORECASE)
_CONFIDENCE = re.compile(
    rf"(?: level| score)?(?: is| of)?[ :~*$]{{0,4}}+{_ITS_NUMBER}", re.IGNORECASE
)
_CERTAIN_PERCENT = re.compile(
    r"(?<![\d.])\d{1,3}(?:\.\d{1,3})? ?%(?= (?:sure|confident|certain)\b)", re.IGNORECASE
)
_CITATION = re.compile(r"(?<= )\[\d{1,6}\]")
_TAIL = 300
"""Number of characters at the end of a text that are searched for numbers of theorems and steps."""
_REFUSAL_TAIL = 240
"""Number of characters at the end of a text that are searched for a refusal to answer."""

DENIED_BEFORE = (
    "不是", "并非", "並非", "不等于", "不等於", "不会是", "不可能是", "不为", "小于", "小於",
    "大于",
    "大於", "少于", "少於", "多于", "多於", "不超过", "超过", "最多", "最多是", "最多为", "至少",
    "至少是", "至少为", "低于", "高于", " не", " не равен", " не равна", " не равно", " меньше",
    " больше", " не более", " не менее", " no es", " no son", " no es igual a", " no puede ser",
    " menor que", " mayor que", " menor a", " mayor a", " menos de", " más de",
    " cualquier cosa menos", " no máximo", " como máximo", " não é", " não são", " não é igual a",
    " não pode ser", " maior que", " maior do que", " menor do que", " mais de", " mais que",
    " n'est pas", " n’est pas", " pas égale à", " pas égal à", " inférieure à", " inférieur à",
    " supérieure à", " supérieur à", " moins de", " plus de", " nicht", " nicht gleich", " keine",
    " kleiner als", " größer als", " weniger als", " mehr als", " höchstens", " mindestens",
    "ليس", "ليست", "لا يساوي", "أقل من", "أكثر من", "أكبر من", "أصغر من", "ไม่ใช่", "ไม่เท่ากับ",
    "น้อยกว่า", "มากกว่า", "ไม่เกิน", " si", " sio", " siyo", " chini ya", " zaidi ya",
    " al menos", " como mínimo", " a lo sumo", " au moins", " au plus", " pelo menos", " ao menos",
    " almeno", " al massimo", "至多", "不到", "不足", "不小于", "不大于",
)  # fmt: skip
"""Words in languages other than English that negate or bound the number after them."""
_DENIED_AFTER = (
    "ではありません", "ではな", "じゃな", "じゃありません", "でない", "でありません", "より小さ",
    "より大き", "より少な", "より多", "未満", "以下", "以上", "を超え",
    "이 아니", "가 아니", "이 아닙", "가 아닙",
    "은 아니", "는 아니", "은 아닙", "는 아닙", "아닙", "아니", "보다", "미만",
    "이하", "이상", "नहीं",
    "से कम", "से अधिक", "से ज़्यादा", "से ज्यादा", "से बड़", "से छोट", "নয়", "নয়", "না",
    "এর কম",
    "এর বেশি", "এর চেয়ে", "-এর কম", "-এর বেশি", "থেকে কম", "থেকে বেশি", "కాదు", "కంటే",
)  # fmt: skip
"""Words in languages other than English that negate or bound the number before them."""
_DENIED_ABROAD = re.compile(
    rf"(?:{'|'.join(map(re.escape, sorted(DENIED_BEFORE, key=len, reverse=True)))})"
    r"[\s:：*$\\(是为為]{0,4}[-−]?\d[\d.,]{0,20}"
)
_OTHERS_ABROAD = re.compile(
    r"第\s?\d{1,6}\s?(?:题|題|步|章|问|問|行|页|頁|节|節|式)|(?:步骤|步驟|定理|问题|問題|公式|方程|图|圖|表|"
    r"ステップ|단계|문제|정리|шаг\w{0,2}|теорем\w{1,2}|задач\w{1,2}|уравнени\w|समस्या|चरण|प्रश्न|"
    r"প্রশ্ন|ধাপ|ขั้นตอนที่|ข้อ)\s?(?:№\s?)?\d{1,6}(?![\d.,]*\d)"
)
"""Numbers of problems, steps and theorems in non-Latin scripts."""
_DENIED_BEHIND = re.compile(
    r"(?<![\d.,])\d[\d.,]{0,20}[\s*$\\)]{0,4}[^\W\d_]{0,2}?"
    rf"(?:{'|'.join(map(re.escape, _DENIED_AFTER))})"
)


def find_retraction(text_after_answer: str) -> int | None:
    """Return the index at which a text retracts an answer; None if it does not.

    Args:
        text_after_answer: text after the answer.
    """
    text_after_answer = text_after_answer[:_MAX_DOUBT]
    if not may_contain_retraction(text_after_answer):
        return None
    match = _AT_ONCE.match(text_after_answer) or _TAKEN_BACK.search(text_after_answer)
    return None if match is None else match.start()


def is_answer_called_false(text_from_answer: str) -> bool:
    """Return whether a text that begins with an answer calls it false, as in `42, which is wrong`.

    Args:
        text_from_answer: text from the start of the answer.
    """
    text_from_answer = text_from_answer[:_MAX_DOUBT]
    return (
        may_contain_retraction(text_from_answer)
        and _CALLED_FALSE.match(text_from_answer) is not None
    )


def may_contain_retraction(text_after_answer: str) -> bool:
    """Return whether the text after an answer may contain a retraction.

    If so, it contains at least one of the substrings `_DOUBTING`.
    """
    if len(text_after_answer) < _MIN_DOUBT and "?" not in text_after_answer:
        return False
    return any(map(text_after_answer.lower().__contains__, _DOUBTING))


def refuses_to_answer(text: str, doubt_words: frozenset[str]) -> bool:
    """Return whether the end of a text says that it gives no answer.

    Args:
        text: the text of a completion.
        doubt_words: lower-case words of the text that may express a doubt, from `find_doubt_words`.
    """
    return (
        not doubt_words.isdisjoint(_REFUSING_WORDS)
        and _REFUSAL.search(text[-_REFUSAL_TAIL:].lower()) is not None
    )


def takes_back_last_number(text: str, doubt_words: frozenset[str]) -> bool:
    """Return whether a text retracts its last number in digits.

    Args:
        text: the text of a completion.
        doubt_words: lower-case words of the text that may express a doubt, from `find_doubt_words`.
    """
    if doubt_words.isdisjoint(_DOUBTING_WORDS) and _DIGIT.search(text, len(text) - _TAIL):
        return False
    tail = text[-_MAX_DOUBT:]
    last = max(map(tail.rfind, "0123456789"))
    if last < 0:
        return False
    return is_answer_called_false(tail[last:]) or find_retraction(tail[last + 1 :]) is not None


_DIGIT = re.compile("[0-9]")


def ends_mid_sentence(text: str) -> bool:
    """Return whether a text ends in the middle of a sentence: `each of her friends gets`."""
    last_words = text[-40:].rsplit(None, 1)
    if not last_words:
        return False
    last = last_words[-1]
    return last.endswith(_BREAKING_SIGNS) or last.lstrip('(*_"').lower() in _BREAKING


def find_doubt_words(text: str) -> frozenset[str]:
    """Return the lower-case words at the end of a text that may express a doubt.

    The other functions run their patterns only if such a word occurs. A look-up of words in a set
    takes a tenth of the time of a search in the text.
    """
    tail = text[-_TAIL:].lower().replace("’", "'")
    words = tail.encode(errors="replace").translate(_TO_SPACES).decode().split()
    return _DOUBT_WORDS.intersection(words)


_DOUBT_WORDS = _NAMES | _CERTAINTY | _DENYING_WORDS | _REFUSING_WORDS | _DOUBTING_WORDS
_TO_SPACES = bytes(
    ord(" ") if chr(code) in '"#$%&()*+,-./:;<=>?@[\\]^_`{|}~!' else code for code in range(256)
)


def remove_unrelated_numbers(text: str, doubt_words: frozenset[str]) -> str:
    """Return a text without the numbers at its end that cannot be its answer.

    These are numbers of theorems and steps, and negated numbers.

    Args:
        text: the text of a completion, or its last sentence.
        doubt_words: lower-case words of the text that may express a doubt, from `find_doubt_words`.
    """
    head, tail = text[:-_TAIL], text[-_TAIL:]
    if not doubt_words and " [" not in tail and tail.isascii():
        return text
    names = doubt_words & _NAMES
    if names:
        tail = _remove_numbers_after_names(names, tail)
    if not doubt_words.isdisjoint(_CERTAINTY):
        tail = _CERTAIN_PERCENT.sub("", tail)
    if " [" in tail:
        tail = _CITATION.sub("", tail)
    if not doubt_words.isdisjoint(_DENYING_WORDS):
        tail = _DENIED_ABROAD.sub(" ", tail)
    if not tail.isascii() and _OTHER_SCRIPT.search(tail):
        tail = _OTHERS_ABROAD.sub(" ", tail)
        tail = _DENIED_BEHIND.sub(" ", _DENIED_ABROAD.sub(" ", tail))
    return head + tail


def _remove_numbers_after_names(names: frozenset[str], text: str) -> str:
    """Return a text without the numbers directly after any of `names`, as in `by Theorem 5.2`."""
    for name in names:
        number_behind = _CONFIDENCE if name == "confidence" else _NUMBER_OF_NAME
        lower = text.lower()
        place = lower.rfind(name)
        while place >= 0:
            number = number_behind.match(text, place + len(name))
            if number is not None and not text[place - 1 : place].isalpha():
                text = text[: number.start(1)] + text[number.end(1) :]
            place = lower.rfind(name, 0, place)
    return text


def ends_with_denial(text_before_number: str) -> bool:
    """Return whether words before a number negate or bound it, in a language other than English.

    Args:
        text_before_number: text before the number.
    """
    return text_before_number[-2:] in _ENDS and text_before_number.endswith(DENIED_BEFORE)


_ENDS = frozenset(words[-2:] for words in DENIED_BEFORE)


def is_followed_by_denial(text: str, value_end: int) -> bool:
    """Return whether words after a value negate or bound it, in a language such as Japanese.

    Args:
        text: text with the value.
        value_end: index after the value.
    """
    after = text[value_end : value_end + 24].lstrip(" $\\)]*")
    return not after.isascii() and after.startswith(_DENIED_AFTER)
