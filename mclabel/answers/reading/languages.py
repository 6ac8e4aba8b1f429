"""Translates answers in other languages to English: units, conjunctions, `no solution`.

Only a few words matter for parsing an answer: conjunctions between two values, words that scale a
number, frequent units, and phrases that stand for no number. Phrases that announce an answer are in
`extraction/announcements.py`.
"""

from __future__ import annotations

import re

from mclabel.answers.reading.cardinals import CARDINALS
from mclabel.answers.reading.scripts import convert_east_asian_numerals, convert_signs_to_ascii
from mclabel.answers.values.units import LETTERS

_AND = (
    "且|并且|並且|以及|和|及|与|與|と|および|かつ|그리고|와|과|и|y|et|und|e|و|और|तथा|এবং|"
    "ও|และ|మరియు|na|dan|và|ve"
)
_OR = (
    "或者|或|または|もしくは|又は|또는|혹은|или|либо|o|ou|oder|أو|या|अथवा|বা|অথবা|หรือ|"
    "లేదా|au|atau|"
    "hoặc|veya|lub"
)
_SPECIAL = {
    "no solution": (
        "无解|無解|方程无解|无实数解|无实根|没有解|空集|解なし|解はない|해가 없다|해 없음|"
        "해없음|нет решений|"
        "решений нет|нет корней|keine lösung|keine lösungen|keine reelle lösung|sin solución|"
        "no hay solución|ninguna solución|no tiene solución|aucune solution|pas de solution|"
        "sem solução|nenhuma solução|não há solução|não tem solução|لا يوجد حل|لا حل|कोई हल नहीं|"
        "कोई समाधान नहीं|কোনো সমাধান নেই|সমাধান নেই|ไม่มีคำตอบ|పరిష్కారం లేదు|hakuna suluhisho|"
        "nessuna soluzione|il n'y a pas de solution|không có nghiệm|tidak ada solusi"
    ),
    "does not exist": (
        "不存在|存在しない|存在しません|존재하지 않는다|존재하지 않음|не существует|"
        "existiert nicht|no existe|"
        "n'existe pas|não existe|غير موجود|अस्तित्व में नहीं है|ไม่มีอยู่จริง|haipo|non esiste"
    ),
    "infinity": (
        "无穷大|正无穷|无穷|無限大|무한대|бесконечность|unendlich|infinito|infini|infinité|अनंत|อนันต์"
    ),
    "infinitely many": (
        "无数个|無数個|无穷多个|无穷多解|无数解|無数|無数にある|무수히 많다|бесконечно много|"
        "unendlich viele|"
        "infinitas soluciones|une infinité|infinitas soluções"
    ),
    "all real numbers": (
        "全体实数|任意实数|一切实数|すべての実数|모든 실수|все действительные числа|"
        "alle reellen zahlen|"
        "todos los números reales|tous les nombres réels|todos os números reais"
    ),
    "true": (
        "正确|正確|对|對|真|正しい|真である|참|맞다|맞음|верно|правда|истина|wahr|richtig|"
        "korrekt|verdadero|"
        "cierto|correcto|vrai|correct|verdadeiro|correto|certo|صحيح|صح|सही|सत्य|সত্য|সঠিক|"
        "ถูก|ถูกต้อง|จริง|"
        "నిజం|సరైనది|kweli|sahihi|vero|đúng|benar"
    ),
    "false": (
        "错误|錯誤|错|錯|假|不正确|不对|誤り|間違い|偽|거짓|틀리다|틀림|неверно|ложь|falsch|"
        "unwahr|falso|"
        "incorrecto|faux|incorreto|errado|خطأ|خاطئ|गलत|असत्य|মিথ্যা|ভুল|ผิด|เท็จ|తప్పు|"
        "అబద్ధం|uongo|si kweli|"
        "si sahihi|sai|salah"
    ),
    "yes": (
        "能|可以|会|是|是的|はい|네|예|да|ja|sí|si|oui|sim|نعم|हाँ|हां|হ্যাঁ|ใช่|అవును|ndiyo|vâng|ya"
    ),
    "no": (
        "不能|不可以|不会|否|不是|いいえ|아니오|아니요|нет|nein|non|não|لا|नहीं|না|ไม่ใช่|"
        "ไม่|కాదు|లేదు|hapana|không|tidak"
    ),
}
_PHRASES = {phrase: name for name, phrases in _SPECIAL.items() for phrase in phrases.split("|")}
_SCALES = {
    10**3: (
        "тысяч[аиу]?|тыс\\.?|mille|tausend|ألف|آلاف|हज़ार|हजार|হাজার|พัน|వేలు|వేల|వెయ్యి|elfu|nghìn|ribu"
    ),
    10**4: "หมื่น",
    10**5: "लाख|লক্ষ|লাখ|แสน|లక్షలు|లక్షల|లక్ష|lakhs?|lacs?",
    10**6: (
        "миллион(?:а|ов)?|млн\\.?|millones|millón|millions|millionen|milhões|milhão|مليون|ملايين|"
        "ล้าน|milioni|triệu|juta|मिलियन|মিলিয়ন"
    ),
    10**7: "करोड़|কোটি|కోట్లు|కోట్ల|crores?",
    10**9: "миллиард(?:а|ов)?|млрд\\.?|milliards?|milliarden?|مليار|bilhões|bilhão|tỷ|miliar",
}
_UNITS = {
    "cm^2": "平方厘米|平方公分|平方センチメートル|кв\\.? ?см",
    "m^2": "平方米|平方公尺|平方メートル|кв\\.? ?м",
    "km^2": "平方千米|平方公里|平方キロメートル",
    "cm^3": "立方厘米|立方公分|立方センチメートル",
    "m^3": "立方米|立方メートル",
    "mm": "毫米|ミリメートル|밀리미터|мм",
    "cm": (
        "厘米|公分|センチメートル|センチ|센티미터|см|сантиметр(?:а|ов)?|zentimeter|"
        "centimètres?|centímetros?|"
        "सेमी|सेंटीमीटर|সেমি|সেন্টিমিটার|سنتيمترا?ً?|سم|เซนติเมตร|ซม\\.?|సెం\\.?మీ\\.?|sentimita"
    ),
    "m": (
        "米|公尺|メートル|미터|м|метр(?:а|ов)?|mètres?|metros?|मीटर|মিটার|مترا?ً?|أمتار|เมตร|"
        "మీటర్లు|mita"
    ),
    "km": (
        "千米|公里|キロメートル|킬로미터|км|километр(?:а|ов)?|kilomètres?|kilómetros?|"
        "quilômetros?|किलोमीटर|"
        "किमी|কিলোমিটার|কিমি|كيلومترا?ً?|كم|กิโลเมตร|กม\\.?|కిలోమీటర్లు|కి\\.?మీ\\.?|kilomita"
    ),
    "g": (
        "克|グラム|그램|г|грамм(?:а|ов)?|gramm|grammes?|gramos?|gramas?|ग्राम|গ্রাম|غراما?ً?|"
        "جراما?ً?|กรัม|గ్రాములు"
    ),
    "kg": (
        "千克|公斤|キログラム|킬로그램|кг|килограмм(?:а|ов)?|kilogramm|kilogrammes?|"
        "kilogramos?|quilogramas?|"
        "किलोग्राम|किग्रा|কিলোগ্রাম|কেজি|كيلوغراما?ً?|كجم|كغ|กิโลกรัม|กก\\.?|కిలోలు|కిలోగ్రాములు"
    ),
    "liters": (
        "升|リットル|리터|л|литр(?:а|ов)?|litres?|litros?|लीटर|লিটার|لترا?ً?|لترات|ลิตร|లీటర్లు|lita"
    ),
    "ml": "毫升|ミリリットル|밀리리터|мл|миллилитр(?:а|ов)?",
    "hours": (
        "小时|小時|個小時|个小时|時間|시간|час(?:а|ов)?|ч|stunden?|heures?|horas?|ساعات|ساعة|"
        "घंटे|घंटा|घण्टे|ঘণ্টা|"
        "ঘন্টা|ชั่วโมง|గంటలు|గంట|గంటల|saa"
    ),
    "minutes": (
        "分钟|分鐘|分間|분|минут[аыу]?|мин\\.?|minuten?|minutos?|دقيقة|دقائق|मिनट|মিনিট|นาที|"
        "నిమిషాలు|"
        "నిమిషం|dakika"
    ),
    "seconds": (
        "秒钟|秒鐘|秒間|秒|초|секунд[аыу]?|sekunden?|secondes?|segundos?|ثانية|ثوان|सेकंड|"
        "সেকেন্ড|วินาที|"
        "సెకన్లు|sekunde"
    ),
    "days": (
        "天|日間|일|день|дня|дней|tagen?|tage|jours?|días?|dias?|أيام|يوما?ً?|दिन|দিন|วัน|రోజులు|siku"
    ),
    "weeks": (
        "周|星期|週間|주|недел[яиьюь]|wochen?|semaines?|semanas?|أسابيع|أسبوعا?ً?|हफ़्ते|"
        "सप्ताह|সপ্তাহ|สัปดาห์|వారాలు"
    ),
    "years": (
        "岁|歳|年|년|год(?:а|ов)?|лет|jahren?|jahre|jahr|ans|années?|años?|anos?|سنوات|سنة|"
        "साल|वर्ष|বছর|ปี|సంవత్సరాలు|miaka"
    ),
    "degrees": ("度|도|градус(?:а|ов)?|degrés?|grados?|graus?|درجة|डिग्री|ডিগ্রি|องศา|డిగ్రీలు|digrii"),
    "%": (
        "パーセント|퍼센트|프로|процент(?:а|ов)?|prozent|pour cent|pourcents?|por ciento|"
        "por cento|بالمئة|"
        "في المئة|بالمائة|प्रतिशत|শতাংশ|เปอร์เซ็นต์|శాతం"
    ),
    "dollars": (
        "美元|米ドル|ドル|달러|доллар(?:а|ов)?|dollars?|dólares|dólar|dollar|دولارا?ً?|दॉलर|"
        "डॉलर|ডলার|ดอลลาร์|డాలర్లు|dola"
    ),
    "euros": "欧元|歐元|ユーロ|유로|евро|ευρώ|يورو|यूरो|ইউরো|ยูโร|యూరోలు",
    "rupees": "रुपये|रुपए|रुपया|রুপি|రూపాయలు|రూపాయల|卢比|₹",
    "yen": "円|日元|日圆|엔",
}


