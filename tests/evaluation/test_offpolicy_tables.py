"""Off-policy estimates where every value is known: bias, coverage, cuts, policies of all kinds."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest

from sterling.data import Dataset
from sterling.data.episode_columns import Block
from sterling.data.episode_returns import monte_carlo_returns
from sterling.data_generation.tabular_logs import make_log
from sterling.envs.native.tabular_mdp import Tabular, make_tabular
from sterling.evaluation import (
    METHODS,
    TabularPolicy,
    behaviour,
    clone_behaviour,
    estimate_policy_value,
)
from sterling.evaluation.off_policy.importance_estimates import WITHOUT_MODEL
from sterling.types import Mistake

GAMMA, LIMIT = 0.9, 30
TABLE = {"depth": 0, "lr": 0.1, "updates": 600, "batch": 128, "tau": 0.05}
MDP = make_tabular("random-16x4-0")
BEST = MDP.optimal(GAMMA)
JUDGED, ACTING = MDP.greedy(BEST, 0.4), MDP.greedy(BEST, 0.6)


def truth_of(method, policy=JUDGED):
    return MDP.expected_return(policy, GAMMA, LIMIT if method in WITHOUT_MODEL else None)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_off_policy_estimates_on_a_large_log_equal_the_true_value(method):
    data = make_log(MDP, ACTING, 1500, LIMIT, seed=3)
    found = estimate_policy_value(
        TabularPolicy.from_table(JUDGED),
        data,
        method,
        gamma=GAMMA,
        **TABLE if method == "fqe" else {},
    )
    truth = truth_of(method)
    assert abs(found.value - truth) < {"is": 1.0, "wis": 0.6}.get(method, 0.25)
    assert found.low < truth < found.high
    assert found.n == 1500
    assert found.level == 0.95


@pytest.mark.slow
def test_fitted_q_at_a_long_horizon_is_the_value_beyond_the_time_limit():
    """It lies above the return up to the limit, which no logged return looks beyond."""
    best = MDP.optimal(0.99)
    judged, acting = MDP.greedy(best, 0.4), MDP.greedy(best, 0.6)
    found = estimate_policy_value(
        TabularPolicy.from_table(judged),
        make_log(MDP, acting, 200, LIMIT, seed=3),
        "fqe",
        gamma=0.99,
        **TABLE | {"updates": 1500, "tau": 0.04},
    )
    assert found.low < MDP.expected_return(judged, 0.99) < found.high
    assert MDP.expected_return(judged, 0.99, LIMIT) < found.low


SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in ("dr", "wdr", "model")]


@pytest.mark.parametrize("method", ["pdis", "wpdis", *SLOW])
def test_off_policy_intervals_cover(method):
    """Fifty logs; below 42 of 50 a 95 % interval would fall once in ten thousand times."""
    policy, truth = TabularPolicy.from_table(JUDGED), truth_of(method)
    fields = {"draws": 20} if method == "model" else {}
    made = [
        estimate_policy_value(
            policy, make_log(MDP, ACTING, 100, LIMIT, s), method, gamma=GAMMA, **fields
        )
        for s in range(50)
    ]
    assert sum(one.low <= truth <= one.high for one in made) >= 42
    spread = np.std([one.value for one in made])
    assert abs(np.mean([one.value for one in made]) - truth) < 0.2 + 3 * spread / 50**0.5


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dr", "wdr"])
def test_off_policy_intervals_cover_on_small_logs(method):
    """Forty logs of 30 episodes in which a rare detour decides: arms by the sample's own skewness
    and degrees of freedom by the effective sample size alone held it in 32."""
    grid = make_tabular("grid-4x4")
    best = grid.optimal(0.95)
    judged, acting = grid.greedy(best, 0.4), grid.greedy(best, 0.6)
    truth = grid.expected_return(judged, 0.95)
    made = [
        estimate_policy_value(
            TabularPolicy.from_table(judged),
            make_log(grid, acting, 30, 50, s),
            method,
            gamma=0.95,
            seed=s,
        )
        for s in range(120, 160)
    ]
    stated = [(one.low, one.high) for one in made if one.low is not None]
    assert len(stated) >= 38
    assert sum(low <= truth <= high for low, high in stated) >= 37
    assert np.median([high - low for low, high in stated]) < 0.5  # the truth is 0.63


@pytest.mark.parametrize(
    ("few", "enough", "fields"),
    [(30, 600, TABLE), pytest.param(50, 1500, {"width": 32, "lr": 3e-3}, marks=pytest.mark.slow)],
)
def test_fitted_q_gives_no_interval_before_convergence(few, enough, fields):
    """With too few updates all networks say what the behaviour is worth, and agree on it."""
    policy, truth = TabularPolicy.from_table(JUDGED), truth_of("fqe")
    data = make_log(MDP, ACTING, 100, LIMIT, 0)
    found = estimate_policy_value(policy, data, "fqe", gamma=GAMMA, **{**fields, "updates": few})
    assert abs(found.value - truth) > 1.0
    assert (found.low, found.high) == (None, None)
    said = rf"not converged after {few} updates.*no interval.*--updates {4 * few}"
    assert re.search(said, found.method)
    found = estimate_policy_value(policy, data, "fqe", gamma=GAMMA, **{**fields, "updates": enough})
    assert found.low < truth < found.high


@pytest.mark.slow
def test_fitted_q_intervals_cover():
    policy, truth = TabularPolicy.from_table(JUDGED), truth_of("fqe")
    made = [
        estimate_policy_value(
            policy, make_log(MDP, ACTING, 100, LIMIT, s), "fqe", gamma=GAMMA, seed=s, **TABLE
        )
        for s in range(12)
    ]
    assert sum(one.low <= truth <= one.high for one in made) >= 9
    assert abs(np.mean([one.value for one in made]) - truth) < 0.3


def test_off_policy_methods_return_the_behaviours_own_return():
    """Judged and acting policy are one: importance sampling is the mean return, exactly."""
    data = make_log(MDP, ACTING, 50, LIMIT, 0)
    own = behaviour(data, gamma=GAMMA)
    for method in WITHOUT_MODEL:
        found = estimate_policy_value(TabularPolicy.from_table(ACTING), data, method, gamma=GAMMA)
        assert found.value == pytest.approx(own.value, rel=1e-4)
        assert "effective sample size 50" in found.method
    many = make_log(MDP, ACTING, 1500, LIMIT, 1)
    assert estimate_policy_value(
        TabularPolicy.from_table(ACTING), many, "dr", gamma=GAMMA
    ).value == pytest.approx(truth_of("dr", ACTING), abs=0.2)


def endless():
    """One state, one reward of 1 for ever; the log is cut after 5 steps."""
    mdp = Tabular(np.ones((1, 2, 1)), np.ones((1, 2)), np.zeros((1, 2)), np.ones(1))
    return make_log(mdp, np.full((1, 2), 0.5), 20, 5, 0), TabularPolicy.from_table(
        np.array([[0.3, 0.7]])
    )


def test_importance_sampling_return_ends_at_truncation():
    data, policy = endless()
    lived = sum(0.9**t for t in range(5))
    assert estimate_policy_value(policy, data, "wpdis", gamma=0.9).value == pytest.approx(
        lived, rel=1e-5
    )
    assert behaviour(data, gamma=0.9).value == pytest.approx(lived, rel=1e-5)
    assert "up to their truncation" in behaviour(data, gamma=0.9).method


@pytest.mark.parametrize(
    "method", ["fqe", "dr", *(pytest.param(x, marks=pytest.mark.slow) for x in ("model", "wdr"))]
)
def test_off_policy_values_bootstrap_beyond_truncation(method):
    data, policy = endless()
    fields = {**TABLE, "updates": 1500} if method == "fqe" else {}
    found = estimate_policy_value(policy, data, method, gamma=0.9, **fields)
    assert found.value == pytest.approx(10.0, abs=0.1)


def test_behaviour_return_may_be_continued_beyond_truncation():
    data, _ = endless()
    found = behaviour(data, gamma=0.9, beyond=True, **{**TABLE, "updates": 1500})
    assert found.value == pytest.approx(10.0, abs=0.1)
    assert "continued by a learned value" in found.method


def test_off_policy_value_after_termination_is_zero():
    mdp = Tabular(np.ones((1, 2, 1)), np.ones((1, 2)), np.ones((1, 2)), np.ones(1))
    data = make_log(mdp, np.full((1, 2), 0.5), 20, 5, 0)
    policy = TabularPolicy.from_table(np.array([[0.3, 0.7]]))
    for method in METHODS:
        fields = TABLE if method == "fqe" else {}
        value = estimate_policy_value(policy, data, method, gamma=0.9, **fields).value
        assert value == pytest.approx(1.0, abs=0.2 if method in ("is", "pdis") else 0.02)


@pytest.mark.slow
def test_off_policy_estimates_with_hidden_layers_equal_the_true_value():
    """Hidden layers instead of a table, for fitted Q and inside doubly robust estimates."""
    data, policy = make_log(MDP, ACTING, 400, LIMIT, 1), TabularPolicy.from_table(JUDGED)
    fields = {"updates": 1500, "width": 32, "lr": 3e-3}
    direct = estimate_policy_value(policy, data, "fqe", gamma=GAMMA, members=3, **fields)
    robust = estimate_policy_value(policy, data, "dr", gamma=GAMMA, **fields)
    assert direct.value == pytest.approx(truth_of("fqe"), abs=0.6)
    assert robust.value == pytest.approx(truth_of("dr"), abs=0.6)


@pytest.mark.slow
def test_off_policy_behaviour_is_cloned_without_logged_probabilities():
    data, policy = make_log(MDP, ACTING, 300, LIMIT, 2), TabularPolicy.from_table(JUDGED)
    arrays = {k: v for k, v in data._block.arrays.items() if not k.startswith("extra/")}
    silent = Dataset.from_block(
        Block(arrays, data.lengths, np.zeros(len(data), np.int32)), MDP.obs, MDP.action
    )
    known, found = (
        estimate_policy_value(policy, one, "wpdis", gamma=GAMMA) for one in (data, silent)
    )
    assert found.value == pytest.approx(known.value, abs=0.4)
    given = clone_behaviour(silent, updates=1500)
    obs = jnp.eye(16)
    log_p = np.asarray(given.log_prob(obs, jnp.asarray(BEST.argmax(1), jnp.int32)))
    assert np.abs(np.exp(log_p) - 0.55).max() < 0.2  # 0.4 + 0.6 / 4
    with pytest.raises(Mistake, match="behaviour='cloned'"):
        estimate_policy_value(policy, silent, "wpdis", gamma=GAMMA, behaviour="logged")


def test_off_policy_estimates_ignore_rows_after_termination():
    """OGBench's logs go on where a task was done; there the discount is 0."""
    data, policy = make_log(MDP, ACTING, 90, 12, 4), TabularPolicy.from_table(JUDGED)
    whole = [episode for episode in data if len(episode) == 12]
    assert len(whole) > 20

    def logged(length):
        arrays = {
            "obs": np.concatenate([each.obs[: length + 1] for each in whole]),
            "extra/log_prob": np.concatenate([x.extras["log_prob"][:length] for x in whole]),
            "discount": np.tile(np.arange(length) != 7, len(whole)).astype(np.float32),
        }
        for name in ("action", "reward"):
            arrays[name] = np.concatenate([getattr(each, name)[:length] for each in whole])
        lengths, sources = (np.full(len(whole), x, np.int32) for x in (length, 0))
        return Dataset.from_block(Block(arrays, lengths, sources), MDP.obs, MDP.action)

    longer, ended = logged(12), logged(8)
    returns = monte_carlo_returns(longer, GAMMA).reshape(-1, 12)
    np.testing.assert_allclose(returns[:, :8].ravel(), monte_carlo_returns(ended, GAMMA), rtol=1e-6)
    own = [behaviour(one, gamma=GAMMA).value for one in (longer, ended)]
    assert own[0] == pytest.approx(own[1])
    for method in ("pdis", "wpdis"):  # whole episodes have other ratios
        found, wanted = (
            estimate_policy_value(policy, one, method, gamma=GAMMA) for one in (longer, ended)
        )
        assert found.value == pytest.approx(wanted.value, rel=1e-5)


