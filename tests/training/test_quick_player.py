"""One observation takes the short way through a player, and gets the action of the long one."""

import dataclasses
import types

import jax
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.envs.hosted.shared_memory import ContractViolation
from sterling.envs.hosted.worker_env import ObservationWriter
from sterling.envs.world_wrappers import Flatten
from sterling.training.policy_player import _as_arrays, check_observation
from sterling.types import Mistake, Spec

PICTURE = spaces.Box(0, 255, (2, 2), np.uint8)
PARTS = spaces.Dict({
    "arm": spaces.Tuple([spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(3)]),
    "image": PICTURE, "bits": spaces.MultiBinary(2), "levels": spaces.MultiDiscrete([2, 4]),
})  # fmt: skip
GIVEN = {"arm": [[1, 2.5], 2.0], "image": [[0.0, 255], [7, 8]], "bits": [True, False],
         "levels": [1, 3], "more": "text"}  # fmt: skip


@pytest.fixture(name="run", scope="module")
def _run():
    return sterling.train("ppo", "Pendulum-v1", steps=512, envs=2, length=64, seeds=2, width=8,
                          minibatch=64, epochs=1, evaluate_episodes=0)  # fmt: skip


def test_player_fast_path_for_arrays_equals_the_checked_path(run, monkeypatch):
    player, rng = run.player(1), np.random.default_rng(0)
    obs = rng.normal(size=(20, 3)).astype(np.float32)
    quick = [player(each) for each in obs]
    assert player._quickly_checked(obs[0]) is not None
    monkeypatch.setattr(type(player), "_quickly_checked", lambda self, obs: None)
    np.testing.assert_array_equal(quick, [player(each) for each in obs])
    np.testing.assert_array_equal(quick, [run.policy(each, 1) for each in obs.tolist()])
    assert len({float(action[0]) for action in quick}) == 20


def test_player_checks_unusual_observations_in_full(run):
    player = run.player()
    far = np.float32([0.0, np.inf, 0.0]), np.array([0.0, 1e39, 0.0])
    for wrong in (np.zeros(4, np.float32), np.full(3, np.nan, np.float32), *far):
        assert player._quickly_checked(wrong) is None
        with pytest.raises(Mistake):
            player(wrong)
    assert player._quickly_checked(np.zeros((2, 3), np.float32)) is None
    np.testing.assert_array_equal(player(np.zeros(3)), player(np.zeros(3, np.float32)))


def test_policy_keeps_one_player_for_each_seed_until_the_agent_changes(run):
    obs = np.ones(3, np.float32)
    first, second = run.policy(obs, 0), run.policy(obs, 1)
    assert first != second
    kept = run._players[0, False][1]
    assert run.policy(obs, 0) == first
    assert run._players[0, False][1] is kept
    whole = run.agent
    try:
        swapped = jax.tree.map(lambda x: x[::-1], whole.state)
        run.agent = dataclasses.replace(whole, state=swapped)
        assert run.policy(obs, 0) == second
    finally:
        run.agent = whole


def test_observations_in_the_forms_that_worlds_give_are_read():
    """Lists, a list for a tuple, whole numbers as floats, and entries that the space has not."""
    found = check_observation(PARTS, _as_arrays(PARTS, GIVEN))
    assert sorted(found) == ["arm", "bits", "image", "levels"]
    np.testing.assert_array_equal(found["image"], np.uint8([[0, 255], [7, 8]]))
    np.testing.assert_array_equal(found["arm"][0], np.float32([1.0, 2.5]))
    assert (found["arm"][1], found["image"].dtype) == (2, np.uint8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": np.full((2, 2), 0.5)}, r"\['image'\] must hold whole .* divide pictures by 255"),
        ({"image": [[0, 256], [0, 0]]}, "whole numbers from 0 to 255, as its space says"),
        ({"image": [[-1, 0], [0, 0]]}, "whole numbers from 0 to 255"),
        ({"arm": [[0, 0], 99]}, r"\['arm'\]\[1\] is 99, outside Discrete"),
        ({"arm": [[0, 0], 1.7]}, "must hold whole numbers"),
        ({"arm": ([0, -np.inf], 1)}, "an observation contains NaN or infinity"),
        ({"arm": ([0, 1e39], 1)}, "NaN or infinity"),
        ({"bits": [0, 2]}, r"\['bits'\] is \[0 2\], outside MultiBinary"),
        ({"levels": [1, 4]}, "outside MultiDiscrete"),
        ({"levels": ["a", "b"]}, r"\['levels'\] has type <U1"),
    ],
)
def test_observations_that_worlds_refuse_are_refused(change, words):
    with pytest.raises(Mistake, match=words):
        check_observation(PARTS, _as_arrays(PARTS, GIVEN | change))


def test_the_quick_way_refuses_pictures_in_unit_range(run, monkeypatch):
    """They would be divided by 255 once more."""
    player = run.player()
    monkeypatch.setattr(player, "_space", PICTURE)
    assert player._quickly_checked(np.full((2, 2), 0.5, np.float32)) is None
    assert player._quickly_checked(np.full((2, 2), 300)) is None
    assert player._quickly_checked(np.full((2, 2), 3.0)).dtype == np.uint8


def test_worlds_and_policies_refuse_the_same_numbers():
    """An environment's whole numbers outside its space's type wrapped around."""
    row = np.zeros((2, 2), np.uint8)
    writer = ObservationWriter(PICTURE, [row])
    writer.write(np.full((2, 2), 255, np.uint16))
    assert row.min() == 255
    with pytest.raises(ContractViolation, match="observation must hold whole numbers from 0 to"):
        writer.write(np.full((2, 2), 300, np.uint16))


def test_a_flattened_picture_is_not_divided_by_255_twice():
    spec = Spec(PICTURE, spaces.Discrete(2))
    flat = Flatten(types.SimpleNamespace(spec=spec, seeds=1, traced=False, exact=True))
    np.testing.assert_allclose(flat.to_agent(np.full((2, 2), 255.0)), np.ones(4))
    with pytest.raises(Mistake, match="an observation must hold whole numbers from 0 to 255"):
        flat.to_agent(np.full((2, 2), 0.5, np.float32))
