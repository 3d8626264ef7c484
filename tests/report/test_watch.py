"""The page of runs: logs that are being written, states, points, what is served and what is not."""

import fcntl
import json
import os
import socket
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
from watched_run_folders import NAUGHTY, RESULT, ROWS, make_run, row, write_rows

from sterling import statistics
from sterling.cli import main
from sterling.report.watch.metrics_tail import MetricsTail
from sterling.report.watch.run_state import describe_run
from sterling.report.watch.static_page import write_static_page
from sterling.report.watch.watch_server import WatchServer
from sterling.report.watch.watched_runs import WatchedRuns


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "runs"
    make_run(made / "a", ROWS, RESULT)
    make_run(made / "study" / "b", ROWS[:2], steps=1000, config={"lr": 0.5})
    (made / "a" / "film.mp4").write_bytes(bytes(range(200)))
    (tmp_path / "secret.mp4").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    return made


@pytest.fixture
def server(root):
    with WatchServer(root, 0) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(server, path, **headers):
    asked = urllib.request.Request(server.url.rstrip("/") + path, headers=headers)
    return urllib.request.urlopen(asked, timeout=60)


def status(server, path, **headers):
    try:
        with get(server, path, **headers) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_metrics_tail_waits_for_a_torn_line_and_rereads_a_rewritten_file(tmp_path):
    tail = MetricsTail(tmp_path / "metrics.jsonl")
    assert not tail.poll()
    write_rows(tmp_path, ROWS[:1], ending='{"step": 200, "da')
    assert tail.poll()
    assert [each["step"] for each in tail.rows] == [100]
    write_rows(tmp_path, ROWS[:2])
    assert tail.poll()
    assert not tail.poll()
    assert (len(tail.rows), tail.generation) == (2, 0)
    other = [row(100, [1.0, 1.0, 1.0]), *ROWS[1:], row(400, [1.0, 1.0, 1.0])]
    write_rows(tmp_path, other)  # resumed from before: longer than before, with another beginning
    assert tail.poll()
    assert (len(tail.rows), tail.generation) == (4, 1)
    write_rows(tmp_path, other[:1], ending="no json\n")
    tail.poll()
    assert (len(tail.rows), tail.generation, tail.broken) == (1, 2, 1)


