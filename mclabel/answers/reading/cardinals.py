"""Number words up to a hundred in five languages, such as `veintiuno` and `vierzig`.

Each row of `_ROWS` is one language with three parts: the words from zero upwards, the words for the
tens, and the patterns that join a ten and a unit. `numerals` reads English number words, and
`scripts` reads Chinese and Japanese ones.
"""

from __future__ import annotations

_ROWS = (
    # Spanish
    (
        "cero uno|una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
        "quince dieciséis|dieciseis diecisiete dieciocho diecinueve veinte "
        "veintiuno|veintiún|veintiuna veintidós|veintidos veintitrés|veintitres veinticuatro "
        "veinticinco veintiséis|veintiseis veintisiete veintiocho veintinueve",
        "30:treinta 40:cuarenta 50:cincuenta 60:sesenta 70:setenta 80:ochenta 90:noventa 100:cien",
        "{ten} y {unit}",
    ),
    # Portuguese
    (
        "zero um|uma dois|duas três|tres quatro cinco seis sete oito nove dez onze doze treze "
        "quatorze|catorze quinze dezesseis|dezasseis dezessete|dezassete dezoito "
        "dezenove|dezanove",
        "20:vinte 30:trinta 40:quarenta 50:cinquenta 60:sessenta 70:setenta 80:oitenta 90:noventa "
        "100:cem",
        "{ten} e {unit}",
    ),
    # French
    (
        "zéro|zero un|une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze "
        "quinze seize dix-sept dix-huit dix-neuf",
        "20:vingt 30:trente 40:quarante 50:cinquante 60:soixante 80:quatre-vingt 80:quatre-vingts "
        "70:septante 90:nonante 100:cent",
        "{ten}-{unit}|{ten} {unit}|{ten} et {unit}|{ten}-et-{unit}",
    ),
    # German
    (
        "null eins|ein zwei drei vier fünf|fuenf sechs sieben acht neun zehn elf zwölf|zwoelf "
        "dreizehn vierzehn fünfzehn|fuenfzehn sechzehn siebzehn achtzehn neunzehn",
        "20:zwanzig 30:dreißig 30:dreissig 40:vierzig 50:fünfzig 50:fuenfzig 60:sechzig 70:siebzig "
        "80:achtzig 90:neunzig 100:hundert 100:einhundert",
        "{unit}und{ten}",
    ),
    # Russian
    (
        "ноль|нуль один|одна|одно два|две три четыре пять шесть семь восемь девять десять "
        "одиннадцать двенадцать тринадцать четырнадцать пятнадцать шестнадцать семнадцать "
        "восемнадцать девятнадцать",
        "20:двадцать 30:тридцать 40:сорок 50:пятьдесят 60:шестьдесят 70:семьдесят 80:восемьдесят "
        "90:девяносто 100:сто",
        "{ten} {unit}",
    ),
)
_SPANS = {"soixante": 19, "quatre-vingt": 19}
"""Largest number that is added to a ten, for tens to which more than nine is added."""


def _build_numbers_by_word(small_tens_patterns: tuple[str, str, str]) -> dict[str, int]:
    small, tens, patterns = small_tens_patterns
    words = {word: n for n, names in enumerate(small.split()) for word in names.split("|")}
    units = [*words.items()]
    for entry in tens.split():
        size, _, ten = entry.partition(":")
        words[ten] = int(size)
        for unit, n in units if size != "100" else ():
            if 0 < n <= _SPANS.get(ten, 9):
                for pattern in patterns.split("|"):
                    words[pattern.format(ten=ten, unit=unit)] = int(size) + n
    return words


CARDINALS = {word: n for row in _ROWS for word, n in _build_numbers_by_word(row).items()}
"""Numbers by their words in lower case."""
