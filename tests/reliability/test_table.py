"""The table of faults names files that exist, and the counts of its campaigns as they are kept."""

import json
import re
from pathlib import Path

import pytest
from every_case import every

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:tests|benchmarks)/[\w./-]+)`", PAGE)))


@every("name", NAMED)
def test_reliability_page_names_existing_files(name):
    assert (ROOT / name).is_file()


def test_reliability_page_names_a_test_for_every_promise():
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
    promises = [row for row in rows if "tested by" not in row and "tried" not in row]
    counts = [row for row in promises if re.search(r"\| \d+ \| \d+ \|", row)]
    assert len(promises) - len(counts) > 20
    assert all("`tests/" in row for row in promises if row not in counts)


@pytest.mark.parametrize("name", ["damage", "kills"])
def test_reliability_page_counts_equal_the_stored_campaign_results(name):
    file = ROOT / "benchmarks" / "results" / f"reliability-{name}.json"
    for kind, found in json.loads(file.read_text())["parts"].items():
        tried = found.get("tried", found.get("cases"))
        assert f"| {kind} | {tried} | {found['held']} |" in PAGE
