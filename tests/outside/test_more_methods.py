"""Further methods of examples/methods: a short run of each, a known answer, and what it learns."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.actor import Past
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.lookup import user_imports
from sterling.types import Mistake, Record, Spec

METHODS = Path(__file__).parents[2] / "examples/methods"
SHORT = {"evaluate_episodes": 2, "evaluate_limit": 20, "quiet": True}
CART = Spec(spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2), iterations=9)


def loaded(name):
    return user_imports.load(str(METHODS / f"{name}.py"))


def scores(run):
    return run.result["final"]["return"]["per_seed"]


def rows(count, reward=1.0, **extras):
    """Rows of CartPole's form."""
    obs = jax.random.normal(jax.random.key(0), (count, 4))
    ones, no = jnp.ones(count), jnp.zeros(count, bool)
    action = jnp.arange(count, dtype=jnp.int32) % 2
    return Record(obs, action, reward * ones, ones, obs + 0.1, no, ~no, extras)


def test_a_student_of_two_teachers_learns_from_the_better_or_from_both(tmp_path):
    """What is taught is the mean of the teachers' probabilities, or those of one."""
    small = {"steps": 128, "length": 16, "minibatch": 32, "envs": 2, "epochs": 1, **SHORT}
    for name in ("one", "other"):
        seed = [1] if name == "one" else [2]
        sterling.train("ppo", "CartPole-v1", out=tmp_path / name, seeds=seed, **small)
    folders = f"{tmp_path / 'one'},{tmp_path / 'other'}"
    how = {"steps": 64, "warmup": 32, "batch": 8, "width": 8, "teachers": folders, **SHORT}
    run = sterling.train(METHODS / "distill_two.py", "CartPole-v1", **how)
    assert run.result["steps"] == 64
    distill, obs = loaded("distill_two"), rows(5).obs
    said = {}
    for weights in ("mixture", "better"):
        config = distill.Config(teachers=folders, weights=weights)
        said[weights] = distill.taught(distill.init(jax.random.key(0), CART, config), obs)
        np.testing.assert_allclose(said[weights].sum(-1), 1.0, rtol=1e-5)
    assert np.abs(said["mixture"] - said["better"]).max() > 1e-4
    with pytest.raises(Mistake, match="Give --teachers two folders"):
        distill.read_teachers(str(tmp_path / "one"))


@pytest.mark.slow
def test_a_student_matches_the_better_of_two_teachers(tmp_path):
    """Random policies hold the pole for about 22 steps."""
    more = {"seeds": 1, "evaluate_episodes": 10, "quiet": True}
    for name, steps in (("weak", 4_096), ("strong", 60_000)):
        sterling.train("ppo", "CartPole-v1", steps=steps, out=tmp_path / name, **more)
    teachers = f"{tmp_path / 'weak'},{tmp_path / 'strong'}"
    how = {"steps": 4_000, "teachers": teachers, **more}
    run = sterling.train(METHODS / "distill_two.py", "CartPole-v1", **how)
    assert min(scores(run)) > 200


def test_apex_tells_the_replay_the_actors_errors():
    """New rows get their own TD errors, and their actors differ in how often they explore."""
    apex = loaded("apex")
    state = apex.init(jax.random.key(0), CART, apex.Config(width=8, batch=4))
    batch = rows(3, place=jnp.arange(3, dtype=jnp.int32))
    fresh = jax.tree.map(lambda x: x[None], batch)
    after, signals = apex.learn_arrivals(state, fresh, jax.random.key(1))
    assert after is state
    q = state.net(batch.obs)[jnp.arange(3), batch.action]
    best = state.net(batch.next_obs).max(-1)  # the target network is the same yet
    expected = 1.0 + state.config.gamma * best - q
    np.testing.assert_allclose(np.abs(signals.samples["td_error"]), np.abs(expected), rtol=1e-4)
    many = jnp.repeat(batch.obs[:1], 2_000, 0).reshape(2_000, 1, 4).repeat(2, 1)
    keys = jax.random.split(jax.random.key(2), 2_000)
    action = jax.vmap(lambda obs, key: apex.act(state, obs, key, True)[0])(many, keys)
    greedy = apex.act(state, many[0], keys[0], False)[0]
    explored = np.asarray(action != greedy[None]).mean(0)  # half of the random ones are the best
    np.testing.assert_allclose(explored, [0.2, 0.5 * 0.4**8], atol=0.04)