def weighted_by_hand(method, data):
    """WIS and WPDIS where pi / mu is e^2 times as large as JUDGED / ACTING, in double precision and
    with the largest ratio taken out of every column."""
    steps = max(len(episode) for episode in data)
    logs, rewards = np.zeros((2, len(data), steps))
    for i, episode in enumerate(data):
        pair = np.argmax(episode.obs[:-1], 1), episode.action
        more = np.log(JUDGED[pair]) + 2.0 - episode.extras["log_prob"]
        logs[i, : len(more)], rewards[i, : len(more)] = more, episode.reward
    total, rewards = logs.cumsum(1), rewards * GAMMA ** np.arange(steps)
    if method == "wis":
        total, rewards = total[:, -1:], rewards.sum(1, keepdims=True)
    weight = np.exp(total - total.max(0))
    return float(((weight * rewards).sum(0) / weight.sum(0)).sum())


@pytest.mark.parametrize("method", [*WITHOUT_MODEL, "dr", "wdr"])
def test_off_policy_estimates_of_distant_policies_are_finite_or_refused(method):
    data = make_log(MDP, ACTING, 20, 200, 5)

    class Far(TabularPolicy):
        def log_prob(self, obs, action):
            return super().log_prob(obs, action) + 2.0

    far = Far(
        *(
            getattr(TabularPolicy.from_table(JUDGED), f.name)
            for f in dataclasses.fields(TabularPolicy)
        )
    )
    if method in ("wis", "wpdis", "wdr"):
        found = estimate_policy_value(far, data, method, gamma=GAMMA)
        if method != "wdr":
            assert found.value == pytest.approx(weighted_by_hand(method, data), rel=1e-4)
        assert abs(found.value) < abs(MDP.reward).max() / (1 - GAMMA)
        assert (found.low, found.high) == (None, None)
        assert re.search(r"away from 1.*no interval.*use --method fqe", found.method)
    else:
        with pytest.raises(Mistake, match=r"overflow.*use fqe"):
            estimate_policy_value(far, data, method, gamma=GAMMA)


