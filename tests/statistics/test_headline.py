"""What is said of a run whose seeds failed."""

import pytest

from sterling.statistics import Estimate, Headline, estimate, headline
from sterling.statistics.scores.headline import cautions_of
from sterling.types import Mistake

SCORES = [900.0, 950.0, None, None, None]


def test_headline_with_failed_seeds_has_no_single_number():
    made = headline(SCORES)
    assert made.made is None
    assert made.lost == 3
    assert made.survivors == estimate([900.0, 950.0])
    assert made.at_worst is None  # nothing says what the worst is
    assert str(made).startswith("3 of 5 seeds failed; mean of the other 2: 925")
    plain = made.to_json()
    assert plain["estimate"] is None
    assert plain["failed"] == 3
    assert plain["survivors"]["value"] == 925.0
    assert Headline.from_json(plain) == made


def test_headline_shows_failures_at_the_declared_worst_score():
    made = headline(SCORES, within=(0, 1000))
    assert made.made is None
    counted = estimate([900.0, 950.0, 0, 0, 0], within=(0, 1000))
    assert (made.at_worst.value, made.at_worst.low, made.at_worst.high) == (
        (counted.value, counted.low, counted.high)
    )
    assert made.at_worst.method == "bounded; 3 of 5 failed, counted as 0"
    assert "with failures at the worst, 0: 370" in str(made)
    assert Headline.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("failed", "value"), [("exclude", 925.0), ("worst", 370.0), (-100.0, 310.0)]
)
def test_headline_counts_failures_as_the_caller_declares(failed, value):
    made = headline(SCORES, failed=failed, within=(0 if failed != -100.0 else None, 1000))
    assert made.made.value == value
    assert "3 of 5 failed" in made.made.method
    assert made.to_json()["failed"] == 3
    with pytest.raises(Mistake, match="none is declared"):
        headline(SCORES, failed="worst")


def test_headline_of_all_failed_and_of_no_failed_seeds():
    assert str(headline([None, None])) == "2 of 2 seeds failed"
    assert headline([None, None]).to_json()["estimate"] is None
    assert headline([None, None], failed="worst", within=(0, 1)).made.value == 0.0
    whole = headline([1.0, 2.0])
    assert whole.made == estimate([1.0, 2.0])
    assert "failed" not in whole.to_json()


def test_headline_lists_few_seeds_beside_the_interval():
    made = headline([400.0, 500.0, None, 450.0], failed=0.0)
    assert made.seeds == "400, 500, failed, 450"
    assert "seeds 400, 500, failed, 450" in made.full_text()
    assert made.caution == "4 seeds cannot exclude that up to 53 % of runs fail"
    assert made.caution not in made.full_text()  # a summary says it once
    assert cautions_of([made, made]) == [made.caution]
    capped = headline([500.0] * 5, within=(0, 500))
    assert capped.full_text() == (
        "500.0 [239.1, 500.0], seeds 500, 500, 500, 500, 500 (95% bounded interval over 5 seeds: "
        "5 seeds cannot exclude that up to 45 % of runs fail)"
    )
    assert cautions_of([capped]) == []
    assert headline([1.0] * 6).seeds == ""


def test_headline_reads_older_json():
    old = {"per_seed": [1.0, 2.0], "estimate": 1.5, "low": 0.0, "high": 3.0, "n": 2}
    old |= {"method": "skew-t", "level": 0.95}
    made = Headline.from_json(old)
    assert made.made == Estimate(1.5, 0.0, 3.0, 2, "skew-t", 0.95)