@pytest.mark.slow
def test_apex_learns_cart_pole():
    """Random policies hold the pole for about 22 steps."""
    how = {"steps": 16_000, "envs": 8, "seeds": 1, "evaluate_episodes": 10, "quiet": True}
    assert min(scores(sterling.train(METHODS / "apex.py", "CartPole-v1", **how))) > 80


def test_option_critic_goes_on_with_an_option_that_does_not_end():
    """With ends far off the option stays; with ends sure it is the one of the largest value."""
    critic = loaded("option_critic")
    state = critic.init(jax.random.key(0), CART, critic.Config(options=3, width=8))
    past = critic.Past(
        jnp.array([0, 1, 2], jnp.int32),
        jnp.zeros(3, jnp.int32),
        *jnp.ones((2, 3)),
        jnp.zeros(3, bool),
    )
    obs = rows(3).obs
    for bias, expected in ((-99.0, past.memory), (99.0, state.nets.values(obs).argmax(-1))):
        ends = jax.tree.map(lambda x: x * 0.0, state.nets.ends)
        ends = critic.eqx.tree_at(lambda n: n.layers[-1].bias, ends, jnp.full(3, bias))
        nets = critic.Nets(state.nets.policies, ends, state.nets.values)
        sure = critic.State(nets, state.optimiser, state.config, state.actions)
        _, option, extras = critic.recall(sure, past, obs, jax.random.key(1), False)
        np.testing.assert_array_equal(option, expected)
        np.testing.assert_array_equal(extras["option"], option)


@pytest.mark.slow
def test_option_critic_learns_cart_pole():
    """Random policies hold the pole for about 22 steps; two seeds reached 140 and 408."""
    how = {"steps": 100_000, "envs": 8, "seeds": 2, "evaluate_episodes": 10, "quiet": True}
    assert min(scores(sterling.train(METHODS / "option_critic.py", "CartPole-v1", **how))) > 60


@pytest.fixture(name="random_rows", scope="module")
def _random_rows(tmp_path_factory):
    """5,000 rows of uniformly random actions in CartPole-v1."""
    order = DatasetOrder("CartPole-v1", "random", 5_000)
    return make_dataset(order, tmp_path_factory.mktemp("log") / "random")


def test_dyna_masks_model_rollouts_after_their_end(random_rows):
    """Branches that never end are whole, those that always end have one row, invalid ones none."""
    how = {"data": random_rows, "updates": 12, "model_updates": 4, "seeds": 1, **SHORT}
    run = sterling.train(METHODS / "dyna_log.py", "CartPole-v1", width=8, **how)
    dyna, state = loaded("dyna_log"), jax.tree.map(lambda x: x[0], run.agent.state)
    for logit, expected in ((-99.0, [5, 0]), (99.0, [1, 0])):
        model = jax.tree.map(lambda x: x * 0.0, state.model)
        bias = jnp.zeros(6).at[-1].set(logit)
        model = dyna.eqx.tree_at(lambda n: n.layers[-1].bias, model, bias)
        sure = dyna.eqx.tree_at(lambda s: s.model, state, model)
        made = dyna.imagine(sure, rows(2), jnp.array([True, False]), jax.random.key(0))
        assert made.mask.sum(0).tolist() == expected
        np.testing.assert_allclose(made.discount, logit < 0)
        np.testing.assert_allclose(made.obs[0], made.next_obs[0])  # a change of 0