def test_off_policy_estimates_refuse_non_finite_results():
    data = make_log(MDP, ACTING, 20, LIMIT, 0).with_rewards(lambda reward: reward * np.nan)
    with pytest.raises(Mistake, match=r"pdis has no finite interval.*use fqe"):
        estimate_policy_value(TabularPolicy.from_table(JUDGED), data, "pdis", gamma=GAMMA)


def test_off_policy_estimates_warn_of_a_small_effective_sample_size():
    data = make_log(MDP, np.full((16, 4), 0.25), 20, LIMIT, 0)
    found = estimate_policy_value(
        TabularPolicy.from_table(MDP.greedy(BEST, 0.0)), data, "is", gamma=GAMMA
    )
    assert (found.low, found.high) == (None, None)
    assert "no interval can be stated; use --method fqe, or log more episodes" in found.method
    size = float(re.search(r"effective sample size ([\d.]+)", found.method)[1])
    assert size < 10


def test_importance_ratio_clipping_narrows_the_interval_and_is_noted():
    data, policy = make_log(MDP, ACTING, 100, LIMIT, 0), TabularPolicy.from_table(JUDGED)
    free, clipped = (
        estimate_policy_value(policy, data, "pdis", gamma=GAMMA, clip=c) for c in (None, 1.0)
    )
    assert "ratios at most 1" in clipped.method
    assert clipped.high - clipped.low < free.high - free.low
    assert clipped.value != free.value


