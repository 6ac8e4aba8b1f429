"""Converts digits, signs and numerals of non-Latin scripts to ASCII: `१२`, `十三`, `1.2万`,
`四分之三`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from fractions import Fraction

_DIGITS = {
    code: str(unicodedata.decimal(chr(code)))
    for code in range(128, sys.maxunicode + 1)
    if unicodedata.category(chr(code)) == "Nd"
}
_SIGNS = {
    "٫": ".", "٬": ",", "،": ", ", "؛": ";", "٪": "%", "؟": "?", "、": ", ", "。": ".", "।": ".",
    "॥": ".", "︰": ":", "∶": ":", "【": "[", "】": "]",
}  # fmt: skip
_FULL_WIDTH = {0xFEE0 + code: chr(code) for code in range(0x21, 0x7F)}
_TABLE = {**_FULL_WIDTH, **_DIGITS, **str.maketrans(_SIGNS)}
_MAY_HOLD_DIGITS = re.compile("[\u0600-\u1fff\ua620-\uabff\uff00-\uffff]")
"""Ranges of scripts with non-ASCII digits. A class of few ranges is much faster than one of all
digits."""

_CHINESE_DIGITS = dict(
    zip("〇零一二三四五六七八九两兩壹贰叁", (0, *range(10), 2, 2, 1, 2, 3), strict=True)
)
_SMALL = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_LARGE = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "兆": 10**12}
_KOREAN = str.maketrans("십백천만억조", "十百千万亿兆")
_NUMERAL = rf"[\d.{''.join((*_CHINESE_DIGITS, *_SMALL, *_LARGE))}]"
_COUNTERS = (
    "個|个|只|隻|人|元|円|圆|块|本|枚|匹|台|岁|歳|米|分(?!之|の)|秒|天|月|年(?![级級生])|"
    "日|小时|小時|時間|厘米|"
    "毫米|公|千克|千米|克|斤|升|度|种|種|条|條|张|張|件|名|颗|顆|辆|輛|头|頭|双|雙|组|組|"
    "对|倍|つ|杯|"
    "冊|册|支|箱|瓶|页|頁|位|棵|把|套|ヶ|か所|平方|立方|美元|欧元|次(?!函|方)|%"
)
_BETWEEN = r"(?:(?<![^\W\da-zA-Z])|(?<=[或和与及且、]))"
"""Position at which a numeral may begin: not directly after a letter of another script."""
_FRACTION = re.compile(
    rf"(?:({_NUMERAL}{{1,20}}+)又)?({_NUMERAL}{{1,20}}+)分[之の] ?({_NUMERAL}{{1,20}}+)"
)
_RUN = re.compile(
    rf"{_BETWEEN}(?P<sign>[负負]|マイナス)?(?P<whole>{_NUMERAL}{{1,40}}+)"
    rf"(?:[点點](?P<decimals>[〇零一二三四五六七八九]{{1,20}}))?"
    rf"(?P<behind>(?:{_COUNTERS})[\u3040-\u9fff]{{0,4}}|(?=$|[^\w]|[或和与及且、]))"
)
_HALF = re.compile(r"(?:个|個|時間|小时|小時|天|年|元|斤|倍)半")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\D")
_HAS_CHINESE = re.compile(f"[{''.join((*_CHINESE_DIGITS, *_SMALL, *_LARGE))}半]|分[之の]")
_SPACED = re.compile(r"(?<=[十百千万亿兆]) (?=\d)")
_AFTER_DIGIT = re.compile(r"(?<=\d) ?([십백천만억조]{1,2})(?![가-힣]{3})")


def keep_non_ascii_characters(text: str) -> str:
    """Return the non-ASCII characters of a text.

    A search among these characters is much faster than a search in a long English text with a few
    of them.
    """
    return text.encode(errors="replace").translate(None, _ASCII).decode()


_ASCII = bytes(range(128))


def convert_digits_to_ascii(text: str) -> str:
    """Convert the decimal digits of every script to ASCII, and leave all other characters
    unchanged.
    """
    return (
        text.translate(_DIGITS)
        if _MAY_HOLD_DIGITS.search(keep_non_ascii_characters(text))
        else text
    )


def convert_signs_to_ascii(text: str) -> str:
    """Convert digits, punctuation and full-width signs to ASCII."""
    return text.translate(_TABLE)


def convert_east_asian_numerals(text: str) -> str:
    """Convert Chinese, Japanese and mixed numerals of a text, such as `1.2万`, to digits."""
    if not _HAS_CHINESE.search(text):
        text = _AFTER_DIGIT.sub(lambda m: m[1].translate(_KOREAN), text)
        if not _HAS_CHINESE.search(text):
            return text
    text = _SPACED.sub("", text).replace("千米", "公里").replace("千克", "公斤")
    text = {"半": "\\frac{1}{2}", "一半": "\\frac{1}{2}"}.get(text.strip(), text)
    return _RUN.sub(_convert_chinese_number, _FRACTION.sub(_convert_chinese_fraction, text))


def parse_chinese_number(numeral: str) -> Fraction | None:
    """Return the value of a numeral of Chinese and ASCII digits; None if it is not a number."""
    if len(numeral) > 2 and all(c in _CHINESE_DIGITS for c in numeral):
        return Fraction(int("".join(str(_CHINESE_DIGITS[c]) for c in numeral)))  # 二〇二四
    total, section, number = Fraction(0), Fraction(0), None
    last, largest, is_short = 0, 10**16, False
    for token in _TOKEN.findall(numeral):
        if token[0].isdigit() or token in _CHINESE_DIGITS:
            if number is not None and number != 0:
                return None
            is_short = last > 10 and token in _CHINESE_DIGITS and number is None
            number = Fraction(_CHINESE_DIGITS.get(token, 0) if token in _CHINESE_DIGITS else token)
        elif token in _SMALL:
            last = _SMALL[token]
            section += (1 if number is None else number) * last
            number = None
        elif token in _LARGE:
            last = _LARGE[token]
            section += number or 0
            if not section and not total:
                return None
            if last > largest:
                total = (total + section) * last
            else:
                total += section * last
            section, number, largest = Fraction(0), None, last
        else:
            return None
    if is_short and number:  # 一百二 is 120
        return total + section + number * last / 10
    return total + section + (number or 0)


def _convert_chinese_number(match: re.Match[str]) -> str:
    whole, decimals, behind = match["whole"], match["decimals"], match["behind"]
    half = _HALF.match(behind)
    if not _HAS_CHINESE.search(whole) and not half:
        return match[0]
    number = parse_chinese_number(whole)
    if number is None or (len(whole) == 1 and whole in _LARGE):
        return match[0]
    if decimals:
        number += Fraction(
            int("".join(str(_CHINESE_DIGITS[c]) for c in decimals)), 10 ** len(decimals)
        )
    if half:
        number, behind = number + Fraction(1, 2), behind.replace("半", "", 1)
    sign = "-" if match["sign"] else ""
    return f"{sign}{_format_decimal(number)}{behind}"


def _convert_chinese_fraction(match: re.Match[str]) -> str:
    whole, bottom, top = match.groups()
    if bottom in ("百", "千") and not whole:
        value = parse_chinese_number(top)
        if value is None:
            return match[0]
        return f"{_format_decimal(value)}%" if bottom == "百" else _format_decimal(value / 1000)
    numbers = [parse_chinese_number(part) for part in (bottom, top)]
    before = parse_chinese_number(whole) if whole else Fraction(0)
    if None in numbers or before is None or not numbers[0]:
        return match[0]
    below, above = (_format_decimal(number) for number in numbers if number is not None)
    return f"{_format_decimal(before) if whole else ''}\\frac{{{above}}}{{{below}}}"


def _format_decimal(number: Fraction) -> str:
    """Write a number, which must have finitely many decimals, as a decimal."""
    if number.denominator == 1:
        return str(number.numerator)
    places = 1
    while (number * 10**places).denominator > 1:
        places += 1
    digits = str(int(number * 10**places)).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"