@pytest.mark.slow
def test_dyna_learns_cart_pole_from_random_actions(random_rows):
    """Random policies hold the pole for about 22 steps."""
    how = {"data": random_rows, "updates": 10_000, "seeds": 2, "quiet": True}
    run = sterling.train(METHODS / "dyna_log.py", "CartPole-v1", evaluate_episodes=10, **how)
    assert min(scores(run)) > 60


def dreamers_batch(dreamer, small):
    """A new agent, and sequences of which the second crosses an episode's end."""
    state = dreamer.init(jax.random.key(1), CART, dreamer.Config(**small))
    lead = jax.tree.map(lambda x: jnp.stack([x.reshape(6, *x.shape[1:])] * 2), rows(6))
    last, begins = np.zeros((2, 6), bool), np.zeros((2, 6), bool)
    last[1, 2], begins[1, 4] = True, True  # row 3 resets
    past = Past(
        jnp.ones((2, state.nets.model.size)),
        jnp.zeros(2, jnp.int32),
        *(jnp.zeros(2), jnp.ones(2), jnp.zeros(2, bool)),
    )
    discount = jnp.where(last, 0.0, 1.0)
    extras = {"begins": jnp.asarray(begins), "place": jnp.arange(2, dtype=jnp.int32)}
    new = {"discount": discount, "last": jnp.asarray(last), "extras": extras, "start": past}
    mask = jnp.ones((2, 6), bool).at[1, 3].set(False)
    return state, dataclasses.replace(lead, mask=mask, **new)


def test_dreamer_learns_rewards_and_ends_in_the_rows_to_which_they_led():
    """The reset row shows where the episode ended; what is masked there, and in the row that begins
    the next one, changes nothing; stored memories are those of acting."""
    dreamer = loaded("dreamerv3")
    state, batch = dreamers_batch(dreamer, {"width": 8, "groups": 2, "classes": 3, "horizon": 3})
    key = jax.random.key(2)
    learn = jax.jit(dreamer.learn)
    learned = learn(state, batch, key)
    for name in ("reward", "action", "discount"):
        leaf = getattr(batch, name)
        same = dataclasses.replace(batch, **{name: leaf.at[1, 3].set(leaf[1, 3] + 1)})
        assert eqx.tree_equal(learn(state, same, key), learned), name
    other = dataclasses.replace(batch, discount=batch.discount.at[1, 2].set(1.0))
    decoders = [found[0].nets.decoder for found in (learn(state, other, key), learned)]
    assert not eqx.tree_equal(*decoders)
    stored = learned[1].stored["memory"]
    np.testing.assert_array_equal(stored[:, 0], batch.start.memory)
    np.testing.assert_array_equal(stored[1, 4], 0.0)


@pytest.mark.parametrize("horizon", [1, 3])
def test_dreamers_returns_end_with_the_last_states_value_and_the_actor_follows_them(horizon):
    """Nothing is paid, nothing ends, every state is worth b: R_t is gamma b in the last row, and a
    little more than gamma^2 b before it. These are losses, so actions become less likely."""
    dreamer, b = loaded("dreamerv3"), 150
    state = dreamer.init(jax.random.key(1), CART, dreamer.Config(width=8, horizon=horizon))
    at = lambda nets: (nets.critic.layers[-1].bias, nets.decoder.layers[-1])  # noqa: E731
    last = jax.tree.map(jnp.zeros_like, state.nets.decoder.layers[-1])
    last = eqx.tree_at(lambda x: x.bias, last, last.bias.at[-1].set(50.0))
    found = jnp.zeros(dreamer.BINS).at[b].set(50.0), last
    state = eqx.tree_at(lambda x: x.nets, state, eqx.tree_at(at, state.nets, found))
    s, mask = jnp.zeros((4, state.nets.model.size)), jnp.ones(4, bool)
    losses = jax.jit(lambda nets: dreamer.dream_losses(nets, state, s, mask, jax.random.key(2))[0])
    worth, gamma = float(state.bins.support[b]), float(state.config.gamma)
    wanted = [gamma * worth]
    for _ in range(horizon - 1):
        wanted.append(gamma * ((1 - dreamer.LAMBDA) * worth + dreamer.LAMBDA * wanted[-1]))
    found, k = losses(state.nets), np.arange(horizon)
    np.testing.assert_allclose(found["value/return"], np.mean(wanted), rtol=1e-4)
    # a new policy has log p = -log 2 and entropy log 2 of either action; ``wanted`` runs backwards
    gain = -np.log(2.0) * (np.array(wanted[::-1]) - worth) + state.config.entropy * np.log(2.0)
    np.testing.assert_allclose(found["loss/actor"], -np.mean(gamma**k * gain), rtol=0.02)