@pytest.mark.parametrize("kind", ["jackknife", "skew-t", "bca", "bootstrap", "bootstrap-se"])
def test_off_policy_intervals_of_every_kind_contain_the_estimate(kind):
    data = make_log(MDP, ACTING, 60, LIMIT, 0)
    found = estimate_policy_value(
        TabularPolicy.from_table(JUDGED), data, "wpdis", gamma=GAMMA, interval=kind
    )
    assert found.low < found.value < found.high
    assert kind in found.method


def test_off_policy_estimate_of_one_episode_has_no_interval():
    data = make_log(MDP, ACTING, 1, LIMIT, 0)
    for method in ("wpdis", "model", "fqe"):
        fields = {**TABLE, "updates": 10} if method == "fqe" else {}
        found = estimate_policy_value(
            TabularPolicy.from_table(JUDGED), data, method, gamma=GAMMA, **fields
        )
        assert (found.low, found.high) == (None, None)


def test_off_policy_estimates_are_deterministic_by_seed():
    data, policy = make_log(MDP, ACTING, 40, LIMIT, 0), TabularPolicy.from_table(JUDGED)
    fields = {**TABLE, "updates": 50}
    first, again = (
        estimate_policy_value(policy, data, "fqe", gamma=GAMMA, **fields) for _ in range(2)
    )
    assert first == again
    assert estimate_policy_value(policy, data, "fqe", gamma=GAMMA, seed=1, **fields) != first


