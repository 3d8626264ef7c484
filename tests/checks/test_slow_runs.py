"""A whole run of the slow tests is recorded with its commit, counts and failures."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("slow_runs", ROOT / "checks" / "slow_runs.py")
slow_runs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(slow_runs)

REPORT = """<testsuites><testsuite>
<testcase classname="tests.nets.test_mlp" name="test_one" time="2.5"/>
<testcase classname="tests.nets.test_mlp" name="test_two" time="1.0"><failure/></testcase>
<testcase classname="tests.nets.test_mlp" name="test_two" time="0.5"><error/></testcase>
<testcase classname="tests.nets.test_mlp" name="test_three" time="0.0"><skipped/></testcase>
</testsuite></testsuites>"""


def test_junit_reports_are_counted_and_failures_are_named_once(tmp_path):
    (tmp_path / "a.xml").write_text(REPORT)
    found = slow_runs.read([tmp_path / "a.xml"])
    assert found["passed"] == 1
    assert found["skipped"] == 1
    assert found["failed"] == ["tests.nets.test_mlp::test_two"]
    assert found["test_seconds"] == 4


def test_slow_run_with_a_missing_report_is_not_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slow_runs, "RECORD", tmp_path / "record.json")
    (tmp_path / "a.xml").write_text(REPORT)
    assert slow_runs.record([tmp_path / "a.xml"]) == 1
    assert slow_runs.record([tmp_path / "a.xml", tmp_path / "b.xml"]) == 1
    assert not (tmp_path / "record.json").exists()
    assert "not a whole run" in capsys.readouterr().out


def test_parts_of_one_commit_are_a_whole_run_once_all_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(slow_runs, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(slow_runs, "ROOT", tmp_path)
    monkeypatch.setattr(slow_runs.evidence, "begin", lambda root: {"commit": "a" * 40})
    reports = slow_runs.part_reports("2/2", "a" * 40, tmp_path)
    assert [report.name for report in reports[1:3]] == [
        "annotated-2-of-2-aaaaaaaaaa.xml",
        "others-1-of-2-aaaaaaaaaa.xml",
    ]
    for report in reports:
        assert slow_runs.record(reports, "parts") == 1
        assert not slow_runs.RECORD.exists()
        report.write_text(REPORT)
    assert slow_runs.record(reports, "parts") == 1  # for a test failed
    found = json.loads(slow_runs.RECORD.read_text())
    assert (found["passed"], found["test_seconds"]) == (4, 16)
    assert found["provenance"][0]["command"] == "parts"


@pytest.fixture
def repository(tmp_path):
    """A repository of two commits, and the hash of the first."""

    def git(*words):
        own = ["-c", "user.name=n", "-c", "user.email=n@example.com"]
        command = ["git", "-C", str(tmp_path), *own, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    first = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "second")
    return tmp_path, first


def test_last_slow_run_is_told_in_commits_and_counts(repository):
    root, first = repository
    path = root / "slow_runs.json"
    assert "no whole run is on file" in slow_runs.last(path, root)
    found = {"passed": 5, "failed": ["x"], "skipped": 0}
    begun = {"commit": first, "date": "2026-01-02T00:00:00+00:00"}
    path.write_text(json.dumps(found | {"provenance": [begun]}))
    line = slow_runs.last(path, root)
    assert f"1 commits ago ({first[:10]}, 2026-01-02): 5 passed, 1 failed, 0 skipped" in line
    path.write_text(json.dumps(found | {"provenance": [begun | {"commit": "0" * 40}]}))
    assert "at a commit" in slow_runs.last(path, root)
