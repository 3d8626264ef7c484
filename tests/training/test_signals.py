"""SIGTERM is answered with code 75 and the command to go on, wherever in a run it comes."""

import os
import signal
import subprocess
import sys

import pytest

WORLD = """
import time
import gymnasium
import numpy
import sterling

steps = 0


class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return numpy.zeros(2, numpy.float32), {{}}

    def step(self, action):
        global steps
        steps, self.clock = steps + 1, self.clock + 1
        if steps > {slow}:
            print("slow", flush=True)
            time.sleep(0.05)
        return numpy.zeros(2, numpy.float32), 1.0, False, self.clock == 40, {{}}


fields = {{"warmup": {warmup}, "capacity": 2000, "batch": 8, "width": 8}}
sterling.train(
    "dqn", Slow, steps={warmup} + 40, envs=1, out={out!r}, log_every=8,
    env_options={{"workers": 0}}, evaluate_episodes=60, **fields,
)
"""


@pytest.mark.parametrize(
    ("stage", "slow", "warmup", "said"),
    [
        ("the warm-up", 10, 1_000, "stopped before the first iteration; run the same command"),
        ("the final evaluation", 60, 20, "saved; resume with: sterling resume"),
    ],
)
def test_sigterm_in_warmup_or_final_evaluation_exits_with_code_75(
    stage, slow, warmup, said, tmp_path
):
    program = WORLD.format(slow=slow, warmup=warmup, out=str(tmp_path / "run"))
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ, stdout=subprocess.PIPE, text=True
    )
    for _ in range(4):  # in the middle of it
        assert process.stdout.readline() == "slow\n"
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 75
    assert said in rest
    assert (tmp_path / "run" / "config.json").exists() == (stage != "the warm-up")


AT_ONCE = """
import os, signal
import sterling
from sterling.training.saving import run_folder, tensor_file

def then(write):
    def both(*given):
        made = write(*given)
        os.kill(os.getpid(), signal.SIGTERM)
        return made
    return both

{patch}
sterling.train("ppo", "probe:both", steps=256, out={out!r}, length=16, minibatch=64, epochs=1,
               width=8, preset=False, evaluate_episodes=2)
"""


@pytest.mark.parametrize(
    ("patch", "said", "files"),
    [
        (
            "tensor_file.write = then(tensor_file.write)",
            "saved at step 256; resume with: sterling resume",
            {"checkpoints", "config.json", "lock", "metrics.jsonl"},
        ),
        (
            "run_folder.write_config = then(run_folder.write_config)",
            "stopped before the first iteration; begin with: sterling resume",
            {"config.json", "lock"},
        ),
    ],
    ids=["in the last checkpoint", "before the first iteration"],
)
def test_sigterm_during_a_config_or_checkpoint_write_exits_with_code_75(
    patch, said, files, tmp_path
):
    program = AT_ONCE.format(patch=patch, out=str(tmp_path / "run"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=300
    )
    assert done.returncode == 75, done.stderr
    assert said in done.stdout
    assert {file.name for file in (tmp_path / "run").iterdir()} == files
    assert not list((tmp_path / "run" / "checkpoints").glob("*.tmp-*"))