@pytest.mark.parametrize("method", METHODS)
def test_off_policy_estimates_refuse_an_empty_dataset(method):
    data = make_log(MDP, ACTING, 5, LIMIT, 0).where(lambda episode: False)
    with pytest.raises(Mistake, match="the dataset has no rows"):
        estimate_policy_value(TabularPolicy.from_table(JUDGED), data, method, gamma=GAMMA)
    with pytest.raises(Mistake, match="the dataset has no rows"):
        behaviour(data, gamma=GAMMA)


@pytest.mark.parametrize(
    ("method", "fields", "said"),
    [
        ("fqs", {}, "fqe"),
        ("fqe", {"gama": 0.9}, "no field"),
        ("fqe", {"update": 10}, "no field 'update'"),
        ("model", {"horizon": 10}, "no option 'horizon'"),
        ("wpdis", {"updates": 10}, "no option 'updates'"),
        ("wpdis", {"gamma": 1.5}, "gamma is 1.5; it must be above 0"),
        ("fqe", {"gamma": 1.0}, "gamma below 1"),
        ("pdis", {"behaviour": "guessed"}, "'logged', 'cloned' or a policy"),
        *((each, {"level": 2.0}, "level of an interval must lie between 0") for each in METHODS),
        ("wpdis", {"level": 1.0}, "level of an interval must lie between 0 and 1; got 1.0"),
        ("wpdis", {"clip": -1}, "clip is -1; it bounds ratios and must be above 0"),
        ("dr", {"clip": float("nan")}, "clip is nan; it bounds ratios and must be above 0"),
        ("model", {"draws": 0}, "draws is 0; an interval needs at least 2"),
        ("model", {"draws": 1}, "draws is 1; an interval needs at least 2"),
    ],
)
def test_off_policy_estimates_refuse_invalid_arguments(method, fields, said):
    data = make_log(MDP, ACTING, 5, LIMIT, 0)
    with pytest.raises(Mistake, match=said) as caught:
        estimate_policy_value(TabularPolicy.from_table(JUDGED), data, method, **fields)
    assert "\n" not in str(caught.value)


def test_off_policy_estimates_read_a_memory_mapped_dataset(tmp_path):
    data, policy = make_log(MDP, ACTING, 300, LIMIT, 0), TabularPolicy.from_table(JUDGED)
    data.save(tmp_path / "log")
    mapped = Dataset(tmp_path / "log", memory=1)
    assert mapped.mapped
    held, read = (
        estimate_policy_value(policy, one, "fqe", gamma=GAMMA, **TABLE) for one in (data, mapped)
    )
    assert read.value == pytest.approx(held.value, abs=0.15)
    assert read.low < truth_of("fqe") < read.high
    first, second = (
        estimate_policy_value(policy, one, "wdr", gamma=GAMMA) for one in (data, mapped)
    )
    assert first == second


def test_off_policy_estimates_accept_a_part_of_a_dataset():
    """A part of a dataset (rows that do not begin at 0) is judged as if it were all."""
    data, policy = make_log(MDP, ACTING, 60, LIMIT, 0), TabularPolicy.from_table(JUDGED)
    part = data[20:50]
    block = next(part.blocks())
    alone = Dataset.from_block(
        dataclasses.replace(block, sources=np.zeros(30, np.int32)), MDP.obs, MDP.action
    )
    for method in ("wpdis", "wdr", "model"):
        first, second = (
            estimate_policy_value(policy, one, method, gamma=GAMMA) for one in (part, alone)
        )
        assert first.value == pytest.approx(second.value, rel=1e-6)
