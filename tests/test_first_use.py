"""The first-use examples run as a new user would run them, with small budgets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "first_use"


def bash(script, *words):
    """Run a script with this Python's `sterling` first on the path."""
    found = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(EXAMPLES / script), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        env=found,
        cwd=ROOT,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_first_use_example_dict_world_with_a_callback_runs(tmp_path, capsys):
    sys.path.insert(0, str(EXAMPLES))
    import dict_world

    run = dict_world.main(str(tmp_path / "run"), 8_192)
    assert "return" in capsys.readouterr().out
    assert run.best is not None
    rows = (tmp_path / "run/metrics.jsonl").read_text()
    assert "search/solved" in rows


@pytest.mark.slow
def test_first_use_example_dataset_to_onnx_runs(tmp_path):
    import numpy as np
    import onnxruntime

    bash("dataset_to_onnx.sh", tmp_path, "", 400, 400)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    (obs,) = [each for each in session.get_inputs() if "obs" in each.name]
    action = session.run(None, {obs.name: np.zeros((1, 3), np.float32)})[0]
    assert -2.0 <= float(np.ravel(action)[0]) <= 2.0


@pytest.mark.slow
def test_first_use_example_own_algorithm_to_figure_runs(tmp_path):
    bash("own_algorithm.sh", tmp_path, "4_096", "2")
    assert (tmp_path / "figure/index.html").exists()
    assert list((tmp_path / "figure").rglob("*.png"))
