"""The example of docs/channels.md works as it stands."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp

PAGE = Path(__file__).parents[1] / "docs" / "channels.md"


def test_channels_page_example_task_reports_its_channel():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: dict = {}
    exec(compile(code, str(PAGE), "exec"), found)
    world = found["world"]
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = world.reset(keys)
    _, step = world.step(state, jnp.asarray([[0, 1, 1, 0]]), keys)
    assert step.channels["cost"].tolist() == [[0.0, 1.0, 1.0, 0.0]]
    assert world.spec.channels["cost"].better == -1
