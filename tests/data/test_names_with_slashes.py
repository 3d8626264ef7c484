"""Names are stored as paths, and may contain the slash that joins them."""

import re

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.data import Dataset, Recorder, check, repair_dataset
from sterling.data.space_json import column_spaces
from sterling.nets.mlp import MLP
from sterling.problem.joined_path import joined_path, named_leaves
from sterling.training.policy_player import check_observation
from sterling.training.warm_start.learned_parts import learned_parts
from sterling.types import Mistake

KEYS = ("arm/pos", "arm~1pos", "arm")
SEEN = {"arm/pos": [0.0], "arm~1pos": [0.0], "arm": {"pos": [0.0]}}


class Arm(gymnasium.Env):
    """Every entry of its observation is a number of its own; the action has a slash too."""

    def __init__(self, keys=KEYS, plain=False):
        self.plain = plain
        one = spaces.Box(-9, 9, (1,), np.float32)
        parts = {key: one if key != "arm" else spaces.Dict({"pos": one}) for key in keys}
        self.observation_space = spaces.Dict(parts)
        joint = spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = joint if plain else spaces.Dict({"joint/1": joint})

    def _see(self):
        seen = {key: np.full(1, self.at + 0.1 * n, np.float32) for n, key in enumerate(KEYS)}
        own = {key: seen[key] for key in self.observation_space.spaces}
        return own | ({"arm": {"pos": seen["arm"]}} if "arm" in own else {})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self._see(), {}

    def step(self, action):
        self.at += 1
        push = action if self.plain else action["joint/1"]
        return self._see(), float(push[0]), self.at == 5, False, {}


def record(folder, **options):
    env = Recorder(Arm(**options), folder)
    for episode in range(4):
        env.reset(seed=episode)
        for step in range(5):
            push = np.array([0.1 * (step + episode)], np.float32)
            env.step(push if env.unwrapped.plain else {"joint/1": push})
    env.close()
    return Dataset(folder)


def test_no_two_paths_have_the_same_text():
    paths = [("arm/pos",), ("arm~1pos",), ("arm", "pos"), ("arm~0", "1pos"), ("arm~/", "pos")]
    assert joined_path(paths[0]) == "arm~1pos"
    assert len({joined_path(path) for path in paths}) == len(paths)


def test_columns_of_names_with_slashes_are_distinct():
    assert list(column_spaces("obs", Arm().observation_space)) == [
        "obs/arm/pos", "obs/arm~1pos", "obs/arm~01pos"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["sterling", "npz"])
def test_names_with_slashes_are_recorded_stored_and_loaded(tmp_path, same, name):
    data = record(tmp_path / "log")
    out = tmp_path / ("log.npz" if name == "npz" else "copy")
    data.save(out, name)
    again = Dataset(out)
    same(data, again)
    rows = again.transitions(np.array([1]))
    seen = {key: np.asarray(rows.obs[key]).item() for key in KEYS[:2]}
    assert seen == {"arm/pos": pytest.approx(1.0), "arm~1pos": pytest.approx(1.1)}
    assert np.asarray(rows.obs["arm"]["pos"]).item() == pytest.approx(1.2)
    assert np.asarray(rows.next_obs["arm/pos"]).item() == pytest.approx(2.0)
    assert not [one for one in check(again) if one.severity == "error"]
    assert repair_dataset(again, check(again)).lengths.tolist() == [5] * 4


def test_minari_stores_a_name_with_a_slash_unless_two_names_would_be_one(tmp_path, same):
    data = record(tmp_path / "log", keys=KEYS[:2])
    data.save(tmp_path / "arm-v0", "minari")
    same(data, Dataset(tmp_path / "arm-v0"))
    both = record(tmp_path / "both")
    with pytest.raises(Mistake, match="stored as observations/arm/pos in Minari"):
        both.save(tmp_path / "both-v0", "minari")


@pytest.mark.slow
def test_training_from_a_dataset_with_slashes_in_names(tmp_path):
    record(tmp_path / "log", plain=True)
    small = {"width": 8, "batch": 8, "evaluate_episodes": 0, "updates": 4}
    run = sterling.train("bc", data=tmp_path / "log", out=tmp_path / "run", **small)
    made = sterling.load(run.path).policy(SEEN)
    assert np.shape(made) == (1,)


def test_learned_parts_of_two_networks_with_joined_names_stay_two():
    """A State that holds networks by the names of entries; only shapes, so nothing is compiled."""
    first, second = (jax.eval_shape(_network, np.zeros((1, size))) for size in (2, 3))
    state = {"arm/pos": first, "arm": {"pos": second}, "left/config": first}
    parts = learned_parts(state)
    assert {part.name for part in parts} == {"arm~1pos", "arm/pos", "left/config"}
    shapes = dict(named_leaves(state))
    sizes = {part.name: shapes[part.leaves[f"{part.name}/layers/0/weight"]].shape[1]
             for part in parts}  # fmt: skip
    assert sizes == {"arm~1pos": 2, "arm/pos": 3, "left/config": 2}


def _network(inputs):
    """Return a network of one seed."""
    return jax.tree.map(
        lambda x: x[None], MLP.uniform(jax.random.key(0), (inputs.shape[1], 4, 1), "relu")
    )


def test_policy_checks_each_entry_of_an_observation_whose_joined_names_are_one():
    space = Arm(("arm/pos", "arm")).observation_space
    right, short = np.zeros(1, np.float32), np.zeros(0, np.float32)
    check_observation(space, {"arm/pos": right, "arm": {"pos": right}})
    said = re.escape("must have the shape arm/pos (1,), arm~1pos (1,); got arm/pos (0,), arm~1pos ")
    with pytest.raises(Mistake, match=said):
        check_observation(space, {"arm/pos": right, "arm": {"pos": short}})
