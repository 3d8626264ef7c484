"""Figures of datasets whose figures are known."""

import dataclasses

import numpy as np
import pytest
from gymnasium import spaces

from sterling.cli import main
from sterling.data import Dataset, describe, recommend
from sterling.data.dataset_metadata import Facts
from sterling.data.episode_columns import Block
from sterling.data.file_conversion import convert_files
from sterling.types import Mistake


def tabular(episodes, ended=True, actions=3, **facts):
    """Episodes given as [(state, action, reward), ...] and a last state."""
    obs, action, reward, lengths = [], [], [], []
    for steps, last in episodes:
        obs += [[s] for s, _, _ in steps] + [[last]]
        action += [a for _, a, _ in steps]
        reward += [r for _, _, r in steps]
        lengths.append(len(steps))
    discount = np.ones(len(action), np.float32)
    discount[np.cumsum(lengths) - 1] = 0.0 if ended else 1.0
    block = Block(
        {
            "obs": np.array(obs, np.int64),
            "action": np.array(action),
            "reward": np.array(reward, np.float64),
            "discount": discount,
        },
        np.array(lengths),
        np.zeros(len(lengths), np.int32),
    )
    return Dataset.from_block(
        block, spaces.MultiDiscrete([50]), spaces.Discrete(actions), Facts(**facts)
    )


def test_describe_quality_and_coverage_follow_the_paper():
    data = tabular([([(0, 0, 1.0), (1, 0, 1.0)], 2), ([(0, 0, 0.0), (1, 1, 4.0)], 2)])
    found = describe(data, reference=(1.0, 5.0))
    assert found.quality.value == pytest.approx(0.5)  # (3 - 1) / (5 - 1)
    assert found.pairs == 3
    assert found.coverage is None
    wider = tabular([([(s, a, 0.0)], 9) for s in range(4) for a in range(3)])
    assert describe(data, beside=wider).coverage == pytest.approx(3 / 12)
    assert describe(data, beside=data).coverage == 1.0
    other = tabular([([(0, 0, 1.0)], 1)], actions=4)
    with pytest.raises(Mistake, match="Give files of one environment"):
        describe(data, beside=other)
    assert found.upside == pytest.approx(np.sqrt(0.5))  # returns 2 and 4
    assert found.ended == 1.0
    with pytest.raises(Mistake, match="no rows"):
        describe(data[:0])


def test_describe_counts_distinct_discrete_state_action_pairs():
    grid = [(i, j, k) for i in range(8) for j in range(8) for k in range(4)]
    obs = np.array([[(i, j), (i, j)] for i, j, _ in grid]).reshape(-1, 2)
    columns = {
        "obs": obs,
        "action": np.array([k for *_, k in grid]),
        "reward": np.zeros(256),
        "discount": np.zeros(256, np.float32),
    }
    block = Block(columns, np.ones(256, np.int64), np.zeros(256, np.int32))
    data = Dataset.from_block(block, spaces.MultiDiscrete([8, 8]), spaces.Discrete(4))
    assert describe(data).pairs == 256


def test_describe_does_not_treat_constant_0_or_1_as_success_rates():
    """Every episode has one step, and probability 1: that is not one of many lengths."""
    made = tabular([([(0, 0, float(n % 2))], 1) for n in range(20)], reference=(0.0, 1.0))
    block = next(made.blocks())
    arrays = {**block.arrays, "extra/log_prob": np.zeros(20, np.float32)}
    block = dataclasses.replace(block, arrays=arrays)
    found = describe(Dataset.from_block(block, made.obs_space, made.action_space, made.facts))
    for one in (found.returns, found.quality):
        assert one.method == "t"
    for one in (found.lengths, found.entropy):
        assert one.method == "none (no spread seen)"
    assert str(found.lengths) == "1.000 (no spread seen in 20)"


def test_describe_takes_reference_scores_from_dataset_or_table(build):
    own = build([3, 4], [1, 1], reference=(0.0, 2.0))
    assert describe(own).reference == (0.0, 2.0)
    assert describe(build([3, 4], [1, 1], environment="Hopper-v5")).reference[1] == 3234.3
    assert describe(build([3, 4], [1, 1], environment="Nowhere-v0")).quality is None


@pytest.mark.parametrize("ends", [(2.0, 1.0), (1.0, 1.0), (float("nan"), 1.0)])
def test_reference_scores_in_the_wrong_order_are_refused(build, tmp_path, ends):
    data = build([3, 4], [1, 1])
    for ask in (
        lambda: describe(data, reference=ends),
        lambda: convert_files([data.save(tmp_path / "a")], tmp_path / "b", reference=ends),
    ):
        with pytest.raises(Mistake, match="Reference scores must be LOW HIGH, with LOW < HIGH"):
            ask()