_UNIT = re.compile(
    r"(?<=[\d%}) ])\s?(?:"
    + "|".join(f"(?P<u{number}>{words})" for number, words in enumerate(_UNITS.values()))
    + rf")(?![{LETTERS}])\.?",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"^(USD|EUR|GBP|CHF|INR|JPY|CNY|RMB|Rs\.?|US\$|R\$|[₹₩₽฿])\s?([-−]?\d[\d.,']*+)$"
)
_PAIRS_OF_DIGITS = re.compile(r"\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")
"""An Indian number with groups of two digits before the last three: 2,50,000."""
_CODES = {
    **{"INR": "rs", "₹": "rs", "Rs.": "rs", "JPY": "yen", "US$": "usd", "CNY": "yuan"},
    **{"RMB": "yuan", "R$": "reais", "₩": "won", "₽": "roubles", "฿": "baht"},
}
_MINUTES = re.compile(r"(?<=\d)分(?=\d|$)")
_UNIT_NAMES = [*_UNITS]
_SCALED = re.compile(
    r"(?<![\d.,])(\d[\d.,]*+)\s?(?:"
    + "|".join(f"(?P<s{len(str(size)) - 1}>{words})" for size, words in _SCALES.items())
    + r")(?![^\W\d_\u0e00-\u0e7f])(?:\s(?:de|di)\b)?",
    re.IGNORECASE,
)
_LATIN = frozenset(
    word
    for words in (*_SPECIAL.values(), *_SCALES.values(), *_UNITS.values(), _AND, _OR)
    for phrase in words.split("|")
    for word in re.sub(r"[\\?.]|\(\?:|\)|\[.*?\]", "", phrase).lower().split()
    if word.isascii() and len(word) > 1
) | frozenset(
    "litres metros horas dias stunde minute tage lakh crore lac usd eur gbp chf inr jpy cny "
    "rmb rs us$".split()
)
_LATIN |= frozenset(
    word for phrase in CARDINALS for word in phrase.split() if word.isascii() and len(word) > 1
)
_VALUE = r"[-−+]?(?:[\d(\[$\\√.]|\{)"
_JOINT = re.compile(
    rf"(?:(?<=[\d)\]}}$])|(?<=[\d)\]}}$] ))(?:(?P<and>{_AND})|(?P<or>{_OR}))(?=\s?{_VALUE}|"
    rf"\s?[a-z]\s?[=<>≤≥≠])"
)
_CHOICES = (
    "أبجدهو", "अबसद", "কখগঘঙ", "กขคงจ",
)  # fmt: skip
_CHOICE_OF = {letter: "ABCDEF"[at] for row in _CHOICES for at, letter in enumerate(row)}
_CHOICE_OF |= {"ا": "A", "А": "A", "С": "C"}
_CHOICE = re.compile(rf"\(?\s?([{''.join(_CHOICE_OF)}])\s?\)?(?:[.:)]\s*(?=\S)|[.:)]?$)")
_CALLED_CHOICE = re.compile(
    r"(?:选项|選項|选择|选|選|選択肢|选择题|보기|선택지|вариант|opción|opcion|option|"
    r"letra|alternativa|antwort|"
    r"الخيار|विकल्प|বিকল্প|ข้อ|ตัวเลือก|ఎంపిక|chaguo)[:：]?\s*(?=\(?[A-J]\)?$)|"
    r"(?<=^[A-J])[项項]$|(?<=^[A-J])번$",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"(?<![\d,.])(\d+),(\d{1,2}|\d{4,})(?![\d,])")
