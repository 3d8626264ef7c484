"""The methods of examples/methods: a short run of each, and what it learns."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import random_keys
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.data_generation.run_recording import RunRecording, record_run
from sterling.lookup import user_imports
from sterling.problem.channels import Channel
from sterling.types import Mistake, Record, Spec

METHODS = Path(__file__).parents[2] / "examples/methods"
SMALL = {"length": 32, "minibatch": 64, "epochs": 1, "envs": 4, "anneal": False, "seeds": 2}
SHORT = {"evaluate_episodes": 2, "evaluate_limit": 20, "quiet": True}


@pytest.fixture(name="expert", scope="module")
def _expert(tmp_path_factory):
    """Demonstrations of an agent that hardly learned."""
    folder = tmp_path_factory.mktemp("expert")
    run = sterling.train("ppo", "CartPole-v1", steps=256, out=folder / "run", **SMALL, **SHORT)
    return record_run(RunRecording(run.path, 2), folder / "log")


def parameters(run):
    return jax.tree.leaves(eqx.filter(run.agent.state.discriminator, eqx.is_array))


def test_gail_reads_demonstrations_beside_its_rollouts(expert, tmp_path):
    """Resumed it equals a run that went on; it is evaluated without its log; it needs one."""
    gail = METHODS / "gail.py"
    whole = {"data": expert, "demonstrations": 16, **SMALL, **SHORT}
    short = sterling.train(gail, "CartPole-v1", steps=256, out=tmp_path / "run", **whole)
    assert short.result["steps"] == 256
    rows = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 256  # steps are its axis, not updates
    assert "update" not in rows[-1]
    longer = sterling.train(gail, "CartPole-v1", steps=512, out=tmp_path / "whole", **whole)
    resumed = sterling.resume(tmp_path / "run", steps=512, quiet=True)
    for one, other in zip(parameters(resumed), parameters(longer), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(Mistake, match="beside its batches: give data=FILE"):
        sterling.train(gail, "CartPole-v1", steps=256, **SMALL, **SHORT)
    with pytest.raises(Mistake, match="Give steps=N and no updates"):
        sterling.train(gail, "CartPole-v1", updates=9, **whole)
    with pytest.raises(Mistake, match="Leave out share"):
        sterling.train(gail, "CartPole-v1", steps=256, share=0.3, **whole)


@pytest.mark.slow
def test_gail_learns_cart_pole_without_its_reward(tmp_path):
    """Random policies hold the pole for about 22 steps."""
    more = {"evaluate_episodes": 10, "quiet": True}
    expert = sterling.train("ppo", "CartPole-v1", steps=80_000, seeds=1, out=tmp_path / "a", **more)
    log = record_run(RunRecording(expert.path, 20), tmp_path / "log")
    run = sterling.train(
        METHODS / "gail.py", "CartPole-v1", data=log, steps=60_000, seeds=3, **more
    )
    assert min(run.result["final"]["return"]["per_seed"]) > 200


@pytest.mark.slow
def test_dac_learns_pendulum_without_its_reward(tmp_path):
    """Random policies earn about -1200; after 8,000 steps three seeds earned -295 to -167."""
    more = {"width": 64, "warmup": 500, "evaluate_episodes": 10, "quiet": True}
    expert = sterling.train("sac", "Pendulum-v1", steps=8_000, out=tmp_path / "a", seeds=1, **more)
    log = record_run(RunRecording(expert.path, 10), tmp_path / "log")
    run = sterling.train(METHODS / "dac.py", "Pendulum-v1", data=log, steps=5_000, seeds=1, **more)
    assert min(run.result["final"]["return"]["per_seed"]) > -600


@pytest.fixture(name="random_rows", scope="module")
def _random_rows(tmp_path_factory):
    """5,000 rows of uniformly random actions in Pendulum-v1."""
    order = DatasetOrder("Pendulum-v1", "random", 5_000)
    return make_dataset(order, tmp_path_factory.mktemp("log") / "random")


@pytest.mark.slow
def test_mopo_learns_pendulum_from_random_actions(random_rows):
    """Random policies earn about -1200."""
    sizes = {"width": 64, "model_width": 64, "model_depth": 2, "quiet": True}
    how = {"data": random_rows, "updates": 15_000, "seeds": 3, "evaluate_episodes": 5}
    run = sterling.train(METHODS / "mopo.py", "Pendulum-v1", **how, **sizes)
    assert min(run.result["final"]["return"]["per_seed"]) > -600
    with pytest.raises(Mistake, match="from one store of rows"):
        sterling.train("mbpo", "Pendulum-v1", data=random_rows, steps=9_000, quiet=True)


ENVELOPE, SEA = METHODS / "envelope.py", METHODS.parent / "worlds/deep_sea_treasure.py"


def test_the_sea_has_its_published_treasures_and_times():
    """The way right and then down finds every treasure; the front's volume is that of the paper's
    ten points. A move into the sea bed stays."""
    sea, world = user_imports.load(f"{SEA}:Sea")(), user_imports.load(str(SEA))
    step = jax.jit(sea.step)
    found = []
    for column, depth in enumerate(world.DEPTHS):
        dive, _ = sea.reset(jax.random.key(column))
        total, over = np.zeros(2), False
        for action in [1] * column + [2] * int(depth):
            assert not over
            dive, _, reward, over, _, reported = step(dive, jnp.int32(action), None)
            total += reported["objectives"]
            expected = np.asarray(dive.preference) @ (np.asarray(reported["objectives"]) * [1, -1])
            assert reward == pytest.approx(expected, abs=1e-5)
        assert over
        found.append(total)
    treasure, time = np.array(found, np.float64).T
    assert time.tolist() == [1, 3, 5, 7, 8, 9, 13, 14, 17, 19]
    columns = {"objectives.treasure": treasure, "objectives.time": time}
    assert sea.summaries["front"].of(columns) == pytest.approx(401.8, abs=1e-4)
    start, _ = sea.reset(jax.random.key(0))
    beside = start._replace(place=jnp.array([5, 6], jnp.int32))
    assert step(beside, jnp.int32(3), None)[0].place.tolist() == [5, 6]  # the sea bed


def test_envelope_refuses_a_world_without_objectives():
    with pytest.raises(Mistake, match="a channel 'objectives' and an observed entry 'preference'"):
        sterling.train(ENVELOPE, "probe:action", steps=64, quiet=True)


def test_envelope_targets_are_the_best_of_all_actions_and_preferences():
    """The first loss, by brute force; Q depends on the preference alone."""
    envelope, key = user_imports.load(str(ENVELOPE)), jax.random.key(0)
    space = spaces.Dict({"preference": spaces.Box(0.0, 1.0, (2,), np.float32)})
    channels = {"objectives": Channel(parts=("gain", "cost"), directions=(1, -1))}
    spec = Spec(space, spaces.Discrete(3), channels=channels, iterations=9)
    state = envelope.init(key, spec, envelope.Config(width=8, preferences=4))
    obs, one = {"preference": jnp.zeros((1, 2))}, jnp.ones(1)
    extras = {"objectives": jnp.array([[3.0, 1.0]])}
    batch = Record(obs, jnp.zeros(1, jnp.int32), one, one, obs, one < 0, one > 0, extras)
    loss = envelope.learn(state, batch, key)[1].metrics["loss/value"]
    w = np.array(jax.random.exponential(random_keys.fold(key, "preferences"), (4, 2)))
    w /= w.sum(-1, keepdims=True)
    q = np.asarray(envelope.under(state.net, obs, w))[0]
    best = [max(q.reshape(-1, 2), key=lambda x: x @ own) for own in w]
    error = np.array([3.0, -1.0]) + 0.98 * np.array(best) - q[:, 0]
    np.testing.assert_allclose(loss, np.square(error).sum(-1).mean(), rtol=1e-4)


@pytest.mark.slow
def test_envelope_finds_most_of_the_front_of_deep_sea_treasure():
    """All treasures dominate a volume of 401.8; those that random policies often find 327.5."""
    how = {"steps": 40_000, "envs": 8, "seeds": 2, "evaluate_episodes": 100, "quiet": True}
    run = sterling.train(ENVELOPE, f"{SEA}:Sea", **how)
    assert min(run.result["final"]["front"]["per_seed"]) > 360


@pytest.mark.slow
def test_diayn_learns_skills_that_its_discriminator_tells_apart():
    """By chance the reward would be at most 0."""
    how = {"steps": 6_000, "seeds": 2, "width": 64, "warmup": 500, "evaluate_episodes": 0}
    rows = []
    run = sterling.train(METHODS / "diayn.py", "Pendulum-v1", sinks=[Rows(rows)], quiet=True, **how)
    assert run.result["steps"] == 6_000
    assert np.min(rows[-1]["skills/reward"]) > 0.25


def test_pcn_stores_its_best_episodes_and_resumes(tmp_path):
    """Of one step: action 1 gains 1 and costs 1/2, action 0 nothing; neither dominates."""
    how = {"seeds": 2, "envs": 8, "limit": 2, "episodes": 6, "learn": 1, **SHORT}
    pcn, world = METHODS / "pcn.py", "probe:objectives"
    sterling.train(pcn, world, steps=16, out=tmp_path / "run", **how)
    longer = sterling.train(pcn, world, steps=32, out=tmp_path / "whole", **how)
    resumed = sterling.resume(tmp_path / "run", steps=32, quiet=True)
    for one, other in zip(
        *(jax.tree.leaves(run.agent.state) for run in (resumed, longer)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    stored = longer.agent.state.stored
    for seed in range(2):
        found = np.asarray(stored["to_go"])[seed, np.asarray(stored["front"])[seed], 0]
        assert sorted(found.tolist()) == [[0.0, 0.0], [1.0, -0.5]]
    with pytest.raises(Mistake, match="pcn does not support"):
        sterling.train(pcn, "probe:objectives-continuous", steps=16, **how)


@pytest.mark.slow
def test_pcn_reaches_what_is_best_under_each_preference():
    """The best policy earns 1/3, a random one 1/8."""
    how = {"steps": 4_000, "seeds": 3, "envs": 16, "limit": 2, "episodes": 8, "quiet": True}
    run = sterling.train(METHODS / "pcn.py", "probe:objectives", evaluate_episodes=100, **how)
    assert min(run.result["final"]["return"]["per_seed"]) > 0.25


class Rows:
    """A sink that keeps the rows of metrics."""

    def __init__(self, rows):
        self.rows = rows

    def write(self, row):
        self.rows.append(row)

    def close(self):
        pass


TEAM = {"steps": 96, "warmup": 64, "batch": 8, "width": 8, "mixer_width": 4, "envs": 4, "seeds": 2}


@pytest.mark.parametrize("mixer", ["monotone", "sum"])
def test_qmix_learns_from_a_replay_with_the_state_that_critics_alone_see(mixer):
    """A team's value is the mixed one: by "sum" that of VDN."""
    how = {**TEAM, **SHORT, "evaluate_episodes": 0, "mixer": mixer}
    run = sterling.train(METHODS / "qmix.py", "spread:2-agents-3x3-state", **how)
    nets = jax.tree.map(lambda x: x[0], run.agent.state.net)
    q, state = np.array([[1.0, 2.0], [4.0, 8.0]], np.float32), np.ones((2, 27), np.float32)
    found = nets.team_value(q, np.array([[True, True], [False, True]]), (state,))
    assert np.isfinite(found).all()
    np.testing.assert_equal(np.allclose(found, [3.0, 8.0]), mixer == "sum")


