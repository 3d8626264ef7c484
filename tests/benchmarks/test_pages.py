"""The pages of algorithms are what their files and their committed scores say."""

import importlib.util
import json
from pathlib import Path

from every_case import every

from sterling.algorithms import ALGORITHMS

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


@every("name", ALGORITHMS)
def test_algorithm_page_is_up_to_date(name):
    written = (DOCS / "algorithms" / f"{name}.md").read_text()
    assert written == generate.page(name), "run `make docs`"


@every("name", generate.MARKED)
def test_generated_parts_of_pages_show_the_committed_results(name):
    assert (DOCS.parent / name).read_text() == generate.renewed(name), "run `make docs`"


def test_benchmark_score_against_a_bar_inside_its_interval_cannot_tell():
    from run import against

    from sterling.statistics import Estimate

    made = Estimate(-112.0, -141.5, -99.6, 10, "t", 0.95)
    assert against(made, -120) == "cannot tell"
    assert against(made, -150) == "above"
    assert against(made, -90) == "below"
    assert against(Estimate(9.5, None, None, 1, "none (one run)", 0.95), 0) == "cannot tell"


def test_scores_page_lists_changed_and_replaced_tasks():
    tasks = json.loads(generate.TASKS.read_text())
    page = (DOCS / "scores.md").read_text()
    said = [each for task in tasks for each in task.get("changed", [])]
    said += [task["replaced"] for task in tasks if "replaced" in task]
    assert said
    assert all(each in page for each in said)
    assert "reached" not in page


def test_life_of_a_run_page_equals_the_traced_calls():
    found = generate.life_of_a_run.traced()
    assert len(generate.life_of_a_run.chain(found)) <= 14
    generate.life_of_a_run.traced = lambda: found
    assert (DOCS / "life-of-a-run.md").read_text() == generate.life_of_a_run.page(), (
        "run `make docs`"
    )
