"""Action masks of a log: choices without an option, and actions that their own masks forbid."""

import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.data import Dataset, check, repair_dataset, require_valid
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block
from sterling.deploy.export_policy import export_policy
from sterling.types import Mistake

PAIR = spaces.MultiDiscrete([2, 3], start=[1, 0])
FREE, STUCK, NEITHER = [1, 1, 0, 1, 1], [1, 1, 0, 0, 0], [0] * 5


def log(masks, actions, space=PAIR, shape=None):
    """Episodes of 2 and 3 steps; ``masks`` of their 3 and 4 observations, in rows."""
    masks = np.array(masks, np.int8).reshape(7, *(shape or (-1,)))
    obs = spaces.Dict(
        {"action_mask": spaces.MultiBinary(masks.shape[1:]), "x": spaces.Box(-9.0, 9.0, (1,))}
    )
    x = np.random.default_rng(0).normal(size=(7, 1)).astype(np.float32)
    arrays = {"obs/action_mask": masks, "obs/x": x, "action": np.array(actions)}
    arrays |= {"reward": np.arange(5.0), "discount": np.array([1, 0, 1, 1, 0], np.float32)}
    block = Block(arrays, np.array([2, 3]), np.array([0, 0]))
    return Dataset.from_block(block, obs, space, Facts(sources=(Source("test", "memory"),)))


def found(data):
    return [(x.severity, x.episode, x.step) for x in check(data) if x.kind == "mask"]


ALLOWED = [[1, 1], [2, 2], [1, 1], [1, 2], [2, 1]]


def test_check_finds_no_fault_in_masks_that_were_obeyed():
    assert found(log([FREE, FREE, NEITHER, FREE, FREE, FREE, NEITHER], ALLOWED)) == []


def test_check_warns_of_a_choice_without_an_option_where_an_action_was_taken():
    data = log([FREE, STUCK, NEITHER, FREE, STUCK, STUCK, NEITHER], ALLOWED)
    assert found(data) == [("warning", 0, 1), ("warning", 1, 1)]
    said = next(x.message for x in check(data) if x.kind == "mask" and x.episode == 1)
    assert said.startswith("the action mask leaves choice 2 of 2 without an option (2 of its masks")


def test_check_finds_actions_that_their_own_mask_forbids_and_repair_drops_them():
    actions = [[1, 1], [2, 2], [1, 0], [1, 2], [2, 1]]
    data = log([FREE] * 7, actions)
    assert found(data) == [("error", 1, 0)]
    with pytest.raises(Mistake, match="episode 1 step 0: its own action mask forbids the action"):
        require_valid(data)
    repaired = repair_dataset(data, check(data))
    assert found(repaired) == []
    assert repaired.rows == 4


def test_check_reads_masks_of_combinations_and_of_nested_actions():
    joint = [0, 0, 1, 1, 0, 0]
    assert found(log([joint] * 7, [[1, 2], [2, 0]] * 2 + [[1, 2]], shape=(2, 3))) == []
    assert found(log([joint] * 7, [[1, 1], [2, 0]] * 2 + [[1, 2]], shape=(2, 3))) == [
        ("error", 0, 0),
        ("error", 1, 0),
    ]
    alone = spaces.Discrete(3, start=5)
    assert found(log([[0, 1, 1]] * 7, [6, 7, 6, 5, 6], alone)) == [("error", 1, 1)]
    assert found(log([[1, 1]] * 7, np.zeros((5, 2), np.float32), spaces.Box(-1, 1, (2,)))) == []


def test_log_whose_mask_is_no_row_of_all_options_is_refused(tmp_path):
    path = tmp_path / "log"
    log([[0, 0, 1, 1, 0, 0]] * 7, [[1, 2], [2, 0]] * 2 + [[1, 2]], shape=(2, 3)).save(path)
    with pytest.raises(Mistake, match=r"of shape \(2, 3\) does not fit .* of shape \(5,\)\.$"):
        sterling.train("bc", data=path, updates=1, evaluate_episodes=0)


@pytest.mark.slow
def test_policy_of_a_masked_log_without_an_environment_is_exported(tmp_path):
    log([FREE, FREE, NEITHER, FREE, FREE, FREE, NEITHER], ALLOWED).save(tmp_path / "log")
    run = sterling.train("bc", data=tmp_path / "log", updates=2, evaluate_episodes=0, width=8)
    made = export_policy(run, tmp_path / "policy.npz", steps=40)
    assert made.agreement.largest < 1e-5
    seen = {"action_mask": np.array([0, 1, 0, 1, 0], np.int8), "x": np.zeros(1, np.float32)}
    assert run.policy(seen).tolist() == [2, 1]
    with pytest.raises(Mistake, match="leaves choice 1 of 2 without an option, so no action can"):
        run.policy({**seen, "action_mask": np.array([0, 0, 0, 1, 0], np.int8)})