def test_recurrent_qmix_resumed_learns_as_uninterrupted(tmp_path):
    """Its memories are kept; epsilon is constant, as its schedule follows the budget."""
    constant = {"exploration_initial": 0.3, "exploration_final": 0.3}
    method, how = METHODS / "recurrent_qmix.py", {**TEAM, "length": 4, **constant, **SHORT}
    short = sterling.train(method, "spread:2-agents-3x3", out=tmp_path / "run", **how)
    longer = {**how, "steps": 2 * how["steps"]}
    whole = sterling.train(method, "spread:2-agents-3x3", out=tmp_path / "whole", **longer)
    resumed = sterling.resume(short.path, steps=longer["steps"], quiet=True)
    nets = [jax.tree.leaves(run.agent.state.net) for run in (resumed, whole)]
    assert eqx.tree_equal(*nets)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("qmix", -0.5), ("recurrent_qmix", -1.0)])
def test_qmix_learns_to_spread_in_a_team(name, least):
    """A random team earns about -4.2; eight seeds of recurrent QMIX earned -0.54 to -0.13 after
    40,000 steps, and -3.8 to -0.25 after 20,000."""
    how = {"steps": 40_000, "seeds": 1, "envs": 8, "evaluate_episodes": 50, "quiet": True}
    run = sterling.train(METHODS / f"{name}.py", "spread:2-agents-3x3", **how)
    assert min(run.result["final"]["return"]["per_seed"]) > least


