r"""Strip an answer of its layout: dollars, boxes, markdown, fonts, phrases and Unicode signs;
compare answers as they are written.

What stays is plain LaTeX: ``**−½ m²**`` becomes ``-\frac{1}{2} m^{2}``.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from sterling.language.task import final_answer

_COMMANDS = {
    **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\uff0d", "-"),
    **dict.fromkeys("\u00a0\u2007\u2009\u200a\u202f", " "),
    **dict.fromkeys("\u00b7\u22c5", "\\cdot "),
    **{
        "\u00d7": "\\times ",
        "\u00f7": "/",
        "\u00b1": "\\pm ",
        "\u2264": "\\le ",
        "\u2265": "\\ge ",
    },
    **{"\u221e": "\\infty ", "\u222a": "\\cup ", "\u2208": "\\in ", "\u2205": "\\emptyset "},
    **{"\u2248": "\\approx ", "\u2260": "\\ne ", "\u00b0": "^\\circ ", "\u2220": "\\angle "},
    **{"\u211d": "\\mathbb{R}", "\u03c0": "\\pi ", "\u03b1": "\\alpha ", "\u03b2": "\\beta "},
    **{"\u03b3": "\\gamma ", "\u03b4": "\\delta ", "\u03b8": "\\theta ", "\u03bb": "\\lambda "},
    **{"\u03bc": "\\mu ", "\u03c6": "\\phi ", "\u03c9": "\\omega ", "\u03c3": "\\sigma "},
    **{"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'},
}
_SIGNS = str.maketrans(_COMMANDS)
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b]+")
_LOWERED = re.compile("[\u2080-\u208b]+")
_FRACTION = re.compile("[\u00bc-\u00be\u2150-\u215e]")
_ROOT = re.compile("\u221a\\s*(\\d+|[A-Za-z])")
_FONTS = re.compile(
    r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf|it|sf|tt|normal)|mbox|operatorname|bm|boldsymbol)"
    r"\s*\{([^{}]*)\}"
)
_REMOVED = re.compile(
    r"\\(?:left|right|displaystyle|limits|[bB]igg?[lr]?)(?![A-Za-z])|(?<!\\)\\[,;:!]"
)
_BLANKS = re.compile(r"\\(?:quad|qquad)(?![A-Za-z])|(?<!\\)\\ |~|\s+")
_NAMED = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\(?:leq?|leqslant)(?![A-Za-z])|<="), r"\\le "),
    (re.compile(r"\\(?:geq?|geqslant)(?![A-Za-z])|>="), r"\\ge "),
    (re.compile(r"\\(lt|gt)(?![A-Za-z])"), lambda found: "<" if found[1] == "lt" else ">"),
    (re.compile(r"\\(?:emptyset|varnothing)(?![A-Za-z])|\\\{\s*\\\}"), r"\\emptyset "),
    (re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])"), r"\\pi "),
    (re.compile(r"(?<![A-Za-z\\])(?:infinity|inf)(?![A-Za-z])"), r"\\infty "),
    (re.compile(r"(?<=\d)\{,\}(?=\d)"), ","),
    (re.compile(r"\^\s*\{?\s*\\(?:circ|degree)(?![A-Za-z])\s*\}?"), r"^\\circ "),
)
_SENTENCE_END = re.compile(r"(?<![\\.])[.,;:]([}$\s]*)$")  # ends a sentence, not an expression
_PHRASE = re.compile(
    r"(?P<marks>[*_\s]*)(?:(?:so|thus|hence|therefore)[,:]?\s+)?(?:(?:the|my|our|your)\s+)?"
    r"(?:(?:final|correct|exact)\s+)?"
    r"(?:(?:answer|result|solution|value)s?(?:\s+(?:to|of|for)\s[^=\n]{1,60}?)?"
    r"[*_\s]*(?:\bis\b|\bare\b|:|=|\bequals\b)|it\s+is\b)[:\s]*",
    re.IGNORECASE,
)
_WRAPPED = (
    *((r"\(", r"\)"), (r"\[", r"\]"), ("$$", "$$"), ("$", "$"), ("**", "**"), ("__", "__")),
    *(("*", "*"), ("_", "_"), ("```", "```"), ("`", "`"), ('"', '"'), ("'", "'"), ("=", "")),
)
_LAYOUT = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:!]|\$")
_FRACTIONS = re.compile(r"\\[dtc]frac(?![A-Za-z])")


@functools.lru_cache(maxsize=4_000)
def plain_answer(text: str) -> str:
    """Return the answer as plain LaTeX on one line, without layout; a sign of currency before a
    number is ``\\$``."""
    previous = None
    while text != previous:
        previous, text = text, _without_wrapping(text.strip())
    text = _with_commands(text)
    text = re.sub(r"^(-?)\$(?=\s*-?[\d.])", r"\1\\$", text)
    text = re.sub(r"(?<!\\)\$", " ", text)
    return _SENTENCE_END.sub(r"\1", _BLANKS.sub(" ", text).strip()).strip()


def _without_wrapping(text: str) -> str:
    """Take one layer of layout off: a box, a phrase, marks around all of it, a full stop."""
    if "\\boxed" in text:
        text = final_answer(text)
    text = _SENTENCE_END.sub(r"\1", text).strip()
    phrase = _PHRASE.match(text)
    if phrase is not None and phrase.end() < len(text):
        rest, marks = text[phrase.end() :].strip(), phrase["marks"].strip()
        # **The answer is 73** as well as **Answer:** 73
        return rest.removeprefix(marks) if rest.startswith(marks) else rest.removesuffix(marks)
    for before, after in _WRAPPED:
        inside = text[len(before) : len(text) - len(after)]
        if text.startswith(before) and text.endswith(after) and len(text) > len(before + after):
            return inside if not after or after not in inside else text
    return text


def _with_commands(text: str) -> str:
    """Replace Unicode signs, fonts and synonyms by plain LaTeX."""
    text = _FRACTION.sub(lambda found: _written_fraction(found[0]), text)
    text = _ROOT.sub(r"\\sqrt{\1}", text).replace("\u221a", "\\sqrt")
    text = _RAISED.sub(lambda found: "^{" + _level(found[0]) + "}", text)
    text = _LOWERED.sub(lambda found: "_{" + _level(found[0]) + "}", text)
    text = text.translate(_SIGNS)
    previous = None
    while text != previous:
        previous, text = text, _FONTS.sub(r" \1 ", text)
    text = _BLANKS.sub(" ", _REMOVED.sub("", text))
    for pattern, plain in _NAMED:
        text = pattern.sub(plain, text)
    return text


def _level(digits: str) -> str:
    return unicodedata.normalize("NFKC", digits).replace("\u2212", "-")


def _written_fraction(sign: str) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", sign).partition("\u2044")
    return f"\\frac{{{top}}}{{{bottom}}}"


def same_text(first: str, second: str) -> bool:
    """Whether two texts differ only in blanks and layout."""
    return _without_blanks(first) == _without_blanks(second)


def appears_in(answer: str, prompt: str) -> bool:
    """Whether the prompt contains the answer as it is written, except for blanks and layout."""
    signs = r"\s*".join(map(re.escape, _without_blanks(answer)))
    whole = rf"(?<![\w.]){signs}(?!\w)"  # x+1 does not count as a part of 2x+1
    return bool(signs) and re.search(whole, _without_layout(prompt)) is not None


def _without_layout(text: str) -> str:
    return _FRACTIONS.sub(r"\\frac", _LAYOUT.sub("", text))


def _without_blanks(text: str) -> str:
    return re.sub(r"\s", "", _without_layout(text))