_GROUP = re.compile(r"\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}")
_CYRILLIC = re.compile("[а-яА-ЯёЁ]{1,}")
_COMMA_UNITS = re.compile(
    r"(?<![\d,])\d++,\d++ ?(?:stunden?|minuten?|sekunden?|tagen?|wochen?|jahren?|heures?|"
    r"secondes?|jours?|"
    r"semaines?|horas?|minutos?|segundos?|metros?|litros?|mètres?|gramm|grammes?|prozent|"
    r"días?|dias?)(?![^\W\d_])",
    re.IGNORECASE,
)
_MARKS = re.compile(
    "[\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09cd\u0e31-\u0e3a"
    "\u0e47-\u0e4e\u0c00-\u0c04\u0c3c-\u0c56\u064b-\u0652]+"
)


def translate_to_english(text: str) -> str:
    """Translate the numerals, units, conjunctions and set phrases of an answer to English.

    Args:
        text: an answer in any language. Its formulas and English words are not changed.
    """
    if text.isascii():
        if not _may_be_foreign(text):
            return text
    else:
        text = convert_east_asian_numerals(convert_signs_to_ascii(text))
    if "\\" in text:
        text = " ".join(_GROUP.sub(r" \1 ", text).split())
    phrase = _PHRASES.get(_strip_and_lower(text))
    if phrase is not None:
        return phrase
    text = _CALLED_CHOICE.sub("", text)
    choice = _CHOICE.match(text) if not text.isascii() else None
    if choice:
        return f"({_CHOICE_OF[choice[1]]}) {text[choice.end() :]}".strip()
    if not any(c.isdigit() for c in text):
        number = _convert_number_words_to_digits(text)
        if number is None:
            return text
        text = number
    if "," in text and (_CYRILLIC.search(text) or _COMMA_UNITS.search(text)):
        text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    text = _CODE.sub(_move_currency_behind_number, text)
    text = _SCALED.sub(_replace_scaled_number, text)
    if "時間" in text or "小时" in text or "小時" in text:
        text = _MINUTES.sub(" minutes ", text).rstrip()
    text = _UNIT.sub(lambda match: f" {_UNIT_NAMES[int((match.lastgroup or 'u0')[1:])]}", text)
    text = _JOINT.sub(_translate_conjunction, text)
    return text if text.isascii() else _MARKS.sub("", text)


