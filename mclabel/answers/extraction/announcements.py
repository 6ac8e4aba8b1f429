"""Extracts answers that a text announces in a language other than English: `答案是`, `Ответ:`.

The phrases are those of MGSM, MMLU-ProX, PolyMath, CMATH and GAOKAO. The answer is the rest of the
sentence after such a phrase, without words that only mean "is". In languages with decimal commas,
commas are read as decimal marks, unless other numbers of the text have decimal points.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mclabel.answers.extraction.doubts import ends_with_denial, is_followed_by_denial
from mclabel.answers.extraction.statements import find_stated_value, remove_contrasts
from mclabel.answers.reading.scripts import convert_signs_to_ascii, keep_non_ascii_characters

_COLON = r"[*_ ]{0,3}[:：=]"
_TO = r"(?: (?:to|auf|à|a|al|на|к|zu|zur)\b[^.:：\n]{0,60}?)?"
_OPTION = (
    r"(?: (?:(?:la|el|l'|a|o|die|le)? ?(?:opción|letra|lettre|option|opção|alternativa)|"
    r"(?:la|el|a|o|le)(?= \(?\*{0,2}\(?[A-J]\b))(?!\w))?"
)
"""The word for "option" before the letter of an option: `la opción B`, `a (B)`."""
_PHRASES = {
    "chinese": (
        r"(?:答案|正确选项|正確選項|正确答案|结果|結果)(?:\]|】)?[*_ ]{0,3}"
        r"(?:(?:就|应该|應該|应|應|也|分别|依次|最终|即)?(?:是|为|為|等于|等於|选|選)[:：]?|"
        r"[:：=]|(?<=[\]】]))"
        r"|(?:故|应|應|所以|因此|综上,?|本题)(?:正确答案)?(?:选|選|填)(?:择|"
        r"擇)?[:：]?(?=\s?[(（]?[A-J\d$])"
        r"|(?:^|(?<=\n))答[:：]"
    ),
    "japanese": r"(?:答え|答|解答|正解|回答)(?:は|が|[:：=])[,、]?",
    "korean": r"(?:정답|해답|답변|답)[*_]{0,2} ?(?:은|는|[:：=])",
    "russian": (
        rf"ответ(?:ом)?{_TO}(?:[*_ ]{{0,3}}[:：=]| ?[—–-]| (?:равен|равно|является|будет|"
        rf"это)\b| (?=[($\d-]|\*{{0,2}}[A-JА-Е]\b))"
    ),
    "spanish": (
        rf"(?:respuesta|alternativa|opción|resultado|solución){_TO}(?: (?:final|correcta|"
        rf"definitiva))*"
        rf"(?:{_COLON}| (?:es|sería|será)\b)(?: (?:entonces|por tanto|pues)\b)?{_OPTION}"
    ),
    "french": (
        rf"(?:réponse|résultat|solution){_TO}(?: (?:finale|correcte|exacte|final))*"
        rf"(?:{_COLON}| (?:est|serait|sera)\b)(?: (?:donc|alors)\b)?{_OPTION}"
    ),
    "german": (
        rf"(?:antwort|ergebnis|lösung){_TO}(?:{_COLON}| (?:lautet|ist|beträgt|"
        rf"wäre)\b)(?: (?:also|daher|somit|folglich)\b)*"
        r"|(?:ist|lautet) (?:also )?die (?:richtige |endgültige )?antwort(?=:? [($\d*\\A-J-])"
    ),
    "portuguese": (
        rf"(?:resposta|alternativa|gabarito|opção){_TO}(?: (?:final|correta|certa))*"
        rf"(?:{_COLON}| (?:é|será|seria)(?!\w))(?: (?:então|portanto)\b)?{_OPTION}"
    ),
    "italian": (
        rf"risposta(?: (?:finale|corretta|esatta))*(?:{_COLON}| è(?!\w))(?: (?:quindi|"
        rf"dunque)\b)?"
    ),
    "indonesian": (
        rf"(?:jawaban(?:nya)?)(?: (?:akhir|akhirnya|yang benar))*(?:{_COLON}| (?:adalah|"
        rf"ialah)\b)"
    ),
    "vietnamese": rf"(?:đáp án|đáp số|kết quả)(?: (?:đúng|cuối cùng))*(?:{_COLON}| là\b)",
    "turkish": rf"(?:cevap|yanıt|cevabı)(?:{_COLON})",
    "polish": rf"odpowiedź(?:{_COLON}| to\b)",
    "dutch": rf"(?:antwoord)(?: (?:is)\b|{_COLON})",
    "arabic": (
        rf"(?:الإجابة|الاجابة|الجواب|إجابة|جواب|الناتج)(?: (?:الصحيحة|النهائية|الصحيح|النهائي))*"
        rf"(?: (?:هي|هو)(?!\w)|{_COLON})(?:{_COLON})?"
    ),
    "hindi": (
        rf"(?:उत्तर|जवाब|सही विकल्प)(?:{_COLON}| (?:है|हैं|होगा)[:,]?| ?-| (?=[($\dA-J*\\]|"
        rf"विकल्प))(?: ?विकल्प)?"
    ),
    "bengali": (
        rf"(?:উত্তর|সঠিক বিকল্প)(?:টি)?(?:{_COLON}| (?:হলো|হল|হচ্ছে|হবে|হয়)[:,]?| ?-|"
        rf" (?=[($\d*\\]))"
    ),
    "thai": (
        rf"คำตอบ(?:ที่ถูกต้อง|สุดท้าย|ที่ถูก|ของข้อนี้)*(?: ?(?:ก็คือ|คือ|เท่ากับ|เป็น)|"
        rf"{_COLON})(?:{_COLON})?"
    ),
    "thai_verb": rf"(?<!คำ)ตอบ(?:{_COLON})?(?= ?[\dA-Jกขคง(])",
    "telugu": rf"(?:సమాధానం|జవాబు)(?:{_COLON}| ?-| (?=[($\dA-J*\\]))",
    "swahili": rf"jibu(?: (?:sahihi|la mwisho|lake|letu))*(?: ni\b|{_COLON})",
}
_KEYWORDS = (
    "答", "结果", "結果", "正解", "选", "選", "填", "답", "твет", "espuesta", "pción",
    "esultado", "olución", "éponse", "ésultat", "olution", "ntwort", "rgebnis", "ösung",
    "esposta", "lternativa", "abarito", "pção", "isposta", "awaban", "áp án", "áp số", "ết quả",
    "evap", "anıt", "dpowiedź", "ntwoord", "إجابة", "اجابة", "جواب", "الناتج", "उत्तर", "जवाब",
    "विकल्प", "উত্তর", "বিকল্প", "ตอบ", "సమాధానం", "జవాబు", "ibu",
)  # fmt: skip
_ASCII_KEYWORDS = (
    "ntwort", "espuesta", "esposta", "isposta", "lternativa", "abarito", "awaban", "ntwoord",
    "ibu", "rgebnis", "esultado", "evap",
)  # fmt: skip
"""Parts of the words for "answer". Searching for them takes a tenth of the time of a pattern."""
_LEAD = 32
"""Maximum number of characters between the start of an announcing phrase and its keyword, the word
for "answer"."""
_ANNOUNCEMENT = re.compile(
    "|".join(f"(?P<{name}>{phrase})" for name, phrase in _PHRASES.items()), re.IGNORECASE
)
_DECIMAL_COMMAS = frozenset(
    "russian spanish french german portuguese italian indonesian vietnamese turkish polish "
    "dutch".split()
)
_MAX_PLACES = 20
_WINDOW = 4000
_MAX_VALUE = 200
_WRONG_OR_SUPPOSED = re.compile(
    r"(?:错误的?|不正确的?|誤った|間違った|틀린|неверн\w{1,4}|неправильн\w{1,4}|"
    r"ошибочн\w{1,4}|falsche|incorrecta|mauvaise|errada|"
    r"incorreta|الخاطئة|गलत|ভুল|ผิด|如果|假如|假设|假設|若|もし|만약|\bесли|\bwenn|\bfalls|\bsi|\bse|"
    r"\bjika|nếu|यदि|अगर|যদি|ถ้า|إذا كانت?)(?: (?:la|el|die|das|a|o|il))?\s?$",
    re.IGNORECASE,
)
_END = re.compile(
    r"[。！？؟।॥\n]|[.!?](?=[\s*\"»)]|$)|(?<=[\d$)}%\w])[,，;；] ?"
    r"(?:因为|所以|因此|其中|即|因為|なぜなら|왜냐하면|потому|поэтому|так как|denn|weil|"
    r"da\b|porque|pues|ya que|"
    r"car\b|parce|puisque|pois|já que|لأن|क्योंकि|কারণ|เพราะ|ఎందుకంటే|kwa sababu)"
)
_TRAILING = re.compile(
    r"\s?(?:です|でした|である|だ|になります|になる|となります|となる|입니다|이다|이에요|"
    r"예요|이 됩니다|이 된다|가 됩니다|"
    r"है|हैं|होगा|होगी|হবে|হয়|ครับ|ค่ะ|అవుతుంది|అవుతాయి)$"
)
_DENIED = re.compile(
    r"^\s?(?:не\b|no\b|nicht\b|kein|n'est|pas\b|não\b|non\b|ليس|नहीं|ไม่|不(?:是|为|等)|"
    r"并非|si \d|bukan|không|nie\b|niet\b)|"
    r"(?:では(?:あり|な)|じゃな|(?:이|가)? ?아니|아닙니다|नहीं(?: है)?|নয়|কাদু|కాదు|değil|nicht)"
)
_DENIAL = re.compile(
    r"(?:答案|答え?|结果)(?:不|并不|並不|并非)是?|\bне\b|\bno (?:es|sería)\b|"
    r"\bn'est pas\b|\bist nicht\b|\bnão (?:é|será)|"
    r"\bnon è\b|(?:ليست?|ليس) |नहीं|নয়|ไม่(?:ใช่|เป็น)|కాదు|\bjibu si\b|ではありません|"
    r"ではない|아니|아닙니다|\bbukan\b|không phải|"
    r"falsche antwort|respuesta incorrecta|mauvaise réponse|réponse incorrecte|"
    r"resposta (?:incorreta|errada)|"
    r"неверный ответ|неправильный ответ|错误答案|错误的答案|不正解|오답|गलत उत्तर|"
    r"ভুল উত্তর|الإجابة الخاطئة"
)
_INEXACT = re.compile(
    r"超过|超過|多于|多於|少于|少於|大于|小于|以上|以下|未满|未満|이상|이하|미만|больше|"
    r"меньше|более|менее|más de|menos de|"
    r"plus de|moins de|mehr als|weniger als|mais de|أكثر من|أقل من|से अधिक|से कम|এর বেশি|"
    r"এর কম|มากกว่า|น้อยกว่า|"
    r"కంటే ఎక్కువ|కంటే తక్కువ|zaidi ya|chini ya"
)
_QUESTION = re.compile(
    r"[?？؟]|什么|多少|何|いくつ|무엇|얼마|क्या|কী|কত|อะไร|เท่าไร|ఏమిటి|ఎంత|nini|ماذا"
)
_LETTER = re.compile(
    r"[(（\[【]\s?([A-J])\s?[)）\]】]|(?:[选選](?:项|項)?|선택지|вариант|opción|letra|option)?\s?"
    r"([A-J])(?=[.:：,，、)）\s]*$|[.:：)）,，、]\s|\s?[\u0900-\u1fff\u3040-\u9fff\uac00-\ud7af])"
)
_MATH = re.compile(
    r"\$\$?([^$\n]{1,400})\$\$?|\\\(((?:[^\\\n]|\\(?![()])){1,400}+)\\\)|\\\[((?:[^\\\n]|"
    r"\\(?![\[\]])){1,400}+)\\\]"
)
_BOLD = re.compile(r"\*\*([^*\n]{1,100})\*\*")
_CURRENCY = re.compile(r"^(?:R\$|US\$|Rs\.?|₹|₩|₽|€|\$|£|¥|฿)\s?(?=\d)")
_SIGNED_NUMBER = re.compile(
    r"[-−]?(?<![A-Za-z\d.,/_])\d(?:[\d.,/'\u00a0\u202f]|"
    r"[ ](?=\d{3}(?!\d)))*(?:\s?%)?"
)
_AFTER_NUMBER = re.compile(r"\s?[^\d.,;:=+*/^(){}\[\]$\\\"]{0,24}")
_JOINED = re.compile(
    r"[-−]?\d[\d.,/]{0,20}+(?:(?: |、| ?(?:和|と|와|과|и|y|et|und|e|و|और|এবং|และ|మరియు|na|"
    r"dan|và|ve|或|または|또는|или|o|ou|oder|أو|"
    r"या|বা|หรือ|లేదా|au|atau|hoặc|veya) ?) ?[-−]?\d[\d.,/]{0,20}+){1,9}+"
)


def find_announced_answer(text: str) -> str | None:
    """Return the answer after its last announcement in a language other than English; None if the
    text has no such announcement.

    Args:
        text: text of a completion, with digits in ASCII.
    """
    text = text[-_WINDOW:]
    if _is_certainly_english(text):
        return None
    text = remove_contrasts(text)
    for match in _find_announcements(text):
        if _WRONG_OR_SUPPOSED.search(text[max(0, match.start() - 16) : match.start()]):
            continue
        rest = text[match.end() :]
        if _is_first_number_denied(rest[:_MAX_VALUE]):
            continue
        other = _ANOTHER_DENIED.search(rest, 0, _MAX_VALUE)
        answer = _read_announced_value(rest if other is None else rest[: other.start()])
        if answer:
            name = match.lastgroup or ""
            answer = _MIL.sub("thousand", answer)
            return (
                convert_decimal_commas_to_points(answer, text)
                if name in _DECIMAL_COMMAS
                else answer
            )
    return None


_MIL = re.compile(r"(?<=[0-9] )mil\b")
"""The word for thousand in Spanish and Portuguese. In English, `mil` may be a million."""


def _is_first_number_denied(clause: str) -> bool:
    """Return whether the first number of a clause after an announcement is not the answer.

    It is not if it is negated, or only bounded, as in `less than 42`.
    """
    number = _NUMBER.search(clause)
    if number is None:
        return False
    before = clause[: number.start()]
    return (
        ends_with_denial(before) or ends_with_denial(before.rstrip(" $\\(*"))
    ) or is_followed_by_denial(clause, number.end())


_NUMBER = re.compile(r"[0-9]++(?:[.,][0-9]++)*+")
_ANOTHER_DENIED = re.compile(
    r"[，,;；] ?(?:而不是|不是|并非|並非|nicht\b|не\b|no\b|non\b|não\b|pas\b)", re.IGNORECASE
)
"""A second value after the answer, which is negated: `42，不是40`."""


def denies_answer(sentence: str) -> bool:
    """Return whether a sentence in a language other than English says what the answer is not."""
    if _is_certainly_english(sentence):
        return False
    lower = sentence.lower()
    keywords = _KEYWORDS if _may_have_non_ascii_answer_words(lower) else _ASCII_KEYWORDS
    return any(keyword in lower for keyword in keywords) and bool(_DENIAL.search(lower))


def only_bounds_number_in_other_language(sentence: str) -> bool:
    """Return whether a sentence in a language other than English only states a bound of a number.

    An example is the translation of `less than 42`.
    """
    return not _is_certainly_english(sentence) and bool(_INEXACT.search(sentence.lower()))


def find_value_in_other_language(sentence: str) -> str | None:
    """Return the value that a sentence in a language other than English states, or None.

    A decimal comma is replaced by a point.
    """
    if (
        _is_certainly_english(sentence)
        or only_bounds_number_in_other_language(sentence)
        or denies_answer(sentence)
    ):
        return None
    value = find_stated_value(sentence)
    if value is None or max(sentence) >= "\u0500":
        return value
    return convert_decimal_commas_to_points(value, sentence)


def _is_certainly_english(text: str) -> bool:
    """Return whether a text is certainly in English, so that other languages are not considered."""
    is_marked = " the " in text or any(map(text.__contains__, _ENGLISH))
    return is_marked and not _has_foreign_letters(text)


_ENGLISH = ("The ", "Therefore", " are ", " and ", " has ", " she ", " with ")


def _has_foreign_letters(text: str) -> bool:
    """Return whether a text has non-ASCII letters other than Greek ones.

    Greek letters occur in the formulas of English texts, too.
    """
    return (
        not text.isascii() and _FOREIGN_LETTER.search(keep_non_ascii_characters(text)) is not None
    )


def _may_have_non_ascii_answer_words(text: str) -> bool:
    """Return whether a text may contain words for "answer" that are not in ASCII.

    An English text with `≤` or `π` does not.
    """
    return not text.isascii() and ("olution" in text or _has_foreign_letters(text))


_FOREIGN_LETTER = re.compile(
    "[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u0370\u0400-\u1fff\u3040-\u9fff\uac00-\ud7af]"
)


def _find_announcements(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of phrases that announce an answer, from the last to the first."""
    places: set[int] = set()
    for keyword in _KEYWORDS if _may_have_non_ascii_answer_words(text) else _ASCII_KEYWORDS:
        place = text.rfind(keyword)
        while place >= 0:
            places.add(place)
            place = text.rfind(keyword, 0, place) if len(places) < _MAX_PLACES * 4 else -1
    last = len(text) + 1
    for place in sorted(places, reverse=True)[:_MAX_PLACES]:
        if place >= last:
            continue
        for start in range(place, max(-1, place - _LEAD), -1):
            match = _ANNOUNCEMENT.match(text, start) if _may_begin_phrase(text, start) else None
            if match and match.end() > place:
                last = start
                yield match
                break


