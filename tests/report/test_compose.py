"""The report is written for every kind of material, and its page stands alone."""

import html.parser
import json
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from sterling.report import html_page
from sterling.report.build_report import write_report
from sterling.report.normalised_groups import normalise_groups
from sterling.report.pictures import plot_style
from sterling.report.report_inputs import ReportRequest
from sterling.report.run_caveats import TextTable, collect_cautions, settings_tables
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results
from sterling.types import Mistake


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Vectors only: the same artists are drawn, in a third of the time."""
    monkeypatch.setattr(plot_style, "FORMATS", ("svg",))


class Checker(html.parser.HTMLParser):
    """Every tag that is opened is closed, and nothing is fetched."""

    def __init__(self):
        super().__init__()
        self.open, self.pictures, self.fetched = [], 0, []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.pictures += tag == "img"
        self.fetched += [v for k, v in given.items() if k in ("src", "href") and v[:5] != "data:"]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def text_of(path):
    content = path.read_text()
    checker = Checker()
    checker.feed(content)
    assert checker.open == []
    assert checker.fetched == []
    assert "<script" not in content
    bare = re.sub(r'src="[^"]*"', "", content)
    return bare, checker.pictures


def test_report_of_two_algorithms_on_two_environments_has_all_sections(run, spread, tmp_path):
    runs = [
        run(f"{name}-{world}", name, spread(mean * scale), environment=world, steps=1_000_000)
        for world, scale in (("Hopper-v5", 1.0), ("Walker2d-v5", 1.3))
        for name, mean in (("sac", 3000.0), ("ppo", 1000.0))
    ]
    words, pictures = text_of(
        write_report(runs, tmp_path / "out", ReportRequest(title="Two & two"))
    )
    assert pictures == 6  # curves, scores, better, aggregates, profiles, efficiency
    for said in (
        "Two &amp; two",
        "sac tends to score higher than ppo on Hopper-v5",
        "Over 2 environments a run of sac tends to score higher than one of ppo",
        "mujoco-td3/1",
        "Compared with published scores",
        "0123456+",
        "a cpu, 2 cores, 16 GiB",
        "Some runs were made by code with changes that were not committed",
    ):
        assert said in words, said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    kinds = ("curves", "scores", "better", "aggregates", "profiles", "efficiency")
    assert names == {"index.html", *(f"{kind}.svg" for kind in kinds)}


def test_report_names_failed_unfinished_and_single_seed_runs(run, spread, tmp_path):
    runs = [
        run("a", "sac", [5.0]),
        run("b", "ppo", [1.0, None, 3.0]),
        run("c", "td3", [4.0, 5.0], rows=3, finished=False),
        run("d", "dqn", [2.0, 3.0], rows=0),
        run("e", "trpo", [None, None]),
    ]
    words, pictures = text_of(write_report(runs, tmp_path / "out"))
    assert pictures == 4
    assert "sac on Hopper-v5 rests on one seed" in words
    assert "seed 1 failed, and --failed does not say what that counts as" in words
    assert "1 of 3 seeds failed; mean of the other 2: 2" in words
    assert "2 seeds cannot exclude that up to 78 % of runs fail" in words
    assert "is not finished (150 of 1,000 steps)" in words
    assert "dqn on Hopper-v5 rests on 2 seeds; with fewer than 5" in words
    assert "no finished run" in words
    assert "(one run, no interval)" in words


def test_report_of_one_unfinished_run_without_metrics(run, tmp_path):
    words, pictures = text_of(
        write_report([run("a", "sac", [1.0], rows=0, finished=False)], tmp_path / "o")
    )
    assert "No run is finished." in words
    assert pictures == 0


def test_report_of_runs_without_steps_has_no_sample_efficiency(run, spread, tmp_path):
    words, _ = text_of(write_report([run("a", "sac", spread(1.0), steps=0)], tmp_path / "out"))
    assert "Sample efficiency" not in words


def test_report_of_atari_scores_from_a_csv_file(tmp_path):
    lines = [f"{name},{task},{n},{5 * k + n}" for k, name in enumerate("xy") for task in
             ("Breakout", "Pong") for n in range(5)]  # fmt: skip
    table = tmp_path / "theirs.csv"
    table.write_text("\n".join(["algorithm,task,run,score", *lines, ""]))
    words, pictures = text_of(write_report([table], tmp_path / "out"))
    assert "atari/1" in words
    assert pictures == 4


def test_report_without_normalisation_table_has_no_aggregate(run, spread, tmp_path):
    runs = [
        run(f"{name}{world}", name, spread(1.0), environment=world)
        for world in ("CartPole-v1", "Mine-v0")
        for name in ("sac", "ppo")
    ]
    words, _ = text_of(write_report(runs, tmp_path / "out"))
    assert "No table of reference scores knows two of these environments" in words
    groups, _ = group_results(read_results(runs)[0])
    with pytest.raises(Mistake, match="unknown normalisation table"):
        normalise_groups(groups, "nonsense")


def test_normalisation_table_with_most_environments_is_chosen(run, spread):
    worlds = ("CartPole-v1", "Hopper-v5", "Walker2d-v5")
    runs = [run(f"sac{world}", "sac", spread(9.0), environment=world) for world in worlds]
    groups, _ = group_results(read_results([*runs, run("ppo", "ppo", spread(1.0))])[0])
    made = normalise_groups(groups)
    assert (made.table.name, made.unknown, made.left_out) == (
        "mujoco-td3",
        ["CartPole-v1"],
        ["ppo"],
    )
    assert made.environments == ["Hopper-v5", "Walker2d-v5"]
    ends = np.array([[18.791, 3226.0], [2.791, 3946.0]])
    expected = (9.0 - ends[:, 0]) / (ends[:, 1] - ends[:, 0])
    np.testing.assert_allclose(made.scores["sac"].values[2], expected)


def test_minatar_scores_are_normalised_by_the_minatar_table(tmp_path):
    games = ("Breakout-MinAtar", "Asterix-MinAtar", "Freeway-MinAtar")
    lines = [f"{name},{game},{n},{5 + n}" for name in "xy" for game in games for n in range(5)]
    (tmp_path / "games.csv").write_text("\n".join(["algorithm,task,run,score", *lines, ""]))
    groups, _ = group_results(read_results([tmp_path / "games.csv"])[0])
    made = normalise_groups(groups)
    assert (made.table.name, made.unknown) == ("minatar", [])


@pytest.mark.parametrize("metric", ["data/return", "data/length"])
def test_only_returns_are_normalised(run, spread, tmp_path, metric):
    runs = [
        run(f"{name}{world}", name, spread(100.0), environment=world)
        for world in ("Hopper-v5", "Ant-v5")
        for name in ("sac", "ppo")
    ]
    for one in runs:
        log = one / "metrics.jsonl"
        log.write_text(log.read_text().replace("data/return", metric))
    words, _ = text_of(write_report(runs, tmp_path / "out", ReportRequest(metric)))
    assert ("mujoco-td3/1" in words) == (metric == "data/return")
    assert ("hold returns, and data/length is not a return" in words) == (metric == "data/length")
    if metric == "data/length":
        with pytest.raises(Mistake, match="leave out --normalise, or take --metric return"):
            write_report(runs, tmp_path / "out", ReportRequest(metric, table="mujoco-td3"))


def test_report_to_an_unwritable_path_is_refused(run, tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(Mistake, match="cannot be written to"):
        write_report([run("a", "sac", [1.0, 2.0])], tmp_path / "out" / "deeper")


def test_sample_efficiency_plot_names_updates(run, tmp_path):
    folder = run("both", "iql", [5.0, 6.0], steps=300, updates=700)
    rows = [{"step": 0, "update": at, "evaluation/return": [1.0, 2.0]} for at in (500, 1000)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_report([folder], tmp_path / "out", ReportRequest())
    assert "first 1k updates" in (tmp_path / "out" / "efficiency.svg").read_text()


def test_plot_labels_are_spread_out():
    places = plot_style.spread_out({"a": 0.50, "b": 0.51, "c": 0.90, "d": 0.52}, 0.1)
    ordered = sorted(places.values())
    assert min(np.diff(ordered)) >= 0.1 - 1e-9
    assert sorted(places, key=places.get) == ["a", "b", "d", "c"]
    assert places["c"] == 0.90
    assert plot_style.spread_out({"a": 0.2, "b": 0.7}, 0.1) == {"a": 0.2, "b": 0.7}


def test_plot_palette_has_distinct_colours_and_line_styles():
    looks = list(plot_style.palette([f"label {at}" for at in range(10)]).values())
    assert len({(look["color"], str(look["linestyle"])) for look in looks}) == 10
    assert "#F0E442" not in plot_style.COLOURS  # yellow vanishes on white


def test_equal_figures_are_saved_as_equal_bytes(tmp_path):
    paths = []
    for name in ("a", "b"):
        with plot_style.use_style():
            figure = plot_style.new_figure(3.0, 2.0)
            figure.subplots().plot([1, 2], [3, 4])
            paths += plot_style.save_figure(figure, tmp_path / name, ["svg", "pdf"])
    assert isinstance(figure, Figure)
    svg, pdf = ([p.read_bytes() for p in paths if p.suffix == kind] for kind in (".svg", ".pdf"))
    assert svg[0] == svg[1]
    assert pdf[0] == pdf[1]


def test_plot_style_restores_matplotlib_rcparams():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with plot_style.use_style():
        assert matplotlib.rcParams["font.size"] == 9
    assert dict(matplotlib.rcParams) == before


def test_settings_that_differ_are_listed(run):
    runs = [
        run("a", "sac", [1.0, 2.0]),
        run("b", "sac", [1.0, 2.0], settings={"lr": 0.1}, environment="Ant-v5"),
    ]
    (table,) = settings_tables(group_results(read_results(runs)[0])[0])
    assert table.header == ["setting", "Hopper-v5", "Ant-v5"]
    assert table.rows == [["lr", "0.001", "0.1"]]


def test_run_caveats_mention_different_budgets(run, spread):
    runs = [run("a", "sac", spread(1.0)), run("b", "ppo", spread(1.0), steps=9000)]
    told = collect_cautions(group_results(read_results(runs)[0])[0], [])
    assert any("budgets differ (sac 1k and ppo 9k)" in one for one in told)


def test_run_caveats_distinguish_update_and_step_budgets(run, spread):
    """As many updates as another took steps, with or without steps after them."""
    runs = [run("a", "sac", spread(1.0)), run("b", "iql", spread(1.0), updates=1000)]
    told = collect_cautions(group_results(read_results(runs)[0])[0], [])
    assert any("budgets differ (sac 1k and iql 1k updates then 1k steps)" in x for x in told)
    alike = [run("c", "iql", spread(1.0), updates=1000), run("d", "cql", spread(1.0), updates=1000)]
    assert not any(
        "budgets" in one for one in collect_cautions(group_results(read_results(alike)[0])[0], [])
    )


def test_a_page_escapes_what_it_is_given():
    made = html_page.html_page(
        "a<b", [html_page.paragraph("<script>"), html_page.html_table(TextTable(["<"], [["&"]]))]
    )
    assert "<script>" not in made
    assert "a&lt;b" in made
    assert html_page.caution_box([]) == html_page.html_table(TextTable(["a"], [])) == ""
