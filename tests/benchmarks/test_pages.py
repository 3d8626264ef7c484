"""The pages of algorithms are what their files and their committed scores say."""

import importlib.util
import json
from pathlib import Path

import pytest

from sterling.algorithms import ALGORITHMS

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


def test_the_pages_are_up_to_date():
    old = [
        name
        for name in ALGORITHMS
        if (DOCS / "algorithms" / f"{name}.md").read_text() != generate.page(name)
    ]
    assert not old, "run `make docs`"


@pytest.mark.parametrize("name", generate.MARKED)
def test_marked_parts_show_the_committed_results(name):
    assert (DOCS.parent / name).read_text() == generate.renewed(name), "run `make docs`"


def test_a_bar_inside_the_interval_is_not_reached():
    from run import against

    from sterling.statistics import Estimate

    made = Estimate(-112.0, -141.5, -99.6, 10, "t", 0.95)
    assert against(made, -120) == "cannot tell"
    assert against(made, -150) == "above"
    assert against(made, -90) == "below"
    assert against(Estimate(9.5, None, None, 1, "none (one run)", 0.95), 0) == "cannot tell"


def test_the_score_page_says_what_was_changed_and_replaced():
    tasks = json.loads(generate.TASKS.read_text())
    page = (DOCS / "scores.md").read_text()
    said = [each for task in tasks for each in task.get("changed", [])]
    said += [task["replaced"] for task in tasks if "replaced" in task]
    assert said
    assert all(each in page for each in said)
    assert "reached" not in page


def test_the_life_of_a_run_is_as_traced_and_short_to_read():
    found = generate.life_of_a_run.traced()
    assert len(generate.life_of_a_run.chain(found)) <= 14
    generate.life_of_a_run.traced = lambda: found
    assert (DOCS / "life-of-a-run.md").read_text() == generate.life_of_a_run.page(), (
        "run `make docs`"
    )
