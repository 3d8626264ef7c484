"""`sterling check` names what is wrong with an algorithm or a world, and nothing in good ones.

Each fault is planted in something that is right otherwise; exactly its own line must say so.
"""

import dataclasses
import itertools
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.online import dqn, ppo, r2d2
from sterling.checking import check_algorithm, check_environment
from sterling.checking.environments.world_rules import JUDGE_CHECK
from sterling.checking.example_batch import with_final_discount
from sterling.cli import main
from sterling.envs.native.bit_flip import Flip
from sterling.types import Feed, Mistake, Needs, Record, Signals, Spec, Step


def algorithm(module, **parts):
    """An algorithm with some parts replaced."""
    names = ("Config", "needs", "init", "act", "learn", "value", "log_prob")
    own = {name: getattr(module, name) for name in names if hasattr(module, name)} | parts
    own = {name: part if isinstance(part, type) else staticmethod(part)
           for name, part in own.items()}  # fmt: skip
    return type("Faulty", (), own)


def of_updates(made):
    """The findings up to the first run."""
    until = itertools.takewhile(lambda one: "seed alone" not in one.what, check_algorithm(made))
    return list(until)


def wrong(findings):
    return [one.what for one in findings if one.failed]


@pytest.mark.slow  # test_extending.py asks it of the page's algorithm
@pytest.mark.parametrize("module", [ppo, dqn], ids=["ppo", "dqn"])
def test_check_finds_nothing_in_built_in_algorithms(module):
    assert wrong(of_updates(module)) == []


def changed(batch, **parts):
    return Record(**{**vars(batch), **parts})


def unmasked(state, batch, key):
    return dqn.learn(state, changed(batch, mask=jnp.ones_like(batch.mask)), key)


def endless(state, batch, key):
    return dqn.learn(state, changed(batch, discount=jnp.ones_like(batch.discount)), key)


def own_step_needs(config):
    feed = Feed(batch=config.batch, n_step=3, add=("one_step",))
    return Needs(config.collect, (feed,), config.capacity, config.warmup)


def own_step(state, batch, key):
    """Learn from the reward and discount of the row's own step alone."""
    now = {name: batch.extras[f"{name}_now"] for name in ("reward", "discount")}
    return dqn.learn(state, changed(batch, **now), key)


def test_final_discount_is_also_that_of_the_rows_own_step():
    last = jnp.array([True, False])
    extras = {"discount_now": jnp.ones(2), "weight": jnp.ones(2)}
    parts = dict.fromkeys(("obs", "action", "reward", "next_obs", "mask"), jnp.zeros(2))
    batch = Record(**parts, discount=jnp.ones(2), last=last, extras=extras)
    ended = with_final_discount(batch, 0.0)
    assert ended.discount.tolist() == ended.extras["discount_now"].tolist() == [0.0, 1.0]
    assert ended.extras["weight"].tolist() == [1.0, 1.0]
    plain = with_final_discount(changed(batch, extras={}), 0.0)
    assert (plain.discount.tolist(), plain.extras) == ([0.0, 1.0], {})


@pytest.mark.slow
def test_check_lets_a_learner_read_the_discount_of_the_rows_own_step_alone():
    found = of_updates(algorithm(dqn, needs=own_step_needs, learn=own_step))
    assert wrong(found) == []


def deaf(state, obs, key, explore):
    return dqn.act(state, obs, jax.random.key(0), explore)


def outside(state, obs, key, explore):
    action, extras = dqn.act(state, obs, key, explore)
    return action + 1, extras


def growing(state, batch, key):
    state, signals = dqn.learn(state, batch, key)
    target = jax.tree.map(lambda x: x.astype(jnp.bfloat16), state.target)
    return dataclasses.replace(state, target=target), signals


def talkative(state, batch, key):
    state, signals = dqn.learn(state, batch, key)
    return state, Signals({**signals.metrics, "loss/rows": batch.reward})


def short(state, obs):
    return dqn.act(state, obs, jax.random.key(0), True)


