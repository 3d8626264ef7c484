"""Edited files of a run cost one line each: config.json, metrics.jsonl, result.json, meta.json.

Values are put in, taken out and nested by hypothesis, the same ones every time; the real readers
read them. What they give is a result or one Mistake, and nothing else.
"""

import hashlib
import json
import shutil

import numpy as np
import pytest
from edits import fuzzed, one_line, places, put, value
from hypothesis import given
from hypothesis import strategies as some

import sterling
from sterling.report.runs import read_runs
from sterling.training.config.stored_settings import read_settings
from sterling.training.saving import checkpoint, run_folder
from sterling.types import Mistake

SMALL = {"length": 16, "minibatch": 64, "epochs": 1, "width": 8, "preset": False}
DEEP = 100_000  # brackets: deeper than Python's stack
LONG = "x" * 300 + ".py"  # longer than a name of a file may be
PARTS = {
    "data": {"path": "x", "hash": "0", "share": 0.5, "top": 1.0, "sampling": "uniform"},
    "guide": {"path": "x", "how": "jump-start", "steps": 5},
    "speech": {"model": "tiny", "levels": "", "slots": 64},
    "spaces": {
        "obs": {"type": "Box", "dtype": "float32", "shape": [1], "low": [-1.0], "high": [1.0]},
        "action": {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2},
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with two checkpoints."""
    path = tmp_path_factory.mktemp("edited") / "run"
    own = {"log_every": 128, "evaluate_episodes": 2, "checkpoint_minutes": 0.0}
    sterling.train("ppo", "probe:both", steps=512, out=path, **own, **SMALL)
    return path


@fuzzed
@given(data=some.data())
def test_edited_config_json_gives_a_result_or_one_line(run, tmp_path, data):
    config = json.loads((run / "config.json").read_text()) | data.draw(
        some.sampled_from([{}, PARTS])
    )
    place = data.draw(some.sampled_from(list(places(config))))
    changed = put(config, place, data.draw(value))
    (tmp_path / "config.json").write_text(json.dumps(changed))
    said = one_line(lambda: read_settings(tmp_path))
    assert said is None or "config.json" in said


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"algorithm": 5}, "algorithm must be a name"),
        ({"algorithm": ["ppo"]}, "algorithm must be a name"),
        ({"env_options": []}, "env_options must be an object"),
        ({"data": "x"}, "data must be an object"),
        ({"data": {"path": "x"}}, "data lacks hash"),
        ({"guide": {"where": "x"}}, "guide has no field 'where'"),
        ({"speech": 5}, "speech must be an object"),
        ({"speech": {"slots": "x"}}, r"speech\.slots must be a whole number"),
        ({"spaces": {"obs": {"type": "Box"}}}, r"spaces\.obs is not a space"),
        ({"seeds": None}, "seeds must be a list"),
        ({"steps": 10**30}, "2\\^31 iterations"),
        ({"custom_algorithm": "\x00"}, "custom_algorithm must be true or false"),
        ({"code": 5}, "code must be an object"),
        ({"algorithm": LONG}, "there is no file xxx"),
    ],
)
def test_edited_config_json_field_is_named(run, tmp_path, edit, words):
    said = refused(run, tmp_path, edit, words)
    assert "Undo what was edited there" in said


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"custom_algorithm": True}, "the algorithm 'ppo', which is not stored"),
        ({"custom_environment": True}, "the environment factory 'probe:both', which is not stored"),
        ({"custom_environment": True, "steps": "x"}, "steps must be a whole number"),
    ],
)
def test_config_json_of_an_unstored_object_names_what_to_pass(run, tmp_path, edit, words):
    said = refused(run, tmp_path, edit, words)
    assert "undo" not in said  # it may be as it was written


def refused(run, tmp_path, edit, words):
    """What is said of a run's settings with some values edited; it begins with the file."""
    config = json.loads((run / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | edit))
    with pytest.raises(Mistake, match=words) as caught:
        read_settings(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: ")
    return str(caught.value)


def test_wrong_algorithm_argument_is_not_blamed_on_config_json(run):
    with pytest.raises(Mistake, match="is not an algorithm") as caught:
        read_settings(run, algorithm=object())
    assert "config.json" not in str(caught.value)


@pytest.mark.parametrize("text", ["null", "5", "[" * DEEP + "]" * DEEP, "\xff", ""])
def test_config_json_that_is_no_json_object_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    for read in (read_settings, read_runs.read_json if text == "" else run_folder.read_config):
        target = tmp_path / "config.json" if read is read_runs.read_json else tmp_path
        with pytest.raises(Mistake, match=r"config\.json"):
            read(target)


@fuzzed
@given(data=some.data())
def test_read_results_of_edited_run_folders_gives_a_result_or_one_line(run, tmp_path, data):
    names = ("config.json", "result.json", "metrics.jsonl")
    which = data.draw(some.sampled_from(names))
    for name in names:
        (tmp_path / name).write_bytes((run / name).read_bytes())
    lines = (run / which).read_text().splitlines() if which.endswith("l") else None
    content = json.loads(lines[-1] if lines else (run / which).read_text())
    place = data.draw(some.sampled_from(list(places(content))))
    changed = json.dumps(put(content, place, data.draw(value)))
    written = [*lines[:-1], changed] if lines else [changed]
    (tmp_path / which).write_text("\n".join(written) + "\n")
    one_line(lambda: read_runs.read_results([tmp_path]))


@pytest.mark.parametrize("phases", [True, [5], [{"env_options": 3}]])
def test_read_results_names_edited_phases_in_config_json(phases, run, tmp_path):
    for name in ("config.json", "result.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    config = json.loads((run / "config.json").read_text()) | {"phases": phases}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Mistake, match=r"config.json: (phases|env_options) must be"):
        read_runs.read_results([tmp_path])


@fuzzed
@given(data=some.data())
def test_edited_checkpoint_meta_falls_back_to_the_older_checkpoint(run, tmp_path_factory, data):
    folder_ = tmp_path_factory.mktemp("checkpoints")
    tree = {"x": np.arange(3.0)}
    checkpoint.save(folder_, 1, tree, {"alive": [True]})
    newest = checkpoint.save(folder_, 2, tree, {"alive": [True]})
    content = json.loads((newest / "meta.json").read_text())["content"]
    place = data.draw(some.sampled_from([each for each in places(content) if each]))
    changed = put(content, place, data.draw(value))
    text = json.dumps(changed, sort_keys=True, separators=(",", ":"))
    whole = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": changed}
    (newest / "meta.json").write_text(json.dumps(whole))
    found = []
    said = one_line(lambda: found.append(checkpoint.load(folder_, tree, warn=lambda line: None)))
    if said is None:
        np.testing.assert_array_equal(found[0][0]["x"], tree["x"])
    else:
        assert "format" in said or "leaf" in said


@pytest.mark.parametrize(
    "edit",
    [
        *({"alive": 5}, {"lap": []}),
        *(pytest.param(x, marks=pytest.mark.slow) for x in ({"alive": []}, {"phase": None})),
    ],
)
def test_resume_falls_back_from_a_checkpoint_with_wrong_meta_keys(run, tmp_path, edit, capsys):
    path = tmp_path / "run"
    shutil.copytree(run, path)
    (path / "result.json").unlink()
    newest = checkpoint.latest_checkpoint(path / "checkpoints")
    content = json.loads((newest / "meta.json").read_text())["content"]
    content["meta"] |= edit
    whole = {"sha256": checkpoint.checksum(content), "content": content}
    (newest / "meta.json").write_text(json.dumps(whole))
    assert sterling.resume(path).result["final"]
    assert "is DAMAGED" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b"])
def test_invalid_run_folder_name_is_refused_in_one_line(tmp_path, name):
    with pytest.raises(Mistake, match="cannot be a run folder"):
        sterling.train("ppo", "probe:both", steps=256, out=f"{tmp_path}/{name}", **SMALL)
