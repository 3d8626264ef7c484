"""Small run folders for the tests of `sterling watch`: a log of three seeds, and a result."""

import json

CONFIG = {
    **{"algorithm": "ppo", "environment": "CartPole-v1", "steps": 400, "seeds": [0, 1, 2]},
    **{"config": {"lr": 0.001}, "env_options": {}, "time": "2026-01-02T03:04:05+00:00"},
}
NAUGHTY = 'x/<img src=x onerror="alert(1)">'


def row(step, returns, **more):
    made = {"step": step, "steps": 400, "iteration": step // 100, "time/seconds": step / 100}
    return {**made, "time/steps_per_second": 50.0, "data/return": returns, "failed": [], **more}


def write_rows(folder, rows, ending=""):
    text = "".join(json.dumps(each) + "\n" for each in rows)
    (folder / "metrics.jsonl").write_text(text + ending)


def make_run(folder, rows, result=None, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    write_rows(folder, rows)
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


ROWS = [row(100, [10.0, 20.0, None]), row(200, [30.0, None, 5.0]), row(300, [50.0, 40.0, 9.0])]
FINAL = {"per_seed": [60.0, 50.0, 70.0], "estimate": 60.0, "low": 40.0, "high": 80.0, "n": 3,
         "method": "t", "level": 0.95}  # fmt: skip
RESULT = {"algorithm": "ppo", "environment": "CartPole-v1", "steps": 400, "seeds": [0, 1, 2],
          "final": {"return": FINAL}, "failed_seeds": [], "wall_seconds": 9.0}  # fmt: skip