@pytest.mark.parametrize(
    ("parts", "what", "said"),
    [
        ({"learn": unmasked}, "learn ignores masked rows (discrete actions)", "mask is False"),
        pytest.param({"learn": endless}, "learn separates ends from truncations (discrete actions)",
                     "ended or was truncated", marks=pytest.mark.slow),
        pytest.param({"act": deaf}, "act explores differently with another key (discrete actions)",
                     "two keys give the same", marks=pytest.mark.slow),
        ({"act": outside}, "act returns actions in the action space (discrete actions)",
         "none of the 3"),
        ({"learn": growing}, "learn keeps shapes and types (discrete actions)", "32.*bfloat16"),
        pytest.param({"learn": talkative}, "learn keeps shapes and types (discrete actions)",
                     "loss/rows", marks=pytest.mark.slow),
        ({"act": short}, "act(state, obs, key, explore)", "cannot be called with"),
    ],
    ids=["mask", "discount", "key", "space", "type", "metric", "signature"],
)  # fmt: skip
def test_check_names_a_planted_algorithm_fault(parts, what, said):
    found = [one for one in of_updates(algorithm(dqn, **parts)) if one.failed]
    assert found[0].what == what
    assert re.search(said, found[0].said)
    assert found[0].where.startswith("test_checking.py:")
    if what != "act(state, obs, key, explore)":  # which nothing works without
        assert len(found) == 1


def unmasked_stretches(state, batch, key):
    return r2d2.learn(state, changed(batch, mask=jnp.ones_like(batch.mask)), key)


@pytest.mark.slow
def test_check_reviews_each_feed_of_an_algorithm():
    names = ("memory", "recall")
    parts = {name: getattr(r2d2, name) for name in names}
    good = of_updates(algorithm(r2d2, **parts))
    assert wrong(good) == []
    what = "learn ignores masked rows (discrete actions)"
    ends = "learn separates ends from truncations (discrete actions)"
    assert [one.what for one in good if one.verdict == "holds"][-2:] == [what, ends]
    bad = of_updates(algorithm(r2d2, **parts, learn=unmasked_stretches))
    assert wrong(bad) == [what]


def test_check_reports_an_algorithm_that_supports_no_actions():
    def init(key, spec, config):
        raise Mistake("not today")

    findings = list(check_algorithm(algorithm(dqn, init=init)))
    assert wrong(findings) == ["it supports discrete or continuous actions"]


@pytest.mark.slow
def test_check_trains_probe_environments_and_fails_a_wrong_algorithm():
    assert wrong(check_algorithm("dqn", quick=True)) == []

    def learn(state, batch, key):
        return dqn.learn(state, changed(batch, reward=-batch.reward), key)

    upside_down = check_algorithm(algorithm(dqn, learn=learn), quick=True)
    assert wrong(upside_down) == ["it solves probe:both (policies that use observations)"]


class Walk:
    """A Task: a walk that begins by chance and ends at 3."""

    obs = spaces.Box(0.0, 3.0, (1,), np.float32)
    action = spaces.Discrete(2)

    def reset(self, key):
        place = jax.random.randint(key, (), 0, 2)
        return place, place[None].astype(jnp.float32)

    def step(self, state, action, key):
        place = jnp.clip(state + jnp.where(action == 1, 1, -1), 0, 3)
        done = place == 3
        return place, self.seen(place), done.astype(jnp.float32), done, jnp.zeros((), bool)

    def seen(self, place):
        return place[None].astype(jnp.float32)


class Wide(Walk):
    """Its observations leave the space."""

    def seen(self, place):
        return 2.0 * place[None].astype(jnp.float32)


class Deaf(Walk):
    """Its reset ignores the key."""

    def reset(self, key):
        return super().reset(jax.random.key(7))


class Noisy(Walk):
    """Something outside the state is drawn by chance, at every tracing."""

    def seen(self, place):
        return place[None].astype(jnp.float32) + 1e-3 * np.random.random()


class Partial(Flip):
    """Its judge counts one bit only."""

    def step(self, state, action, key):
        state, obs, *_, extras = super().step(state, action, key)
        reward, discount = super().judge(state.bits, state.wanted)
        return state, obs, reward, discount == 0.0, jnp.zeros((), bool), extras

    def judge(self, achieved, desired):
        return super().judge(achieved[:1], desired[:1])