def _may_begin_phrase(text: str, start: int) -> bool:
    """Return whether a phrase may begin at index `start` of a text.

    In scripts that separate words by spaces, this must be the first letter of a word.
    """
    before = text[start - 1 : start]
    return not before.isalpha() or before >= "\u0e00" or text[start] >= "\u0e00"


def _read_announced_value(text_after_announcement: str) -> str | None:
    """Return the answer at the start of the text after an announcement; None if there is none."""
    text_after_announcement = text_after_announcement.lstrip(" \t\n*_:：,、—–")[: 4 * _MAX_VALUE]
    end = _find_sentence_end(text_after_announcement)
    sentence = text_after_announcement[: end.start()] if end else text_after_announcement
    if _QUESTION.search(
        text_after_announcement[: (end.end() if end else len(text_after_announcement))]
    ):
        return None
    sentence = _TRAILING.sub("", sentence.strip(" *_\"'«»“”「」『』"))
    if not sentence or len(sentence) > _MAX_VALUE or _DENIED.search(sentence):
        return None
    return _find_answer_in_announcement(sentence.strip(" *_\"'«»“”「」『』"))


def _find_sentence_end(text: str) -> re.Match[str] | None:
    spans = [match.span() for match in _MATH.finditer(text)]
    for match in _END.finditer(text):
        if not any(start < match.start() < end for start, end in spans):
            return match
    return None