def is_special_value_phrase(text: str) -> bool:
    """Return whether a text is a phrase of another language for a special value: `sin solución`."""
    return _strip_and_lower(text) in _PHRASES


def _strip_and_lower(text: str) -> str:
    return text.strip(" .!$*").lower()


def _move_currency_behind_number(match: re.Match[str]) -> str:
    """Write the currency of an amount such as `Rs. 2,50,000` or `CHF 1'200` after the number."""
    code, number = match.groups()
    if "'" in number or _PAIRS_OF_DIGITS.fullmatch(number):
        number = number.replace("'", "").replace(",", "")
    return f"{number} {_CODES.get(code, code)}"


def _convert_number_words_to_digits(text: str) -> str | None:
    """Return a number in words in digits, with the scale or unit after it; None for other texts.

    Examples are `cien`, `veinte mil` and `zwölf Stunden`.
    """
    bare = text.strip(" .!$*").lower()
    if (number := CARDINALS.get(bare)) is not None:
        return str(number)
    head, _, tail = bare.rpartition(" ")
    number = CARDINALS.get(head)
    if number is None:
        return None
    if tail == "mil":
        return f"{1000 * number}"
    written = f"{number} {tail}"
    match = _SCALED.fullmatch(written) or _UNIT.fullmatch(written, len(str(number)))
    return written if match else None