@pytest.mark.slow
def test_dreamer_learns_cart_pole_in_dreams():
    """Random policies hold the pole for about 22 steps."""
    small = {"width": 64, "groups": 4, "classes": 4, "warmup": 300, "seeds": [1], "quiet": True}
    run = sterling.train(METHODS / "dreamerv3.py", "CartPole-v1", steps=3_000, **small)
    assert min(scores(run)) > 50.0, scores(run)


DELAYED = METHODS.parent / "worlds/delayed_sum.py"


def test_delayed_world_pays_its_early_choices_in_the_last_step():
    """Right at first and wrong later earns the most there is, the reverse the least."""
    world = user_imports.load(f"{DELAYED}:Delayed")()
    step = jax.jit(world.step)
    for early in (True, False):
        state, obs = world.reset(jax.random.key(0))
        rewards = []
        for time in range(world.length):
            right = (time < world.counted) == early
            action = jnp.int32((obs[0] > 0) == right)
            state, obs, reward, ended, cut = step(state, action, jax.random.key(time))
            rewards.append(float(reward))
            assert not cut
        assert ended
        assert not any(rewards[:-1])
        assert rewards[-1] == (1.0 if early else -1.0)


def test_rudder_redistributes_an_episodes_return_over_its_steps(monkeypatch):
    """Whatever is predicted: the new rewards of each episode that ended sum to its return."""
    rudder = loaded("rudder")
    taught = []

    def learn(state, batch, key):
        taught.append(batch)
        return state, rudder.Signals({})

    monkeypatch.setattr(rudder.ppo, "learn", learn)
    config = rudder.Config(length=6, minibatch=4, width=8, return_width=4, return_updates=1)
    state = rudder.init(jax.random.key(0), dataclasses.replace(CART, envs=2), config)
    flat = rows(12)
    batch = jax.tree.map(lambda x: x.reshape(6, 2, *x.shape[1:]), flat)
    reward = jnp.arange(12.0).reshape(6, 2)
    last, begins = (jnp.zeros((6, 2), bool).at[jnp.array(at)].set(True) for at in ([2, 5], [0, 3]))
    so_far = jnp.concatenate([reward[:3].cumsum(0), reward[3:].cumsum(0)])
    nothing = jnp.zeros((2, 4)), jnp.zeros(2, jnp.int32), jnp.zeros(2), jnp.ones(2)
    batch = dataclasses.replace(
        batch,
        reward=reward,
        last=last,
        extras={"episode/return": so_far, "begins": begins, "log_prob": jnp.zeros((6, 2))},
        start=rudder.Past(*nothing, jnp.ones(2, bool)),
    )
    rudder.learn(state, batch, jax.random.key(1))
    made = taught[0].reward
    assert np.abs(made - reward).max() > 0.1
    for episode in (slice(0, 3), slice(3, 6)):
        np.testing.assert_allclose(made[episode].sum(0), reward[episode].sum(0), rtol=1e-5)


@pytest.mark.slow
def test_rudder_finds_the_choices_that_are_paid_late():
    """Random policies earn 0; three seeds earned 1."""
    how = {"steps": 60_000, "envs": 8, "seeds": 2, "evaluate_episodes": 20, "quiet": True}
    run = sterling.train(METHODS / "rudder.py", f"{DELAYED}:Delayed", **how)
    assert min(scores(run)) > 0.5