def _find_answer_in_announcement(sentence: str) -> str | None:
    """Return the answer in the sentence after an announcement; None if the sentence is not clear.

    The answer is an option letter, a formula, a list or the only number of the sentence.
    """
    letter = _LETTER.match(sentence)
    if letter:
        return letter[1] or letter[2]
    formulas = [*_MATH.finditer(sentence)]
    outside = _MATH.sub("", sentence)
    if len(formulas) == 1 and not any(c.isdigit() for c in outside):
        return next(group for group in formulas[0].groups() if group).strip()
    if formulas:
        return sentence
    bold = _BOLD.search(sentence)
    plain = _CURRENCY.sub("", convert_signs_to_ascii(bold[1] if bold else sentence)).strip()
    if "=" in plain:
        return plain if len(plain) < 60 and plain.isascii() else plain.rpartition("=")[2].strip()
    numbers = [*_SIGNED_NUMBER.finditer(plain)]
    if not numbers:
        return plain if len(plain) <= 40 else None
    if numbers[0].start() == 0 or len(numbers) > 1:
        joined = _JOINED.match(plain, numbers[0].start()) if len(numbers) > 1 else None
        if joined and joined.end() >= numbers[-1].end() - 1:
            return plain[joined.start() :] if len(plain) < 60 else joined[0]
        return plain if len(plain) <= 60 else None
    number = numbers[0]
    if any(c in "+*/^_\\<>≤≥≠|{[~≈" for c in plain[: number.start()]):
        return plain if len(plain) <= 60 else None
    after = _AFTER_NUMBER.match(plain, number.end())
    return (
        number[0].rstrip(".,") + (after[0] if after and after.end() == len(plain) else "")
    ).strip()


