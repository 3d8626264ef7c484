"""Scores normalised by a user's own table: in reports, comparisons and checks of scores."""

import json

import numpy as np
import pytest

from sterling.cli import main
from sterling.report.build_report import write_report
from sterling.report.pictures import plot_style
from sterling.report.report_inputs import ReportRequest
from sterling.statistics import normalise, table
from sterling.types import Mistake

HILLS, PIT = "/home/me/hills.py:make", "Pit-v0"
CSV = f"environment,low,high\n{HILLS},0,10\n{PIT},-100,100\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(plot_style, "FORMATS", ("svg",))


@pytest.fixture
def runs(run, spread):
    """Two algorithms in two worlds of one's own and a third one, six seeds each."""
    return [
        run(f"{name}-{at}", name, list(spread(mean, 6)), environment=world)
        for at, (world, ppo, sac) in enumerate(
            (("hills:make", 5.0, 8.0), (PIT, 0.0, 50.0), ("Moor-v0", 1.0, 2.0))
        )
        for name, mean in (("ppo", ppo), ("sac", sac))
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.csv", f"expert;env;random\n10;{HILLS};0\n100;{PIT};-100\n"),
        ("a.json", json.dumps({HILLS: [0, 10], PIT: {"random": -100, "expert": 100}})),
        ("a.json", json.dumps([{"task": HILLS, "low": 0, "high": 10},
                               {"task": PIT, "low": -100, "high": 100}])),
        ("a.json", json.dumps({"name": "mine", "scores": {"hills:make": [0, 10],
                                                          PIT: [-100, 100]}})),
    ],
)  # fmt: skip
def test_own_normalisation_table_formats_are_equivalent(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    made = table(tmp_path / name)
    assert made.references("hills:make") == made.references(HILLS) == (0.0, 10.0)
    assert made.references("Pit-v0") == made.references("Pit-v1") == (-100.0, 100.0)
    assert made.identity == ("mine" if "mine" in content else name)
    scores = normalise([[5.0, 100.0]], tmp_path / name, tasks=["hills:make", PIT])
    assert scores.values.tolist() == [[0.5, 1.0]]
    assert scores.normaliser == made.identity


def test_own_normalisation_table_prefers_the_exact_version(tmp_path):
    (tmp_path / "a.json").write_text('{"Pit-v1": [0, 1], "Pit-v0": [0, 2]}')
    made = table(str(tmp_path / "a.json"))
    assert [made.references(f"Pit-v{at}")[1] for at in (0, 1)] == [2, 1]
    with pytest.raises(Mistake, match=r"the table a\.json has no task 'Pot-v0'; did you mean pit"):
        made.references("Pot-v0")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "environment,low\nA,1\n", "has no column 'high'; it has environment, low"),
        ("a.csv", "environment,low,high\nA,1,x\n", "references of A must be numbers"),
        ("a.csv", "environment,low,high\nA,1,1\n", "references of A are 1 and 1; give two diff"),
        ("a.csv", "environment,low,high\nA,1,inf\n", "references of A are 1 and inf"),
        ("a.csv", "environment,low,high\nA,1,2\nA,1,2\n", "names A twice"),
        ("a.csv", "environment,low,high\n", "names no environment"),
        ("a.json", "[1, 2", "is no JSON"),
        ("a.json", "3", "holds int; give a CSV"),
        ("a.json", '{"A": 3}', "A needs two numbers"),
        ("b.csv", None, "cannot be read"),
        ("mine", None, "unknown normalisation table 'mine'; .* or a file of your own"),
    ],
)
def test_invalid_own_normalisation_tables_are_refused_in_one_line(
    name, content, said, runs, capsys
):
    tmp_path = runs[0].parent
    if content is not None:
        (tmp_path / name).write_text(content)
    word = name if name == "mine" else str(tmp_path / name)
    with pytest.raises(Mistake, match=said):
        table(word)
    for command in (["compare"], ["report", "--out", str(tmp_path / "out")], ["check-scores"]):
        assert main([*command, *map(str, runs), "--normalise", word]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1


def test_report_normalised_by_an_own_table_has_aggregates_and_profiles(tmp_path, runs):
    (tmp_path / "own.csv").write_text(CSV)
    asked = ReportRequest(table=str(tmp_path / "own.csv"))
    page = write_report(runs, tmp_path / "out", asked).read_text()
    assert {"aggregates.svg", "profiles.svg"} <= {x.name for x in (tmp_path / "out").iterdir()}
    assert "Over hills:make, Pit-v0; normalised by own.csv" in page
    assert "Not in the table, and left out: Moor-v0." in page
    assert "All environments together" in page
    few = tmp_path / "few.json"
    few.write_text('{"Moor-v0": [0, 1]}')
    page = write_report(runs, tmp_path / "few", ReportRequest(table=str(few))).read_text()
    assert "The table few.json knows fewer than two of the environments" in page


def test_compare_command_states_normalised_aggregates(tmp_path, runs, capsys):
    (tmp_path / "own.csv").write_text(CSV)
    words = ["compare", *map(str, runs), "--normalise", str(tmp_path / "own.csv")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["normalised"]
    assert found["table"] == "own.csv"
    means = {name: one["value"] for name, one in found["aggregates"]["mean"].items()}
    # ppo: 5 of 0..10 and 0 of -100..100 are one half; sac: 0.8 and 0.75
    np.testing.assert_allclose([means["ppo"], means["sac"]], [0.5, 0.775], atol=0.03)
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "Normalised by own.csv over hills:make, Pit-v0" in told
    assert "interquartile mean" in told
    assert "Not in the table, and left out: Moor-v0." in told
    assert main(["compare", *map(str, runs)]) == 0
    assert "Normalised" not in capsys.readouterr().out


def test_check_scores_command_states_the_normalised_mean(tmp_path, runs, capsys):
    (tmp_path / "own.csv").write_text(CSV)
    words = ["check-scores", *map(str, runs), "--normalise", str(tmp_path / "own.csv")]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.count("normalised by own.csv: 0.") == 4
    assert told.count("not normalised: own.csv has no Moor-v0") == 2


def test_normalisation_references_of_a_cost_may_decrease(tmp_path, run, spread, capsys):
    (tmp_path / "own.json").write_text('{"Pit-v0": [100, 0]}')
    folder = run("a", "ppo", [25.0, 25.0, 25.0, 25.0], environment=PIT, within=(0.0, 200.0))
    assert main(["check-scores", str(folder), "--normalise", str(tmp_path / "own.json")]) == 0
    assert "normalised by own.json: 0.7500" in capsys.readouterr().out