class Rows:
    """A World on the host: counts to 3, then begins again. What is wrong with it is said."""

    traced, exact = False, False

    def __init__(self, seeds, envs, fault=""):
        self.seeds, self.fault = len(seeds), fault
        self.spec = Spec(spaces.Box(0.0, 3.0, (1,), np.float32), spaces.Discrete(2), envs=envs)
        self.close = lambda: None

    def reset(self, keys):
        self.count = np.zeros((self.seeds, self.spec.envs), np.int32)
        return None, self._seen()

    def step(self, state, action, keys):
        fresh = self.count == 3
        self.count = np.where(fresh, 0, self.count + 1)
        last, obs = self.count == 3, self._seen()
        if self.fault == "hides":
            obs = np.where(last[..., None], np.float32(0.0), obs)
        if self.fault == "same step":
            self.count = np.where(last, 0, self.count)
        discount = np.float32(1.0) - last
        if self.fault == "discount":
            discount = np.where(self.count == 2, 0.0, discount)
        mask = ~fresh if self.fault != "mask" else np.ones_like(fresh)
        reward = np.where(fresh, 0.0, 1.0)
        return None, Step(obs, reward.astype(np.float32), discount.astype(np.float32), last, mask)

    def _seen(self):
        return self.count[..., None].astype(np.float32)


def world(fault):
    return lambda seeds, envs: Rows(seeds, envs, fault)


AUTORESET = "the step after an episode's last step resets and is masked"


@pytest.mark.parametrize(
    ("environment", "whats"),
    [
        (Walk(), []),
        (world(""), []),
        (Flip(2), []),
        (Partial(2), [JUDGE_CHECK]),
        (Wide(), ["observations lie in their space"]),
        (Deaf(), ["random numbers come from the key"]),
        (world("hides"), ["the final observation of an episode is shown"]),
        (world("same step"), [AUTORESET]),
        (world("mask"), [AUTORESET]),
        (world("discount"), ["discount is 0 at ends only, and within [-1, 1]"]),
    ],
    ids=[
        "task",
        "world",
        "goals",
        "judge",
        "space",
        "key",
        "hidden",
        "same step",
        "mask",
        "discount",
    ],
)
def test_check_names_a_planted_environment_fault(environment, whats):
    findings = list(check_environment(environment, quick=True))
    assert wrong(findings) == whats
    if whats and isinstance(environment, Walk):
        assert next(one for one in findings if one.failed).where.startswith("test_checking.py:")


def test_check_finds_environment_randomness_outside_the_key():
    assert "the same key gives the same episodes" in wrong(check_environment(Noisy(), quick=True))


class Unseeded(gymnasium.Env):
    """A Gymnasium environment that draws from a generator of its own."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.random.random(1).astype(np.float32), {}

    def step(self, action):
        self.count += 1
        return np.random.random(1).astype(np.float32), 0.0, self.count > 3, False, {}


def test_a_gymnasium_environment_is_checked_by_gymnasium_as_well():
    found = wrong(check_environment(Unseeded, {"workers": 0}, quick=True))
    assert "the same key gives the same episodes" in found
    assert "Gymnasium's own checks" in found


@pytest.mark.slow
def test_check_command_prints_findings_and_exit_code(written, capsys):
    assert main(["check", f"{written}/maze.py:make", "--quick"]) == 0
    shown = capsys.readouterr().out
    assert "maze:make: 13 hold, 0 fail, 0 not checked" in shown
    (written / "wide.py").write_text(
        (written / "maze.py").read_text().replace("place / self.length)", "4.0)")
    )
    assert main(["check", f"{written}/wide.py:make", "--quick"]) == 1
    shown = capsys.readouterr().out
    assert "WRONG  observations lie in their space\n       wide.py:" in shown
    assert "-> widen the space, or clip the observation" in shown
    assert main(["check", f"{written}/gone.py:make"]) == 2