_GROUPED = re.compile(r"(?<![\d,.])(\d{1,3})((?:\.\d{3})+)(?:,(\d+))?(?![\d,.]?\d)")
_WITH_COMMA = re.compile(r"(?<![\d,.])(\d+),(\d+)(?![\d,]|\.\d)")
_SPACED_GROUPS = re.compile(r"(?<![\d,.])(\d{1,3})((?:[ \u00a0\u202f]\d{3}){1,4}),(\d++)")
_SHOWS_COMMA = re.compile(
    r"(?:^|[\s=€$(~≈])-?\d+,(?:\d{1,2}|"
    r"\d{4,})(?=[\s.;:)%€$]|[^\W\d]|$)|"
    r"\d\.\d{3},\d"
)
_SHOWS_POINT = re.compile(r"(?:^|[\s=€$(~≈])-?\d+\.(?:\d{1,2}|\d{4,})(?=[\s,;:)%€$]|[^\W\d]|$)")


def convert_decimal_commas_to_points(answer: str, text: str) -> str:
    """Convert the decimal commas of an answer to decimal points.

    1,234 is converted only if other numbers of the text have decimal commas, because many authors
    separate thousands by commas.

    Args:
        answer: a part of the text.
        text: a text in a language with decimal commas.
    """
    if "," not in answer and "." not in answer:
        return answer
    rest = text.replace(answer, " ")
    commas, points = bool(_SHOWS_COMMA.search(rest)), bool(_SHOWS_POINT.search(rest))
    if points and not commas:
        return answer
    answer = _SPACED_GROUPS.sub(lambda m: m[1] + re.sub(r"\D", "", m[2]) + "." + m[3], answer)
    answer = _GROUPED.sub(
        lambda m: m[1] + m[2].replace(".", "") + (f".{m[3]}" if m[3] else ""), answer
    )

    def replace_decimal_comma(match: re.Match[str]) -> str:
        is_decimal = commas or match[1] == "0" or len(match[2]) != 3
        return f"{match[1]}.{match[2]}" if is_decimal else match[0]

    return _WITH_COMMA.sub(replace_decimal_comma, answer)


