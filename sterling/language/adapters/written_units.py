"""Read what follows a written number: percent, a scale ("million"), a unit, a currency."""

from __future__ import annotations

import re
from fractions import Fraction

_SCALES = {
    **{"%": Fraction(1, 100), "percent": Fraction(1, 100), "per cent": Fraction(1, 100)},
    **{"pct": Fraction(1, 100), "dozen": Fraction(12), "hundred": Fraction(100)},
    **{"thousand": Fraction(10**3), "million": Fraction(10**6), "billion": Fraction(10**9)},
    "trillion": Fraction(10**12),
}
_SCALED = re.compile(rf"\s*\\?(?P<scale>{'|'.join(_SCALES)})s?(?![A-Za-z])(?P<rest>.*)", re.DOTALL)
_SYNONYMS = {
    **dict.fromkeys(("kilometer", "kilometre", "kms"), "km"),
    **dict.fromkeys(("meter", "metre"), "m"),
    **dict.fromkeys(("centimeter", "centimetre"), "cm"),
    **dict.fromkeys(("millimeter", "millimetre"), "mm"),
    **dict.fromkeys(("kilogram", "kilo", "kgs"), "kg"),
    **dict.fromkeys(("gram", "gm"), "g"),
    **dict.fromkeys(("milligram",), "mg"),
    **dict.fromkeys(("second", "sec"), "s"),
    **dict.fromkeys(("minute", "mins"), "min"),
    **dict.fromkeys(("hour", "hr", "hrs"), "h"),
    **dict.fromkeys(("liter", "litre", "l"), "L"),
    **dict.fromkeys(("milliliter", "millilitre", "ml"), "mL"),
    **dict.fromkeys(("inch", "inche"), "in"),
    **dict.fromkeys(("foot", "feet"), "ft"),
    **dict.fromkeys(("pound", "lbs"), "lb"),
    **dict.fromkeys(("mile",), "mi"),
    **dict.fromkeys(("yard",), "yd"),
    **dict.fromkeys(("newton",), "N"),
    **dict.fromkeys(("joule",), "J"),
    **dict.fromkeys(("watt",), "W"),
    **dict.fromkeys(("volt",), "V"),
    **dict.fromkeys(("dollar", "usd", "USD", "\\$"), "$"),
    **dict.fromkeys(("euro", "EUR"), "\u20ac"),
    **dict.fromkeys(("degree", "deg", "\\circ"), "deg"),
    **dict.fromkeys(("radian",), "rad"),
}
_KNOWN = {
    *_SYNONYMS.values(),
    *("km", "cm", "mm", "nm", "dm", "kg", "mg", "ms", "min", "day", "kWh", "Hz", "kHz", "MHz"),
    *("Pa", "kPa", "kJ", "kW", "mol", "mph", "kmh", "km/h", "K", "A", "C", "F", "cents", "cent"),
    *("unit", "kN", "eV", "GeV", "MeV", "m/s", "oz", "gal", "atm", "ha", "mA", "kV", "cc", "gb"),
    *("sq", "cu", "bit", "byte", "GB", "MB", "KB", "TB", "rpm", "USD", "EUR"),
}
CURRENCY = "\\\\\\$|[\u20ac\u00a3\u00a5\u20b9]"
_STOPS = {
    *("and", "or", "not", "is", "are", "if", "but", "to", "no", "minus", "plus", "times", "wrong"),
    *(
        "below",
        "above",
        "negative",
        "less",
        "more",
        "squared",
        "cubed",
        "factorial",
        "half",
        "from",
    ),
    *("halves", "third", "thirds", "quarter", "quarters", "fourth", "fourths", "tenth", "tenths"),
    *("hundredth", "hundredths", "thousandth", "thousandths", "divided", "mod", "over", "choose"),
    *("at", "least", "most", "maybe", "isn", "isnt", "false", "incorrect", "base", "binary", "hex"),
    *("fifth", "fifths", "sixth", "sixths", "eighth", "eighths", "sin", "cos", "tan", "log", "ln"),
    *("am", "pm", "st", "nd", "rd", "th", "bc", "ad", "bce", "ce", "octal", "root", "roots"),
}
_UNIT = re.compile(
    r"(?:\^\\circ\s?(?:[CFK](?![A-Za-z]))?|[A-Za-z\u00b5\u2126]+|\\%|\\(?:circ|mu|Omega)\s?"
    r"|\\\$|[\u20ac\u00a3\u00a5\u20b9])"
)
_EXPONENT = re.compile(r"\^\s?\{?\s?(-?\d)\s?\}?")


def read_scale(text: str) -> tuple[Fraction, str]:
    """Return the factor that the text begins with (1 without one), and the rest."""
    factor = Fraction(1)
    found = _SCALED.match(text)
    while found is not None:
        factor, text = factor * _SCALES[found["scale"]], found["rest"]
        found = _SCALED.match(text)
    return factor, text


def read_unit(text: str) -> str | None:
    """Return the unit that the text after a number is, in one spelling; "" for no text, None if it
    is no unit. Without a blank before it only known units count: ``5cm``, but ``5x`` is a
    product; single letters need both (``5 m``)."""
    body = text.strip()
    if not body:
        return ""
    if len(body) > 60 or not re.fullmatch(
        rf"(?:{_UNIT.pattern}|{_EXPONENT.pattern}|[\s/.*]|\\cdot)+", body
    ):
        return None
    words = _UNIT.findall(body)
    if not words or body[0] in "/*" or len(words) > 4:
        return None
    if any(word.lower() in _STOPS for word in words):
        return None
    spaced, names = text[0].isspace(), [_spelling(word) for word in words]
    if not all(_is_unit(name, word, spaced) for name, word in zip(names, words, strict=True)):
        return None
    return _canonical(body)


def _is_unit(name: str, word: str, spaced: bool) -> bool:
    if word.startswith(("^", "\\")) or not word.isascii():
        return True
    if name in _KNOWN:
        return spaced or len(word) > 1
    return spaced and len(word) > 2


def _spelling(word: str) -> str:
    word = word.strip()
    if word.startswith("^\\circ"):
        return "deg" + word.removeprefix("^\\circ").strip()
    singular = word[:-1] if len(word) > 3 and word.endswith("s") else word
    for each in (word, singular, word.lower(), singular.lower()):
        if each in _SYNONYMS:
            return _SYNONYMS[each]
    return word if word in _KNOWN else singular.lower() if len(word) > 3 else word


def _canonical(body: str) -> str:
    """Return one spelling of a unit: ``square centimeters``, ``cm²`` and ``cm^{2}`` agree."""
    body = re.sub(r"(?i)\b(?:square|sq)\.?\s+([A-Za-z]+)", r"\1^2", body)
    body = re.sub(r"(?i)\b(?:cubic|cu)\.?\s+([A-Za-z]+)", r"\1^3", body)
    body = re.sub(r"(?i)\bmph\b", "mi/h", body)
    body = re.sub(r"(?i)\b(?:kmh|kph|kmph)\b", "km/h", body)
    body = _EXPONENT.sub(r"^\1", body)
    body = re.sub(r"(?i)\s*\bper\b\s*|\s*/\s*", "/", body)
    body = re.sub(r"\s*(?:\*|\\cdot)\s*", " ", body)
    body = _UNIT.sub(lambda found: f"{_spelling(found[0])} ", body)
    return re.sub(r"\s*([/^])\s*", r"\1", body).replace(".", "").strip()