def test_watch_page_run_states(tmp_path, root):
    assert describe_run(root / "a")["state"] == "finished"
    assert describe_run(root / "study" / "b")["state"] == "stopped"
    lost = make_run(tmp_path / "lost", [row(100, [None] * 3, failed=[0, 1, 2])])
    assert describe_run(lost)["state"] == "failed"
    descriptor = os.open(root / "study" / "b" / "lock", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert describe_run(root / "study" / "b")["state"] == "running"
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    assert describe_run(root / "study" / "b")["state"] == "stopped"
    os.close(descriptor)


def test_watch_page_run_state_has_progress_return_and_speed(root):
    done, going = describe_run(root / "a"), describe_run(root / "study" / "b")
    assert (done["progress"], done["budget"], done["unit"]) == (400, 400, "steps")
    assert done["return"]["value"] == 60.0
    assert done["return"]["from"] == "final evaluation"
    assert going["return"]["value"] == pytest.approx(55 / 3)  # of each seed's latest episodes
    assert going["return"]["from"] == "training episodes at step 200"
    assert (going["speed"], going["speed_unit"]) == (50.0, "steps")
    assert going["problems"] == []


def test_watch_page_names_damaged_run_files(root):
    (root / "a" / "result.json").write_text("{")
    runs = WatchedRuns(root).summaries()
    assert [each["problems"] for each in runs] == [["result.json is damaged"], []]
    assert runs[0]["state"] == "stopped"


def test_watch_page_tolerates_wrong_values_in_run_files(tmp_path):
    odd = [{"step": "x", "failed": 3, "data/return": 5}, {"data/return": [1.0]}, {}]
    wrong = {"phases": [1], "seeds": 4, "steps": "many", "config": 3, "environment": None}
    make_run(tmp_path / "runs" / "d", odd, {"final": [], "failed_seeds": 2}, **wrong)
    runs = WatchedRuns(tmp_path / "runs")
    (found,) = runs.summaries()
    assert found["progress"] == 0
    for column in [*found["columns"], "return", "nothing"]:
        runs.points("d", column, -1, 0)
    assert runs.details("d")["warnings"]


def test_watch_page_points_hold_seed_values_and_mean_interval(root):
    write_rows(root / "a", [*ROWS, row(400, [60.0, None, 8.0])])
    runs = WatchedRuns(root)
    made = runs.points("a", "data/return", -1, 0)
    assert made["x"] == [100, 200, 300, 400]
    assert made["seeds"][1] == [20.0, None, 40.0, None]
    held = np.array([[30.0, 50.0, 60.0], [30.0, 40.0, 40.0], [5.0, 9.0, 8.0]])
    expected = statistics.curve(held, within=(0.0, 500.0))
    assert made["mean"] == [None, *np.round(held.mean(0), 4)]
    np.testing.assert_allclose(made["low"][1:], expected.low, rtol=1e-5)
    np.testing.assert_allclose(made["high"][1:], expected.high, rtol=1e-5)
    assert runs.points("a", "return", -1, 0)["mean"] == made["mean"]


def test_watch_page_sends_only_new_points_until_a_rewrite(root):
    runs = WatchedRuns(root)
    runs.summaries()
    first = runs.points("study/b", "data/return", -1, 0)
    write_rows(root / "study" / "b", ROWS)
    assert (first["changes_from"], first["mean"]) == (
        1,
        [None, 18.3333],
    )  # seed 1 has one value only
    more = runs.points("study/b", "data/return", first["generation"], first["changes_from"])
    assert (more["after"], more["kept"], more["changes_from"]) == (1, 1, 3)
    assert (more["x"], more["mean"]) == ([200, 300], [21.6667, 33.0])
    write_rows(root / "study" / "b", [row(100, [1.0, 1.0, 1.0])])
    anew = runs.points("study/b", "data/return", more["generation"], more["rows"])
    assert (anew["generation"], anew["after"], anew["x"]) == (1, 0, [100])


def test_watch_page_mean_excludes_failed_seeds(tmp_path):
    make_run(tmp_path / "runs" / "c", [*ROWS, row(400, [70.0, None, 30.0], failed=[1])])
    runs = WatchedRuns(tmp_path / "runs")
    runs.summaries()
    assert runs.points("c", "data/return", -1, 0)["mean"] == [None, 21.6667, 33.0, 50.0]


def test_the_page_and_its_data_are_served(server):
    with get(server, "/") as answer:
        assert b"watch.js" in answer.read()
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    with get(server, "/api/runs") as answer:
        found = json.load(answer)["runs"]
    assert [each["name"] for each in found] == ["a", "study/b"]
    with get(server, "/api/details?run=study/b") as answer:
        assert json.load(answer)["settings"]["lr"] == 0.5
    with get(server, "/api/compare?runs=%5B%22a%22%5D") as answer:
        assert "nothing to compare" in json.load(answer)["text"]


def test_films_are_served_in_ranges(server):
    with get(server, "/files/a/film.mp4", Range="bytes=10-19") as answer:
        assert answer.status == 206
        assert answer.read() == bytes(range(10, 20))
        assert answer.headers["Content-Range"] == "bytes 10-19/200"
    assert status(server, "/files/a/film.mp4", Range="bytes=900-") == 416


@pytest.mark.parametrize(
    "path",
    [
        "/files/a/../../secret.mp4",
        "/files/a/%2e%2e%2f%2e%2e%2fsecret.mp4",
        "/files/../secret.mp4",
        "/files/a/link.mp4",
        "/files/a/config.json",
        "/files/nothing/film.mp4",
        "/watch.py",
        "/../../etc/passwd",
        "/api/details?run=../secret.txt",
        "/api/points?run=a&column=x&generation=x&after=0",
    ],
)
def test_watch_server_serves_no_other_files(server, root, path):
    (root / "a" / "link.mp4").symlink_to(root.parent / "secret.mp4")
    get(server, "/api/runs").close()
    assert status(server, path) == 404


def test_other_hosts_are_refused(server):
    port = server.server_address[1]
    assert status(server, "/api/runs", Host="evil.example") == 403
    assert status(server, "/api/runs", Host=f"localhost:{port}") == 200
    assert server.server_address[0] == "127.0.0.1"


def test_static_watch_page_is_complete_and_escapes_run_text(root, tmp_path):
    closing = "</script><script>alert(1)</script>"
    make_run(root / "c", [row(100, [1.0, 2.0, 3.0], **{NAUGHTY: [1.0] * 3})], algorithm=closing)
    page = write_static_page(root, tmp_path / "page")
    text = page.read_text()
    assert text.index("data/runs.js") < text.index("chart.js") < text.index("watch.js")
    data = (page.parent / "data" / "runs.js").read_text()
    assert "</script>" not in data
    listed = json.loads(data.partition(" = ")[2].rstrip(";\n"))
    assert [each["name"] for each in listed["runs"]] == ["a", "c", "study/b"]
    stored = json.loads((page.parent / "data" / "0.js").read_text().partition(" = ")[2][:-2])
    assert stored["points"]["data/return"]["x"] == [100, 200, 300]
    assert (page.parent / "files" / "0" / "film.mp4").read_bytes() == bytes(range(200))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "is not a folder"),
        ([".", "--static", "x", "--port", "1"], "--port has no effect"),
        ([".", "--port", "99999999"], "cannot be used"),
    ],
)
def test_watch_command_refuses_wrong_options_in_one_line(
    tmp_path, monkeypatch, capsys, words, said
):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", *words]) == 2
    assert said in capsys.readouterr().err