_WORDS_OF = tuple(
    frozenset(words.split())
    for words in (
        "der die das ist und also eine ein sind mit beträgt daher es gilt",
        "la le les est donc une des de et pour que soit",
        "el la los las es por una que son entonces tanto",
        "o os é são portanto uma que de por da do então",
        "il la gli è quindi una che di sono",
    )
)
_NAMED_MARK = re.compile(r"\d[.,]\d")
_CYRILLIC = re.compile("[\u0430-\u044f]")
_MIN_WORDS = 3
_END_OF_TEXT = 600


def convert_decimal_commas_if_customary(answer: str, text: str) -> str:
    """Convert the decimal commas of a marked answer, such as one in a box, to points.

    The answer is returned unchanged unless the end of the text is in a language with decimal
    commas.
    """
    if "(" in answer or not _NAMED_MARK.search(answer) or _is_certainly_english(text[-_WINDOW:]):
        return answer
    tail = text[-_END_OF_TEXT:].lower()
    if not _CYRILLIC.search(tail, 0, 200):
        words = {*tail.replace(",", " ").split()}
        if (
            "the" in words
            or max(len(words & language_words) for language_words in _WORDS_OF) < _MIN_WORDS
        ):
            return answer
    return convert_decimal_commas_to_points(answer, text[-_WINDOW:])
