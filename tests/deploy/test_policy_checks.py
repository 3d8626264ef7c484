"""The exported NumPy policy refuses what ``run.policy`` refuses, and takes what it takes."""

from types import SimpleNamespace

import deployed_worlds as worlds
import numpy as np
import odd_worlds
import pytest
from gymnasium import spaces

from sterling.deploy.formats.c_source import c_source
from sterling.deploy.formats.tensor_files import describe_graph
from sterling.deploy.graph.policy_graph import PolicyGraph, Port, Tensor
from sterling.deploy.graph.world_conversion import input_limits
from sterling.deploy.policy_numpy import Policy
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.problem.joined_path import joined_path
from sterling.training.policy_player import check_observation, check_options
from sterling.types import Mistake

FORMS = odd_worlds.OddForms
PICTURE = worlds.Pictures.obs
RIGHT = {
    "place": np.zeros((2, 2)),
    "kind": np.int64(2),
    "parts": (np.array([0, 1], np.int8), np.array([1, 2])),
    "action_mask": np.array([1, 1, 0, 0, 1], np.int8),
}
SEEN = np.zeros((3, 12, 12), np.uint8)


def policy_of(space, action):
    """A NumPy policy without operations that returns its first entry, and its graph."""
    world = SimpleNamespace(spec=SimpleNamespace(obs=space, action=action, agents=None))
    ports = []
    for number, (path, leaf) in enumerate(space_leaves(space)):
        dtype = "float32" if leaf.dtype == np.float64 else str(leaf.dtype)
        tensor = Tensor(f"obs_{number}", (-1, *(leaf.shape or ())), dtype)
        ports.append(Port(tensor, "obs", joined_path(path), **input_limits(world, path, leaf)))
    first = ports[0].tensor
    graph = PolicyGraph(ports, [Port(first, "action", source=first.name)], {}, [])
    return Policy(None, (describe_graph(graph, {}), {})), graph


def is_taken_by_run(space, action, obs):
    spec = SimpleNamespace(obs=space, action=action, agents=None)
    try:
        check_options(spec, check_observation(space, obs), "Odd")
    except Mistake:
        return False
    return True


def is_taken_by_file(policy, obs):
    try:
        policy(obs)
    except ValueError as error:
        return not str(error).startswith("the observation")  # of another kind: a failure
    return True


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        ({}, True),
        ({"kind": np.float32(1.0)}, True),
        ({"kind": np.int64(3)}, False),
        ({"kind": np.float64(1.7)}, False),
        ({"kind": np.array("1")}, False),
        ({"place": np.full((2, 2), np.nan)}, False),
        ({"place": np.full((2, 2), np.inf)}, False),
        ({"place": np.zeros((2, 3))}, False),
        ({"place": np.zeros((2, 2), np.int32)}, True),
        ({"place": np.zeros((2, 2), np.complex64)}, False),
        ({"parts": (np.array([0, 2], np.int8), np.array([1, 2]))}, False),
        ({"parts": (np.array([0, 1], np.int8), np.array([2, 2]))}, False),
        ({"parts": (np.array([0, 1], np.int8), np.array([1, -1]))}, False),
        ({"parts": (np.array([0, 1], np.int8), np.array([1, 2, 0]))}, False),
        ({"action_mask": np.array([0, 0, 0, 0, 1], np.int8)}, False),
        ({"action_mask": np.array([1, 0, 0, 0, 0], np.int8)}, False),
    ],
)
def test_exported_policy_checks_dict_observations_as_run_policy_does(changed, taken):
    policy, _ = policy_of(FORMS.observation_space, FORMS.action_space)
    obs = {**RIGHT, **changed}
    assert is_taken_by_run(FORMS.observation_space, FORMS.action_space, obs) == taken
    assert is_taken_by_file(policy, obs) == taken


@pytest.mark.parametrize(
    ("obs", "taken"),
    [
        (SEEN, True),
        (SEEN.astype(np.float64) + 255, True),
        (SEEN + 0.5, False),
        (SEEN.astype(np.int64) + 256, False),
        (SEEN.astype(np.int64) - 1, False),
        (SEEN.astype(np.float32) + np.nan, False),
        (SEEN[:2], False),
        (np.stack([SEEN, SEEN]), True),  # a batch
    ],
)
def test_exported_policy_checks_pictures_as_run_policy_does(obs, taken):
    policy, _ = policy_of(PICTURE, spaces.Discrete(2))
    if obs.ndim == 3:
        assert is_taken_by_run(PICTURE, spaces.Discrete(2), obs) == taken
    assert is_taken_by_file(policy, obs) == taken


@pytest.mark.parametrize(
    ("obs", "taken"),
    [
        ([0.0, 1.0, -2.0], True),
        (np.array([0, 1, 2]), True),
        (np.array([0.0, 1e30, 1.0], np.float32), True),
        (np.array([0.0, np.nan, 1.0]), False),
        (np.array([0.0, -np.inf, 1.0], np.float32), False),
        (np.array([0.0, 1e39, 1.0]), False),
        (np.zeros(2), False),
        (np.array([0.0, 1j, 1.0]), False),
    ],
)
@pytest.mark.filterwarnings("error")
def test_exported_policy_checks_vectors_as_run_policy_does(obs, taken):
    space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    policy, _ = policy_of(space, spaces.Discrete(2))
    assert is_taken_by_run(space, spaces.Discrete(2), np.asarray(obs)) == taken
    assert is_taken_by_file(policy, obs) == taken


def test_exported_policy_refuses_missing_entries_and_batches_of_several_sizes():
    policy, _ = policy_of(FORMS.observation_space, FORMS.action_space)
    with pytest.raises(ValueError, match="the observation has no entry 'place'"):
        policy({name: x for name, x in RIGHT.items() if name != "place"})
    with pytest.raises(ValueError, match="batches of several sizes"):
        policy({**RIGHT, "kind": np.array([0, 1])})


def test_exported_c_file_says_that_it_does_not_check_observations():
    _, graph = policy_of(PICTURE, spaces.Discrete(2))
    assert "The observation is not checked" in c_source(graph, "A control policy.")
