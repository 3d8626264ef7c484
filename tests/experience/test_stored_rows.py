"""What learning stores stands in the rows of the replay that it learned from."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feed_learner import Config, FeedLearner

import sterling
from sterling.experience.replay.kept_extras import read_past
from sterling.experience.replay.ring_buffer import Place
from sterling.training.api import settings_from_arguments
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.run_arguments import train_arguments
from sterling.training.loop import iterate
from sterling.types import Feed, Mistake, Needs, Signals

ENVS, CAPACITY = 3, 400
NEVER = 0


class State(eqx.Module):
    """How many updates it made, and the last one that drew each row of the replay."""

    updates: jax.Array
    newest: jax.Array
    config: Config


class Storing:
    """Acts at random; stores the number of its update in every row that it draws."""

    Config = Config
    __name__ = "storing"

    def __init__(self, **feed):
        self.feed = Feed(batch=8, **({"add": ("place",)} | feed))

    def needs(self, config):
        return Needs(4, (self.feed,), CAPACITY, warmup=12, keep=("when", "bytes", "memory"))

    def init(self, key, spec, config):
        zero = jnp.zeros((), jnp.int32)
        return State(zero, jnp.full(CAPACITY, NEVER, jnp.int32), config)

    def memory(self, state, envs, key):
        return {"count": jnp.zeros(envs, jnp.int32), "wide": jnp.zeros((envs, 2))}

    def recall(self, state, past, obs, key, explore):
        rows = past.first.shape[0]
        action = jax.random.randint(key, (rows,), 0, 2, jnp.int32)
        many = jnp.zeros((rows, 40), jnp.uint8)
        return action, past.memory, {"when": jnp.zeros(rows, jnp.int32), "bytes": many}

    def learn(self, state, batch, key):
        now = state.updates + 1
        place = batch.extras.get("place", jnp.zeros(8, jnp.int32))
        rows = place
        if batch.mask.ndim > 1:
            steps = jnp.arange(batch.mask.shape[1], dtype=jnp.int32)
            rows = place[:, None] + ENVS * steps[None]
        rows = jnp.where(batch.mask, rows, CAPACITY)
        newest = state.newest.at[rows].set(now, mode="drop")
        state = dataclasses.replace(state, updates=now, newest=newest)
        return state, Signals({}, stored=self.stored(batch.mask, now))

    def stored(self, mask, now):
        when = jnp.broadcast_to(now, mask.shape)
        many = jnp.broadcast_to(now.astype(jnp.uint8), (*mask.shape, 40))
        wide = jnp.broadcast_to(now.astype(jnp.float32), (*mask.shape, 2))
        return {"when": when, "bytes": many, "memory": {"count": when, "wide": wide}}


def begun(learner, **more):
    how = {"steps": 999, "seeds": 2, "envs": ENVS, "evaluate_episodes": 0, **more}
    arguments = {"algorithm": learner, "environment": "probe:limits", **how}
    return build_first_phase(settings_from_arguments(train_arguments(None, arguments)))


@pytest.mark.parametrize(
    "feed", [{"updates": 3}, {"updates": 2, "length": 3, "edge": "mask", "every": 2}]
)
def test_rows_hold_what_the_last_update_that_drew_them_stored(feed):
    run = begun(Storing(**feed))
    step = jax.jit(lambda run: iterate(run)[0])
    for _ in range(5):
        run = step(run)
    ring, newest = run.source.ring, np.asarray(run.agent.state.newest)
    assert (newest > NEVER).any(1).all()
    assert not np.array_equal(*newest)
    rows, envs = np.divmod(np.arange(int(ring.head) * ENVS), ENVS)
    places = Place.of_all(*(jnp.broadcast_to(x, (2, x.size)) for x in (rows, envs)))
    kept, past = ring.kept(places), read_past(run.source.past_form, ring, places)
    expected = newest[:, : rows.size]
    np.testing.assert_array_equal(kept["when"], expected)
    np.testing.assert_array_equal(kept["bytes"], np.repeat(expected[..., None], 40, -1))
    np.testing.assert_array_equal(past.memory["count"], expected)
    np.testing.assert_array_equal(past.memory["wide"], np.repeat(expected[..., None], 2, -1))
    assert newest[:, rows.size :].max() == NEVER


def whole(mask):
    return jnp.ones(mask.shape, jnp.int32)


class Wrong(Storing):
    """Stores what it is told to."""

    def __init__(self, stored, **feed):
        super().__init__(**feed)
        self.stored = stored


@pytest.mark.parametrize(
    ("stored", "feed", "words"),
    [
        (lambda mask, now: {"when": whole(mask)}, {"add": ()}, 'Add "place" to the feed'),
        (lambda mask, now: {"when": now}, {}, "Give a value for each of the batch's rows"),
        (lambda mask, now: {"which": whole(mask)}, {}, "keeps when, bytes. Name it in keep"),
        (lambda mask, now: {"when": jnp.ones(mask.shape)}, {}, "of shape .* and type float32, but"),
        (lambda mask, now: {"memory": whole(mask)}, {}, "another tree than memory"),
    ],
)
def test_what_cannot_be_stored_is_refused(stored, feed, words):
    run = begun(Wrong(stored, **feed))
    with pytest.raises(Mistake, match=words):
        jax.eval_shape(lambda run: iterate(run)[0], run)


class OfRollouts(FeedLearner):
    """Stores rows of a rollout."""

    def learn(self, state, batch, key):
        state, signals = super().learn(state, batch, key)
        return state, dataclasses.replace(signals, stored={"when": batch.reward})


def test_rows_of_a_rollout_are_not_changed():
    with pytest.raises(Mistake, match="only rows of a replay can be changed"):
        sterling.train(OfRollouts(Feed("fresh")), "probe:limits", steps=64, quiet=True)
