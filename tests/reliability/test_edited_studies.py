"""Edited files of studies and of seeds apart cost one line each: study.json, trials.jsonl,
report.json, question.json, and the rows and results of parts/."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sterling.training.until_decided.train_until_decided import until_decided
from sterling.tuning import stored_study, tuning_api
from sterling.types import Mistake

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "reliability"))
import files
from edits import fuzzed, one_line, places, put, value

WRITTEN = {kind: writer for writer, kinds in files.WRITERS.items() for kind in kinds}


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """A folder of each kind, written once."""
    root = tmp_path_factory.mktemp("valid")
    return {kind: WRITTEN[kind](root)[kind] for kind in ("parts", "study", "comparison")}


def edited(folder, name, target, data):
    """A copy of a folder, in ``target``, with one value of a file replaced by another."""
    path = target / folder.name
    if path.exists():
        shutil.rmtree(path)
    shutil.copytree(folder, path)
    lines = (path / name).read_text().splitlines()
    whole = not name.endswith("l")
    at = 0 if whole else data.draw(some.integers(0, len(lines) - 1))
    content = json.loads("\n".join(lines) if whole else lines[at])
    changed = json.dumps(put(content, data.draw(some.sampled_from([*places(content)])),
                             data.draw(value)))  # fmt: skip
    text = [changed] if whole else [*lines[:at], changed, *lines[at + 1 :]]
    (path / name).write_text("\n".join(text) + "\n")
    return path


def names_the_file(said, name):
    return said is None or Path(name).name in said


@pytest.mark.slow
@fuzzed
@given(data=some.data())
def test_edited_study_json_gives_a_result_or_one_line(valid, tmp_path_factory, data):
    path = edited(valid["study"], "study.json", tmp_path_factory.getbasetemp(), data)
    assert names_the_file(one_line(lambda: tuning_api.open_study(path)), "study.json")


LONG = "x" * 300 + ".py"  # longer than a name of a file may be


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"custom_algorithm": "\x00"}, "custom_algorithm must be true or false"),
        ({"custom_environment": "\x00"}, "custom_environment must be true or false"),
        ({"custom_algorithm": True}, "the algorithm 'ppo', which is not stored"),
        ({"custom_environment": True}, "the environment factory 'probe:both', which is not stored"),
        ({"code": 5}, "code must be an object"),
        ({"algorithm": LONG}, "there is no file .*xxx"),
    ],
)
def test_edited_study_json_field_names_the_file(valid, tmp_path, edit, words):
    path = tmp_path / "study"
    shutil.copytree(valid["study"], path)
    asked = json.loads((path / "study.json").read_text())
    (path / "study.json").write_text(json.dumps(asked | edit))
    with pytest.raises(Mistake, match=words) as caught:
        tuning_api.resume(path)
    assert str(caught.value).startswith(f"{path / 'study.json'}: ")


@pytest.mark.slow
@fuzzed
@given(data=some.data())
def test_edited_tuning_report_json_gives_a_result_or_one_line(valid, tmp_path_factory, data):
    path = edited(valid["study"], "report.json", tmp_path_factory.getbasetemp(), data)
    assert names_the_file(one_line(lambda: tuning_api.resume(path)), "report.json")


@pytest.mark.slow
@fuzzed
@given(data=some.data())
def test_edited_trials_jsonl_gives_a_result_or_one_line(valid, tmp_path_factory, data):
    path = edited(valid["study"], "trials.jsonl", tmp_path_factory.getbasetemp(), data)
    said = one_line(lambda: stored_study.read_lines(path / "trials.jsonl"))
    assert names_the_file(said, "trials.jsonl")


def test_study_json_with_too_many_trials_is_refused_before_drawing(valid, tmp_path):
    path = tmp_path / "study"
    shutil.copytree(valid["study"], path)
    asked = json.loads((path / "study.json").read_text())
    (path / "study.json").write_text(json.dumps(asked | {"trials": 10**12}))
    with pytest.raises(Mistake, match=r"study\.json: trials is at most 1,000,000"):
        tuning_api.open_study(path)


@pytest.mark.slow
@fuzzed
@given(data=some.data())
def test_edited_question_json_gives_a_result_or_one_line(valid, tmp_path_factory, data):
    path = edited(valid["comparison"], "question.json", tmp_path_factory.getbasetemp(), data)
    said = one_line(lambda: until_decided(files.asked(), path))
    assert said is None or "question" in said


@pytest.mark.slow
@fuzzed
@given(data=some.data(), name=some.sampled_from(["metrics.jsonl", "result.json"]))
def test_edited_seed_process_parts_give_a_result_or_one_line(valid, tmp_path_factory, data, name):
    path = edited(valid["parts"], f"parts/1/{name}", tmp_path_factory.getbasetemp(), data)
    assert names_the_file(one_line(lambda: files.READERS["parts"](path)), name)
