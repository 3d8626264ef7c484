"""Search a local corpus: lines of text, ranked by BM25."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterable
from pathlib import Path

from sterling.system.mistake import Mistake

TERM_SATURATION, LENGTH_WEIGHT = 1.2, 0.75  # k1 and b
_WORD = re.compile(r"\w+")


class Corpus:
    """Lines to search in.

    The score of a line is that of BM25 (Robertson and Zaragoza, "The Probabilistic Relevance
    Framework", 2009, eq. 3.15) with k1 = 1.2 and b = 0.75; the weight of a word found in n of N
    lines is ``log(1 + (N - n + 0.5) / (n + 0.5))``, which is never negative. Words are compared
    without capitals.

    Args:
        lines: the texts; blank ones are left out. Mistake if none is left.
    """

    def __init__(self, lines: Iterable[str]):
        self.lines = [line.strip() for line in lines if line.strip()]
        if not self.lines:
            raise Mistake("the corpus to search in is empty; give lines of text")
        self._counts = [collections.Counter(_split_words(line)) for line in self.lines]
        self._lengths = [counts.total() for counts in self._counts]
        self._mean = max(1.0, sum(self._lengths) / len(self.lines))
        self._places: dict[str, list[int]] = collections.defaultdict(list)
        for place, counts in enumerate(self._counts):
            for word in counts:
                self._places[word].append(place)

    @classmethod
    def read(cls, path: str | Path) -> Corpus:
        """Read the lines of a text file; Mistake if it cannot be read."""
        try:
            return cls(Path(path).read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise Mistake(f"cannot read the corpus {path} ({error}); give a text file") from error

    def search(self, query: str, count: int = 3) -> list[str]:
        """Return the ``count`` best lines that share a word with the query, best first; ties in the
        corpus's order."""
        scores: dict[int, float] = collections.defaultdict(float)
        for word in set(_split_words(query)):
            places = self._places.get(word, [])
            rest = len(self.lines) - len(places)
            weight = math.log(1 + (rest + 0.5) / (len(places) + 0.5))
            for place in places:
                often = self._counts[place][word]
                length = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * self._lengths[place] / self._mean
                scores[place] += (
                    weight * often * (TERM_SATURATION + 1) / (often + TERM_SATURATION * length)
                )
        best = sorted(scores, key=lambda place: (-scores[place], place))[:count]
        return [self.lines[place] for place in best]


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
