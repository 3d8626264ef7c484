"""A channel of which less is better is compared so, from run folders alone."""

import json

import pytest

from sterling.cli_options import parse_command_line
from sterling.commands import compare as command
from sterling.report.overall_scores import compare_overall
from sterling.report.pairwise_contest import compare_on_environments
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results
from sterling.report.verdict_words import overall_sentence, pair_sentences
from sterling.statistics import headline
from sterling.types import Mistake

LOW = [1.0 + seed / 60 for seed in range(30)]
HIGH = [cost + 4.0 for cost in LOW]


def costly(folder, costs, way=-1, within=(0.0, 100.0), lost=()):
    """Give a run folder a channel ``cost``."""
    file = folder / "result.json"
    result = json.loads(file.read_text())
    result["channels"] = {"cost": {"reduce": "sum", "better": way, "within": within}}
    per_seed = [None if seed in lost else cost for seed, cost in enumerate(costs)]
    result["final"]["cost"] = {"per_seed": per_seed, "within": within, "better": way}
    result["failed_seeds"] = list(lost)
    file.write_text(json.dumps(result))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [json.dumps(row | {"data/cost": costs}) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture
def pair(run):
    """Runs that cost little and much."""
    made = run("careful", "a", [0.0] * 30), run("careless", "b", [9.0] * 30)
    return [costly(folder, costs) for folder, costs in zip(made, (LOW, HIGH), strict=True)]


@pytest.mark.parametrize("metric", ["cost", "data/cost"])
@pytest.mark.parametrize("about", ["tendency", "mean"])
def test_less_cost_counts_as_better(pair, metric, about):
    groups, _ = group_results(read_results(pair, metric)[0], None)
    (contest,) = compare_on_environments(
        groups, about=about, within=(0.0, 6.0) if about == "mean" else None
    )
    (found,) = contest.pairs
    assert (found.first, found.second, found.verdict) == ("a", "b", "larger")
    assert found.better.value == 1.0
    assert found.difference.value == pytest.approx(-4.0)  # in the channel's own units
    assert found.difference.low < -4.0 < found.difference.high
    assert "a " in pair_sentences([contest])[0].split(" than b")[0]
    assert "lower" in pair_sentences([contest])[0]
    assert "higher" not in pair_sentences([contest])[0]


def test_pair_comparison_of_return_prefers_higher(pair):
    groups, _ = group_results(read_results(pair, "return")[0], None)
    (contest,) = compare_on_environments(groups)
    assert contest.pairs[0].first == "b"
    assert "higher" in pair_sentences([contest])[0]


def test_overall_comparison_of_cost_prefers_lower(run, pair):
    more = [run("c2", "a", [0.0] * 30, environment="Walker2d-v5"),
            run("d2", "b", [0.0] * 30, environment="Walker2d-v5")]  # fmt: skip
    pair += [costly(folder, costs) for folder, costs in zip(more, (LOW, HIGH), strict=True)]
    groups, _ = group_results(read_results(pair, "cost")[0], None)
    (one,) = compare_overall(groups)
    assert (one.first, one.made.value) == ("a", 1.0)
    assert "tends to score lower" in overall_sentence(one)


def test_compare_command_says_lower_for_cost(pair, capsys):
    chosen = parse_command_line(["compare", *map(str, pair), "--metric", "cost"])
    command.carry_out(chosen)
    assert "first tends to score lower" in capsys.readouterr().out


def test_failed_worst_cost_is_the_upper_bound(run):
    folder = costly(run("x", "a", [0.0] * 30), LOW, lost=(2,))
    groups, _ = group_results(read_results([folder], "cost")[0], None)
    assert groups[0].scores_with("worst").max() == 100.0
    made = headline([1.0, None, 2.0], within=(0.0, 10.0), better=-1)
    assert made.worst == 10.0
    assert made.at_worst.value == pytest.approx(13.0 / 3.0)
    assert type(made).from_json(made.to_json()) == made


def test_runs_that_differ_in_the_direction_are_not_compared(run):
    made = [
        costly(run("x", "a", [0.0] * 30), LOW),
        costly(run("y", "a", [0.0] * 30, seeds=range(30, 60)), LOW, way=1),
    ]
    groups, _ = group_results(read_results(made, "cost")[0], None)
    with pytest.raises(Mistake, match="disagree on which direction of the metric is better"):
        compare_on_environments(groups)
