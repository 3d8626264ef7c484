"""Every result file says where it comes from, or is listed as one that does not."""

import functools
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from every_case import every

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("evidence", ROOT / "benchmarks" / "evidence.py")
evidence = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(evidence)

FILES = sorted((ROOT / "benchmarks").glob("**/results/**/*.json"))
OLD = json.loads(evidence.UNRECORDED.read_text())
PAGES = [ROOT / "docs" / name for name in ("scores.md", "reliability.md", "shootout.md")]
PAGES += (ROOT / "benchmarks").glob("**/*.md")
NO_RESULTS = {"env_checker.py", "calibrate.py"}  # print, and keep nothing
SAMPLE = {
    "commit": "0" * 40,
    "date": "2026-01-01T00:00:00+00:00",
    "command": "python x.py",
    "hardware": {"cpu": "a processor", "cores": 2, "backend": "cpu"},
    "versions": {"python": "3.11.7", "jax": "0.10.2"},
}


def name_of(path):
    return str(path.relative_to(ROOT))


def git(folder, *words):
    own = ["-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    results = ("benchmarks/results/c.json", "benchmarks/b/results/c.json")
    for name in ("sterling/a.py", "benchmarks/b/run.py", *results):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_evidence_records_commit_hardware_and_versions(repository):
    begun = evidence.begin(repository)
    assert set(begun) == set(evidence.FIELDS) - {"seeds"}
    assert len(begun["commit"]) == 40
    assert begun["hardware"]["cores"] >= 1
    assert "jax" in begun["versions"]


@pytest.mark.parametrize("changed", ["sterling/a.py", "benchmarks/b/run.py", "sterling/new.py"])
def test_evidence_refuses_uncommitted_code(repository, changed):
    (repository / changed).write_text("2\n")
    with pytest.raises(SystemExit, match=changed):
        evidence.begin(repository)


@pytest.mark.parametrize(
    "changed",
    [
        "benchmarks/b/results/c.json",
        "benchmarks/results/c.json",
        "benchmarks/results/n/new.json",
        "README.md",
    ],
)
def test_evidence_accepts_uncommitted_results_and_documents(repository, changed):
    (repository / changed).parent.mkdir(exist_ok=True)
    (repository / changed).write_text("2\n")
    assert len(evidence.begin(repository)["commit"]) == 40  # not refused


def test_evidence_refuses_a_run_of_uncommitted_code():
    config = {"git": {"commit": "0" * 40, "dirty": True}, "time": "", "hardware": {}}
    with pytest.raises(SystemExit, match="differs"):
        evidence.of_run(config, "python x.py")


def test_evidence_has_one_provenance_block_per_part(tmp_path):
    path = tmp_path / "made.json"
    evidence.write_part(path, "one", {"score": 1}, SAMPLE, [0])
    evidence.write_part(path, "two", {"score": 2}, SAMPLE, [0, 1, 2])
    evidence.write_part(path, "one", {"score": 3}, SAMPLE | {"commit": "1" * 40}, [0])
    content = json.loads(path.read_text())
    assert content["parts"] == {"one": {"score": 3}, "two": {"score": 2}}
    assert {block["of"]: block["commit"][0] for block in content["provenance"]} == {
        "one": "1",
        "two": "0",
    }
    told = [line for line in evidence.lines(path) if line]
    assert len(told) == 2
    assert "two: Measured at commit 0000000000 on 2026-01-01" in told[0]
    assert "seeds: 0 to 2" in told[0]
    evidence.note(path, "log", 7)
    with pytest.raises(SystemExit, match="another log"):
        evidence.note(path, "log", 8)


def test_evidence_measures_the_named_parts_and_writes_the_page(tmp_path, monkeypatch):
    made, path = [], tmp_path / "made.json"
    parts = {name: lambda name=name: made.append(name) or len(made) for name in ("one", "two")}
    monkeypatch.setattr(evidence, "begin", lambda: SAMPLE)
    for words in (["two"], [], ["--page"]):
        monkeypatch.setattr(evidence.sys, "argv", ["run.py", *words])
        evidence.measure_parts(path, parts, {"one": 1, "two": 3}, lambda: ["a page", ""])
    assert made == ["two", "one", "two"]
    content = json.loads(path.read_text())
    assert content["parts"] == {"one": 2, "two": 3}
    assert {block["of"]: block["seeds"] for block in content["provenance"]} == {
        "one": [0],
        "two": [0, 1, 2],
    }
    assert (tmp_path / "made.md").read_text() == "a page\n"
    monkeypatch.setattr(evidence.sys, "argv", ["run.py", "tow"])
    with pytest.raises(SystemExit, match="there is no part tow; say --page or some of one, two"):
        evidence.measure_parts(path, parts, {"one": 1, "two": 3}, list)


def test_evidence_command_contains_no_local_paths():
    words = [
        str(ROOT / "benchmarks" / "x.py"),
        "--peers-python",
        "/opt/some/python",
        "--only",
        "a b",
    ]
    assert evidence.command(words) == "python benchmarks/x.py --peers-python python --only 'a b'"


@every("path", FILES, name_of)
def test_every_benchmark_result_file_has_provenance(path):
    content, old = json.loads(path.read_text()), OLD.get(str(path.relative_to(ROOT)))
    blocks = content.get("provenance", [])
    for block in blocks:
        assert {field for field in evidence.FIELDS if block.get(field) in (None, "", {})} == set()
        assert len(block["commit"]) == 40
    if "parts" in content:
        told = {block["of"] for block in blocks} | set(old["parts"] if old else ())
        assert told == set(content["parts"])
    else:
        assert bool(blocks) != bool(old), "either a block, or an entry in unrecorded.json"


@every("name", OLD)
def test_unrecorded_result_files_exist_and_are_listed_correctly(name):
    content = json.loads((ROOT / name).read_text())
    old = OLD[name]
    assert old.get("missing") or old.get("dirty")
    assert not {block.get("of") for block in content.get("provenance", [])} & set(
        old.get("parts", ())
    )
    words = ["git", "-C", str(ROOT), "log", "--format=%H", "--", name]
    words.append(str(Path(name).with_suffix(".md")))  # where the page alone was kept at first
    shown = subprocess.run(words, check=False, capture_output=True, text=True).stdout.split()
    assert not shown or old["commit"] in shown  # a copy without history knows no better


@functools.cache
def text_of_pages():
    return "".join(page.read_text() for page in PAGES)


@every("path", FILES, name_of)
def test_benchmark_pages_print_the_provenance_of_results(path):
    text = text_of_pages()
    for line in evidence.lines(path):
        assert line.strip("*") in text, "run `make docs`"


def scripts():
    found = sorted((ROOT / "benchmarks").glob("**/*.py"))
    return [path for path in found if "parse_args" in path.read_text()]


@every("path", scripts(), name_of)
def test_every_benchmark_script_records_evidence(path):
    text = path.read_text()
    assert path.name in NO_RESULTS or "evidence.begin()" in text
