"""What holds of every algorithm's new agent: needs, parts of chances of their own, what it sees."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import algorithms, random_keys
from sterling.actor import Past
from sterling.nets.action_heads import Actions
from sterling.nets.running_statistics import ObsNormaliser
from sterling.problem.agent_axis import Agents, joint
from sterling.problem.channels import Channel
from sterling.types import Log, Needs, Spec, Transitions

ROWS = 6
MEAN, DEVIATION = np.array([10.0, -5.0, 100.0]), np.array([3.0, 0.5, 20.0])
LOG = Log(MEAN, DEVIATION, (0.0, 1.0), (-3.0, 2.0), 9)
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
BOX, CHOICES = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3)
NAMES = [name for name, file in algorithms.ALGORITHMS.items() if "language" not in file]
ONE_SPACE = {
    **dict.fromkeys(("c51", "dqn", "iqn", "munchausen-dqn"), CHOICES),
    **dict.fromkeys(("bbf", "pqn", "qr-dqn", "r2d2", "rainbow", "spr"), CHOICES),
    **dict.fromkeys(("stream-q", "stream-sarsa"), CHOICES),
    **dict.fromkeys(("crossq", "ddpg", "droq", "drq-v2", "fql", "rebrac", "redq", "simba"), BOX),
    **dict.fromkeys(("curl", "d4pg", "fast-td3", "mex", "simba-v2", "td3", "td3bc"), BOX),
    **dict.fromkeys(("bro", "cem-rl", "crl", "gciql", "qrl", "td7", "tqc"), BOX),
}
STREAMS = ("stream-ac", "stream-q", "stream-sarsa")  # of one environment
ROLLOUTS = (
    *STREAMS,
    *("a2c", "ippo", "maml", "mappo", "ppg", "ppo", "ppo-lagrangian", "pqn", "recurrent-ppo"),
    *("trpo", "v-mpo"),
)
ASKED = ("crl", "gcbc", "gcivl", "gciql", "hiql", "qrl")  # for goals
OTHER_NEEDS = (*ASKED, "cem-rl", "cma-es", "dt", "mbpo", "openes", "pebble")
# stretches, or batches of several kinds
SEVERAL = ("bbf", "r2d2", "sac-lagrangian", "simba-v2", "spr")
ONLINE = (
    "bbf",
    "bro",
    "c51",
    "cem-rl",
    "cma-es",
    "crossq",
    "curl",
    "d4pg",
    "ddpg",
    "distill",
    "dqn",
    "droq",
    "drq-v2",
    "fast-td3",
    "iqn",
    "mbpo",
    "mex",
    "mpo",
    "munchausen-dqn",
    "openes",
    "pebble",
    "qr-dqn",
    "rainbow",
    *ROLLOUTS,
    "r2d2",
    "redq",
    "sac",
    "sac-lagrangian",
    "simba",
    "simba-v2",
    "spr",
    "td3",
    "td7",
    "tqc",
)


def spaces_of(name):
    """Return every kind of actions that an algorithm can take."""
    return [space for space in (BOX, CHOICES) if ONE_SPACE.get(name, space) is space]


def settings(module, **fields):
    own = {field.name for field in dataclasses.fields(module.Config)}
    return module.Config(**{name: x for name, x in fields.items() if name in own})


def problem_of(name, space):
    """A small problem, with a log if the algorithm can learn from one, and small settings."""
    module = algorithms.find(name)
    costs = {"cost": Channel()}
    envs = 1 if name in STREAMS else ROWS
    spec = Spec(VECTOR, space, envs, 100, None if name in ONLINE else LOG, channels=costs)
    if hasattr(module, "several_agents"):
        side = joint(VECTOR, 2), joint(space, 2)
        spec = Spec(*side, ROWS, 100, agents=Agents(("left", "right")))
    if name in ASKED:
        parts = ("observation", "achieved_goal", "desired_goal")
        spec = dataclasses.replace(spec, obs=spaces.Dict(dict.fromkeys(parts, VECTOR)))
    own = {"width": 4, "critic_width": 4, "depth": 1, "layers": 1, "diversity": None}
    own |= {"members": envs} if name == "cem-rl" else {}
    return module, spec, settings(module, normalise_obs=True, **own)


@pytest.mark.parametrize("name", NAMES)
def test_a_new_agent(name, monkeypatch):
    """What holds of every algorithm, in one test of each, which names the kind of actions."""
    if name not in (*ROLLOUTS, *OTHER_NEEDS):
        needs_are_the_settings_of_the_same_name(name)
    for space in spaces_of(name):
        no_two_parts_are_drawn_from_one_key(name, space, monkeypatch)
        if name not in (*ONLINE, *ASKED):
            every_answer_is_about_what_is_seen_in_the_logs_units(name, space)


def needs_are_the_settings_of_the_same_name(name):
    module = algorithms.find(name)
    asked = {"batch": 7, "collect": 3, "learn": 5, "capacity": 1100, "warmup": 13}
    needs = module.needs(settings(module, **asked))
    assert isinstance(needs, Needs if name in SEVERAL else Transitions)
    feed = needs.feed("")
    found = (feed.batch, needs.collect, needs.updates, needs.capacity, needs.warmup)
    assert found == tuple(asked.values())
    assert ("next_action" in feed.add) == (name == "rebrac")


def no_two_parts_are_drawn_from_one_key(name, space, monkeypatch):
    """Keys are computed, and of all that is drawn from them only the shapes."""
    drawn, fold, split = [], random_keys.fold, random_keys.split

    def noted(key, purpose, counter=0):
        if any(isinstance(x, jax.core.Tracer) for x in (key, counter)):
            return fold(key, purpose, counter)
        with jax.ensure_compile_time_eval():
            drawn.append((*np.asarray(jax.random.key_data(key)).tolist(), purpose, int(counter)))
            return fold(key, purpose, counter)

    def parted(key, purpose, count):
        if isinstance(key, jax.core.Tracer):
            return split(key, purpose, count)
        with jax.ensure_compile_time_eval():
            return split(key, purpose, count)

    module, spec, config = problem_of(name, space)
    key = jax.random.key(0)
    with monkeypatch.context() as patched:
        patched.setattr(random_keys, "fold", noted)
        patched.setattr(random_keys, "split", parted)
        jax.eval_shape(lambda: module.init(key, spec, config))
    assert len(drawn) > (name != "gcbc"), space  # which draws one network
    assert len(set(drawn)) == len(drawn), space


def acted(module, state, space, obs, key):
    """What is done where an episode begins with these observations."""
    if hasattr(module, "act"):
        return module.act(state, obs, key, True)[0]
    none, nothing = jnp.zeros(ROWS), Actions.from_space(space).nothing((ROWS,))
    memory = module.memory(state, ROWS, key)
    past = Past(memory, nothing, none, none + 1.0, jnp.ones(ROWS, bool))
    return module.recall(state, past, obs, key, True)[0]


def every_answer_is_about_what_is_seen_in_the_logs_units(name, space):
    """(x - mean) / (deviation + 1e-3), in every question about an observation."""
    module, spec, config = problem_of(name, space)
    state = jax.jit(lambda key: module.init(key, spec, config))(jax.random.key(0))
    plain = eqx.tree_at(
        lambda s: s.normaliser,
        state,
        ObsNormaliser.of_log(Spec(VECTOR, space, log=LOG), False),
    )
    rng = np.random.default_rng(0)
    obs = MEAN + DEVIATION * rng.normal(size=(ROWS, 3))
    seen = jnp.asarray((obs - MEAN) / (DEVIATION + 1e-3), jnp.float32)
    obs, key = jnp.asarray(obs, jnp.float32), jax.random.key(1)
    action = acted(module, plain, space, seen, key)
    np.testing.assert_allclose(acted(module, state, space, obs, key), action, atol=1e-4)
    asked = {"value": (), "action_value": (action,), "log_prob": (action,)}
    for question, beside in asked.items():
        if hasattr(module, question):
            answer = getattr(module, question)
            found, wanted = answer(state, obs, *beside), answer(plain, seen, *beside)
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4, err_msg=question)