def test_describe_command_prints_100_percent_only_for_all_rows(tmp_path, capsys):
    """One reward of 3,000 differs, and one of 250 episodes was cut."""
    steps = [(0, 0, 0.0)] * 12
    made = tabular([(steps, 1)] * 249 + [([(0, 0, 1.0), *steps[1:]], 1)])
    block = next(made.blocks())
    block.arrays["discount"][-1] = 1.0
    path = Dataset.from_block(block, made.obs_space, made.action_space).save(tmp_path / "log")
    assert main(["data", "describe", str(path)]) == 0
    said = capsys.readouterr().out
    assert "commonest reward  99.97% of rows" in said
    assert "; 99.6% terminated" in said
    block.arrays["reward"][:], block.arrays["discount"][-1] = 0.0, 0.0
    path = Dataset.from_block(block, made.obs_space, made.action_space).save(tmp_path / "same")
    assert main(["data", "describe", str(path)]) == 0
    said = capsys.readouterr().out
    assert "commonest reward  100% of rows" in said
    assert "; 100% terminated" in said


def test_describe_stitching_gain_of_crossing_episodes():
    """Both meet in state 5; from there one earns 10 and the other nothing."""
    poor = [(0, 0, 0.0), (5, 0, 0.0), (6, 0, 0.0)], 7
    rich = [(1, 0, 0.0), (5, 1, 0.0), (8, 0, 10.0)], 9
    found = describe(tabular([poor, rich]))
    assert found.crossing == pytest.approx(2 / 6)
    assert found.gain == pytest.approx(0.5 * 9.9 / 10)
    apart = tabular([poor, ([(1, 0, 0.0), (4, 1, 0.0), (8, 0, 10.0)], 9)])
    assert (describe(apart).crossing, describe(apart).gain) == (0.0, 0.0)


def test_describe_stitching_ignores_truncated_continuations():
    poor = [(0, 0, 0.0), (5, 0, 0.0)], 7
    rich = [(1, 0, 0.0), (5, 1, 10.0)], 9
    assert describe(tabular([poor, rich], ended=False)).gain == 0.0


def world(random_world, random_policy, episodes=40):
    random = np.random.default_rng(0)
    made = []
    for _ in range(episodes):
        steps = []
        for s in range(10):
            a = int(random.integers(3)) if random_policy else s % 3
            r = float(random.integers(2)) if random_world else float(a)
            steps.append((s, a, r))
        made.append((steps, 10))
    return tabular(made)


def test_describe_measures_policy_and_environment_stochasticity():
    calm = describe(world(False, False))
    assert calm.policy == pytest.approx(0.0, abs=0.05)
    assert calm.world == 0.0
    wild = describe(world(True, True))
    assert wild.policy > 0.75
    assert wild.world > 0.9


def test_describe_action_variance_of_an_observation_blind_policy(build):
    assert describe(build([50] * 20, [True] * 20)).policy > 0.8


@pytest.mark.filterwarnings("error")
def test_describe_is_invariant_to_observation_scale(build):
    data = build([50] * 20, [True] * 20)
    block = next(data.blocks())
    large = {**block.arrays, "obs": block.arrays["obs"] * np.float32(2.0**80)}  # 1e24
    block = dataclasses.replace(block, arrays=large)
    scaled = describe(Dataset.from_block(block, data.obs_space, data.action_space, data.facts))
    assert scaled.policy == pytest.approx(describe(data).policy, rel=1e-3)


@pytest.mark.parametrize("column", ["obs", "action", "reward"])
def test_describe_refuses_nan_values(build, tmp_path, capsys, column):
    data = build([5, 6], [1, 1])
    block = next(data.blocks())
    block.arrays[column].reshape(-1)[3] = np.nan
    path = data.save(tmp_path / "broken")
    assert main(["data", "describe", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{column!r} holds NaN or infinity. Repair the dataset first" in said
    whole = build([5, 6], [1, 1]).save(tmp_path / "whole")
    assert main(["data", "describe", str(whole), "--beside", str(path)]) == 2


def test_entropy_is_of_the_log_probabilities(build):
    data = build([5, 6], [1, 1], extras=("log_prob",))
    found = describe(data)
    own = np.mean([-one.extras["log_prob"].mean() for one in data])
    assert found.entropy.value == pytest.approx(own, rel=1e-5)


def learners(found, **changes):
    return [
        name for one in recommend(dataclasses.replace(found, **changes)) for name in one.learners
    ]


def test_recommend_algorithms_from_dataset_description(build):
    found = describe(build([20] * 30, [True] * 30, reference=(-20.0, 20.0)))
    estimate = found.quality
    good, poor = (dataclasses.replace(estimate, value=value) for value in (0.9, 0.2))
    plain = dict(best=found.returns.value, crossing=0.0, gain=0.0, policy=0.1, world=None)
    assert learners(found, quality=good, **plain)[0] == "bc"
    assert learners(found, quality=poor, **plain)[0] == "rebrac"
    assert learners(found, quality=poor, discrete=True, **plain)[0] == "cql"
    stitched = plain | {"crossing": 0.9, "gain": 0.3}
    assert "dt" not in learners(found, quality=poor, **stitched)
    long = dataclasses.replace(found.lengths, value=1000.0)
    assert "dt" in learners(found, quality=poor, lengths=long, **plain)
    assert "dt" not in learners(found, quality=poor, lengths=long, **(plain | {"world": 0.5}))
    assert "%bc" in learners(found, quality=poor, **(plain | {"best": 20.0}))
    assert learners(found, sparse=1.0, upside=0.0) == ["bc"]
    assert learners(found, quality=None, **plain) == ["iql", "bc"]
    assert all(one.source and one.reason for one in recommend(found))