def test_pearl_believes_what_the_valid_rows_of_a_task_say():
    """More rows narrow the belief, masked ones change nothing, and none leaves the prior."""
    pearl = user_imports.load(str(METHODS / "pearl.py"))
    spec = Spec(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (1,), np.float32))
    state = pearl.init(jax.random.key(0), spec, pearl.Config(width=8, latent=3))
    obs, ones = jax.random.normal(jax.random.key(1), (6, 2)), jnp.ones(6)
    rows = Record(obs, obs[:, :1], ones, ones, obs, ones > 1, jnp.arange(6) < 3)
    belief = pearl.belief_from(state.encoder, rows)
    noise = jnp.where(rows.mask, ones, 9.0)
    other = pearl.belief_from(state.encoder, eqx.tree_at(lambda x: x.reward, rows, noise))
    assert eqx.tree_equal(belief, other)
    narrower = pearl.belief_from(state.encoder, eqx.tree_at(lambda x: x.mask, rows, ones > 0))
    assert (narrower.variance < belief.variance).all()
    assert (belief.variance < 1.0).all()
    nothing = pearl.belief_from(state.encoder, eqx.tree_at(lambda x: x.mask, rows, ones < 0))
    np.testing.assert_allclose(nothing.divergence(), 0.0, atol=1e-6)


@pytest.mark.slow
def test_pearl_adapts_to_the_level_it_is_in():
    """Without the level 0.6 is best, with it 0.75."""
    small = {"warmup": 500, "width": 64, "batch": 64, "seeds": 1, "quiet": True}
    world = "probe:levels-hidden-continuous"
    run = sterling.train(METHODS / "pearl.py", world, steps=6_000, **small)
    after, before = (run.result["final"][name]["estimate"] for name in ("return", "return.before"))
    assert after > 0.63, (before, after)
    assert after > before + 0.1, (before, after)