def _may_be_foreign(text: str) -> bool:
    lower = text.lower()
    words = lower.encode().translate(_TO_SPACES).split()  # faster than on characters
    return not _LATIN_BYTES.isdisjoint(words) or (
        not _LETTER_JOINTS.isdisjoint(words) and _BETWEEN_VALUES.search(lower) is not None
    )


_LETTER_JOINTS = frozenset((b"y", b"o", b"e"))
_BETWEEN_VALUES = re.compile(r"[\d)\]}$] ?[yoe](?![a-z])")
"""A conjunction of one letter between two values: `3 y 4`. Elsewhere the letter is a variable."""
_LATIN_BYTES = frozenset(word.encode() for word in _LATIN)
_TO_SPACES = bytes.maketrans(b".,{}\x1c\x1d\x1e\x1f", b" " * 8)


def _replace_scaled_number(match: re.Match[str]) -> str:
    digits = match[1]
    if re.fullmatch(r"\d+,\d{1,2}", digits):
        digits = digits.replace(",", ".")
    digits = digits.replace(",", "")
    if digits.count(".") > 1 or digits.endswith("."):
        return match[0]
    zeros = int(match.lastgroup[1:]) if match.lastgroup else 0
    whole, _, decimals = digits.partition(".")
    moved = whole + decimals[:zeros].ljust(zeros, "0")
    return f"{moved.lstrip('0') or '0'}{'.' + decimals[zeros:] if decimals[zeros:] else ''}"


def _translate_conjunction(match: re.Match[str]) -> str:
    word = match["and"] or match["or"]
    string = match.string
    if word.isascii() and not (
        string[match.start() - 1] == " " and string[match.end() : match.end() + 1] == " "
    ):
        return match[0]
    if word in ("y", "e", "o") and not _VALUE_AFTER.match(string, match.end()):
        return match[0]
    return " and " if match["and"] else " or "


_VALUE_AFTER = re.compile(rf" {_VALUE}|\s[a-z]\s?= ?[-\d]")
