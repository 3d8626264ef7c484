"""Read answers that are texts, not mathematics: dates, times, versions, telephone numbers, numbers
in a base, words and names. Nothing of them is computed."""

from __future__ import annotations

import re

Key = tuple[object, ...]
_MONTHS = "january february march april may june july august september october november december"
_MONTH = rf"(?P<month>{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in _MONTHS.split())}|sept)\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATES = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<number>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
        rf"{_MONTH}\s+{_DAY}(?:,?\s+(?P<year>\d{{4}}))?",
        rf"{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+(?P<year>\d{{4}}))?",
        rf"{_MONTH},?\s+(?P<year>\d{{4}})",
    )
)
_OTHER_DATE = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})")
_TIME = re.compile(
    r"(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?\s*(?:([ap])\.?\s?m\.?)?(?![A-Za-z])", re.IGNORECASE
)
_RATIO = re.compile(r"\d[\d.,]*(?:\s*:\s*\d[\d.,]*)+")
_BASED = re.compile(
    r"\(?\s*(\d[\dA-Fa-f, ]*|[A-Fa-f]+\d[\dA-Fa-f]*|[A-Fa-f]{2,}(?=\s*_\s*\{?16))\s*\)?"
    r"(?:\s*_\s*\{?\s*\(?(?:base )?\s*|\s+\(?(?:in )?base[ -]?)(\w+)\)?\s*\}?"
)
_PREFIXED = re.compile(r"0(?:[xX]([\dA-Fa-f]+)|[bB]([01]+)|[oO]([0-7]+))")
_BASES = {
    **{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9},
    **{
        "ten": 10,
        "eleven": 11,
        "twelve": 12,
        "sixteen": 16,
        "bin": 2,
        "oct": 8,
        "dec": 10,
        "hex": 16,
    },
}
_DOTTED = re.compile(
    r"v?\d+(?:\.\d+){2,}[-+.\w]*(?:/\d+)?|v\s?\d+(?:\.\d+)*[-+.\w]*", re.IGNORECASE
)
_TELEPHONE = re.compile(
    r"(?:\+?\d{1,3}[ .-]?)?(?:\(\d{1,5}\) ?-?)?\d{1,6}(?:[ .-]\d{1,7})*[ .-]\d{1,7}"
)
_HYPHENS = re.compile(r"\d+(?:-\d+)+")
_CODE = re.compile(r"#?[A-Za-z\d]*[A-Za-z]\d[A-Za-z\d]*(?:[-_.]?[A-Za-z\d]+)*")
_FORMULA = re.compile(r"(?:\(?[A-Z][a-z]?\)?(?:\s?_\s?\{?\s?\d+\s?\}?)?\s?){2,}")  # CH_3OH
_HYPHENATED = re.compile(r"[^\W\d_]{2,}(?:-[^\W\d_]{2,})+")
_WORDS = re.compile(r"[^\W\d_]+(?:[ .'&\"]+[^\W\d_]+)*[.'\"]*")
_GEOMETRY = re.compile(
    r"\\(?:triangle|angle|overline|over(?:left|right|leftright)arrow|widehat|parallel|perp|cong|sim"
    r"|square|odot|measuredangle|vec|stackrel)(?![A-Za-z])"
)
_FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "max", "min", "gcd", "lcm", "mod"),
    *("det", "arg", "sqrt", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "lim", "sup"),
    *("inf", "alpha", "beta", "gamma", "delta", "theta", "lambda", "frac"),
}
_COMMAND = re.compile(r"\\[A-Za-z]+")
_SAME_IN_CAPITALS = set(["yes", "no", "true", "false", "none", "even", "odd", "always", "never"])


def text_key(text: str) -> Key | None:
    """Return what a text (plain LaTeX) stands for if it is no mathematics, else None; texts with
    the same key mean the same."""
    for read in (_date, _time, _based, _numbered):
        key = read(text)
        if key is not None:
            return key
    return None


