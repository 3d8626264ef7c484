"""Every block of docs/extending.md is run as it stands there, in a folder of its own."""

import os
import re
import runpy
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import sterling
from sterling.checking import check_algorithm, check_environment
from sterling.cli_options import parse_command_line
from sterling.commands import train
from sterling.envs.native.hazard_grid import Hazards

PAGE = (Path(__file__).parents[2] / "docs/extending.md").read_text()
FILES = {
    re.search(r"# (\S+)", text).group(1): text
    for text in re.findall(r"```(?:python|toml)\n(.*?)```", PAGE, re.DOTALL)
}
COMMANDS = re.findall(r"^    (sterling .*)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extending")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.mark.parametrize("name", FILES)
def test_extending_page_examples_are_short(name):
    """Thirty lines for what is the subject; definitions and blank lines apart for an algorithm."""
    lines = [line for line in FILES[name].splitlines() if line.strip() and line[0] != "#"]
    imports = [line for line in lines if re.match(r"import|from", line)]
    assert len(lines) - len(imports) <= (45 if name == "my_algorithm.py" else 30)


@pytest.mark.parametrize("line", COMMANDS)
def test_extending_page_commands_parse(line, page):
    chosen = parse_command_line(shlex.split(line, comments=True)[1:])
    if chosen.command == "train":
        assert {chosen.algorithm, (chosen.sources or "").partition(":")[0]} & set(FILES)
        assert set(train.config_values(chosen)) <= {"width", "bonus", "lr"}


@pytest.mark.slow
def test_extending_page_python_example_runs(page):
    runpy.run_path("in_python.py", run_name="__main__")
    assert (page / "runs/named/result.json").exists()
    assert (page / "runs/given/result.json").exists()


@pytest.mark.parametrize(
    "word", ["my_algorithm.py", pytest.param("small_ppo.py", marks=pytest.mark.slow)]
)
def test_extending_page_algorithms_pass_the_update_checks(word, page):
    for finding in check_algorithm(word):
        assert not finding.failed, finding
        if "seed alone" in finding.what:
            break


def test_extending_page_shield_lowers_the_cost(page):
    """In the lower left corner, beside a hazard to the right: only a slip leads there."""
    shielded, bare = runpy.run_path("my_shield.py")["make"](3, 6), Hazards(3, 6)
    keys = jax.random.split(jax.random.key(0), 400)
    states = jnp.full(400, 12), jnp.full(400, 1)
    costs = [jax.vmap(task.step)(*states, keys)[-1]["cost"].mean() for task in (shielded, bare)]
    assert costs[0] < 0.1
    assert costs[1] > 0.8


@pytest.mark.slow
def test_extending_page_algorithm_passes_check(page):
    quick = os.environ.get("STERLING_ALL_CASES") != "1"  # the whole one takes ten minutes
    findings = check_algorithm("my_algorithm.py", quick=quick)
    assert not [finding for finding in findings if finding.failed]


@pytest.mark.slow
def test_extending_page_memory_algorithm_passes_check(page):
    findings = list(check_algorithm("my_memory.py", quick=True))
    assert not [finding for finding in findings if finding.failed]
    assert sum("learn ignores masked rows" in finding.what for finding in findings) == 2


@pytest.mark.slow
def test_extending_page_algorithm_with_wrong_sign_fails_check(page):
    assert FILES["my_algorithm.py"].count(" - gain") == 1
    (page / "upside_down.py").write_text(FILES["my_algorithm.py"].replace(" - gain", " + gain"))
    failed = [one.what for one in check_algorithm("upside_down.py", quick=True) if one.failed]
    about = "(policies that use observations)"
    assert failed == [f"it solves probe:{name} {about}" for name in ("both", "both-continuous")]


@pytest.mark.parametrize(
    "word", ["my_world.py:make", "my_levels.py:Targets", "my_simulator.py:Counters"]
)
def test_extending_page_environments_pass_check(word, page):
    assert not [finding for finding in check_environment(word, quick=True) if finding.failed]


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["my_algorithm.py", "dqn"])
def test_extending_page_source_layer_works_with_host_environments(learner, page):
    fields = {} if learner != "dqn" else {"warmup": 64, "width": 8, "capacity": 500, "batch": 8}
    how = {"steps": 256, "envs": 2, "evaluate_episodes": 0, "preset": False, **fields}
    options = {"env_options": {"workers": 0}, "log_every": 128}
    for size in (0.0, 0.5):
        run = sterling.train(
            learner, "gymnasium:CartPole-v1", sources=f"my_source.py:{size}", **how, **options
        )
        assert run.result["steps"] == 256
