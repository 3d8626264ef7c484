"""The examples of docs/channels.md work as they stand."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "channels.md"


def run_examples():
    found: dict = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), found)
    return found


def test_channels_page_example_summaries_are_those_of_the_comments():
    summaries = run_examples()["summaries"]
    gains, costs = np.array([5.0, 2.0]), np.array([9.0, 4.0])
    episodes = {"return": gains, "return.before": gains - 1.5, "cost": costs}
    found = {name: summary.of(episodes) for name, summary in summaries.items()}
    # the front: 5 x (10 - 9), and 2 x (9 - 4) more
    assert found == {"worst": 2.0, "dear_tenth": 9.0, "front": 15.0, "gain": 1.5}
    assert summaries["dear_tenth"].better == -1


def test_channels_page_example_task_reports_its_channel():
    world = run_examples()["world"]
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = world.reset(keys)
    _, step = world.step(state, jnp.asarray([[0, 1, 1, 0]]), keys)
    assert step.channels["cost"].tolist() == [[0.0, 1.0, 1.0, 0.0]]
    assert world.spec.channels["cost"].better == -1