def is_words(text: str, algebra: bool = False) -> bool:
    """Whether the text is words or names: letters without digit, operator or LaTeX command
    (variables, if the task declares ``algebra``), or words with numbers between them."""
    if _GEOMETRY.search(text) and not re.search(r"[-+*/^=<>|!\d]", text):
        return not _COMMAND.search(_GEOMETRY.sub("", text))
    if _WORDS.fullmatch(_without_choice(text)):
        return not algebra or " " in text
    if _HYPHENATED.fullmatch(text):
        return max(map(len, text.split("-"))) > 2
    if re.search(r"[+*^=<>|!\\_/{}()\[\]]", text):
        return False
    several = re.search(r"\d\s*[A-Za-z]+,?\s+\d", text)  # 1h 30min
    long = [word for word in re.findall(r"[^\W\d_]{3,}", text) if word.lower() not in _FUNCTIONS]
    return bool(several) or (bool(long) and not re.fullmatch(r"\d+[A-Za-z]+", text))


def same_words(truth: str, answer: str) -> bool:
    """Whether two texts agree; a word of three letters or more may begin with a capital or not,
    and a longer one may be in capitals."""
    first, second = (_word_list(text) for text in (truth, answer))
    return len(first) == len(second) and all(map(_same_word, first, second))


def _same_word(first: str, second: str) -> bool:
    if first == second:
        return True
    if first.lower() != second.lower():
        return False
    plain = len(first) > 2 and first[1:].islower() and second[1:].islower()
    capitals = (
        len(first) > 4
        and re.search("[aeiouy]", first.lower())
        and (first.isupper() or second.isupper())
    )
    return bool(plain or capitals) or first.lower() in _SAME_IN_CAPITALS


def _word_list(text: str) -> list[str]:
    text = re.sub(r"[\"`{}]", "", _without_choice(text))
    text = re.sub(r"\s*([-,;:/&])\s*", r"\1", text)
    return text.rstrip(".").split()


def _without_choice(text: str) -> str:
    """Return the letter of a choice, ``(A)`` or ``A)``, without its brackets."""
    return re.sub(r"^\(?\s*([A-Za-z])\s*\)$", r"\1", text)


def _date(text: str) -> Key | None:
    for form in _DATES:
        found = form.fullmatch(text)
        if found is not None:
            parts = found.groupdict()
            number = parts.get("number") or _month_number(parts["month"])
            year, day = parts.get("year"), parts.get("day")
            return ("date", year, int(number), int(day) if day else None)
    found = _OTHER_DATE.fullmatch(text)
    return None if found is None else ("day and month", int(found[1]), int(found[3]), found[4])


def _month_number(name: str) -> int:
    return [month[:3] for month in _MONTHS.split()].index(name[:3].lower()) + 1


def _time(text: str) -> Key | None:
    found = _TIME.fullmatch(text)
    if found is None or not (found[2] or found[4]):
        return ("ratio", re.sub(r"\s", "", text)) if _RATIO.fullmatch(text) else None
    hour, rest = int(found[1]), (int(found[2] or 0), int(found[3] or 0))
    if found[4]:
        return ("time", hour % 12 + 12 * (found[4].lower() == "p"), *rest)
    return ("time" if hour > 12 or hour == 0 else "time, morning or not", hour, *rest)


def _based(text: str) -> Key | None:
    found = _PREFIXED.fullmatch(text)
    if found is not None:
        base, digits = next((b, d) for b, d in zip((16, 2, 8), found.groups(), strict=True) if d)
        return ("base", base, int(digits, base))
    found = _BASED.fullmatch(text)
    if found is None:
        return None
    digits, named = re.sub(r"[, ]", "", found[1]), _base(found[2].lower())
    if named is None:
        return None
    try:
        return ("base", named, int(digits, named))
    except ValueError:  # 777_7
        return ("base", named, digits.lower())


def _base(name: str) -> int | None:
    return int(name) if name.isdecimal() and len(name) < 5 else _BASES.get(name)


def _numbered(text: str) -> Key | None:
    """Return the key of a version, a telephone number, digits with hyphens, or a code."""
    if _DOTTED.fullmatch(text):
        return ("version", re.sub(r"^v\s?", "", text, flags=re.IGNORECASE))
    digits = re.sub(r"\D", "", text)
    marked = re.search(r"\d-\d|\) ?\d|^\+\d+ ", text) is not None
    if _TELEPHONE.fullmatch(text) and 7 <= len(digits) <= 15 and marked:
        return ("digits", digits)
    if _HYPHENS.fullmatch(text):
        return ("hyphens", text)
    if "_" in text and _FORMULA.fullmatch(text):
        return ("code", re.sub(r"[_{}\s]", "", text))
    is_float = re.fullmatch(r"[\d.]+[eE]\d+", text)
    return ("code", text) if _CODE.fullmatch(text) and not is_float else None
