"""Verdicts on mathematical answers: a table of pairs, by kind."""

import pathlib
from collections import Counter, defaultdict

TABLE = pathlib.Path(__file__).parent / "math_answers.tsv"


def read_table():
    """Return the (verdict, truth, answer) of each pair, by kind."""
    kinds, rows = defaultdict(list), []
    for line in TABLE.read_text().splitlines()[1:]:
        if line.startswith("# "):
            rows = kinds[line.removeprefix("# ")]
        else:
            rows.append(tuple(line.split("\t")))
    return kinds


def test_table_has_right_and_wrong_pairs_of_each_kind():
    kinds = read_table()
    assert len(kinds) >= 12
    for rows in kinds.values():
        assert len(set(rows)) == len(rows) >= 15
        assert all(len(row) == 3 for row in rows)
        counts = Counter(verdict for verdict, _, _ in rows)
        assert set(counts) == {"right", "wrong"}
        assert min(counts.values()) >= 5
