"""Model rollouts that begin at rows of a log."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marked_log import ACTIONS, OBS, marked_log

from sterling.data.device_dataset import HostDataset
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.replay.imagined_rollouts import Dream, needs_without_dreams
from sterling.needs.feed import DREAM
from sterling.problem.channels import Channel
from sterling.types import Dreams, Feed, Mistake, Needs, Record, Spec

LENGTHS = np.array((3, 8, 20))
BEGINS = np.cumsum(LENGTHS) - LENGTHS  # rows at which episodes begin
SEEDS, BRANCHES, STEPS = 2, 6, 3
KEYS = jax.random.wrap_key_data(np.array([[0, 3], [0, 5]], np.uint32))  # of two seeds


class Counting(eqx.Module):
    """A model in which the step falls by one from -1, and the reward is that of the real row."""

    def imagine(self, rows, valid, keys):
        falls = -1.0 - jnp.arange(STEPS + 1, dtype=jnp.float32)
        step = jnp.broadcast_to(falls[None, :, None], (*rows.mask.shape[:1], STEPS + 1, BRANCHES))
        number = jnp.broadcast_to(rows.obs[:, None, :, 0], step.shape)
        seen = jnp.stack([number, step], -1)
        shape = (SEEDS, STEPS, BRANCHES)
        reward = jnp.broadcast_to(rows.reward[:, None], shape)
        last = jnp.broadcast_to(jnp.arange(STEPS)[None, :, None] == STEPS - 1, shape)
        mask = jnp.broadcast_to(valid[:, None], shape)
        action = jnp.zeros((*shape, 1))
        return Record(seen[:, :-1], action, reward, reward, seen[:, 1:], last, mask)


def dreaming(**more):
    dreams = Dreams(BRANCHES, STEPS, size=BRANCHES * STEPS, real=0.25)
    needs = Needs(0, (Feed(DREAM, batch=200, updates=2, dreams=dreams, **more),))
    stored = DatasetSource.create(marked_log(LENGTHS), needs_without_dreams(needs))
    return Dream.create(stored, needs.feeds[0], KEYS, Counting())


def drawn(source, agent=None):
    """Two batches of every seed, as NumPy."""
    source, draws = source.collect(agent or Counting(), KEYS)
    chances = draws.presample(source.feed, KEYS)
    seeds = jnp.arange(SEEDS, dtype=jnp.int32)
    each = jax.vmap(lambda chance, seed: draws.draw(source.feed, seed, None, chance), (0, None))
    return jax.tree.map(np.asarray, jax.vmap(each)(chances, seeds))


def test_model_rollouts_begin_at_rows_of_the_log_and_mix_with_them():
    batch = drawn(dreaming())
    real = batch.obs[..., 1] >= 0
    np.testing.assert_array_equal(real.sum(-1), np.full((SEEDS, 2), 50))
    number, step = (batch.obs[real][:, i].astype(int) for i in range(2))
    np.testing.assert_array_equal(batch.reward[real], BEGINS[number] + step)
    made = batch.obs[~real]
    assert set(np.unique(made[:, 1])) == {-1.0, -2.0, -3.0}
    # what an imagined row earns is what its real row earned, which lies in the same episode
    number = made[:, 0].astype(int)
    steps = batch.reward[~real] - BEGINS[number]
    assert ((steps >= 0) & (steps < LENGTHS[number])).all()
    assert np.unique(steps).size > 5
    assert batch.mask.all()


def test_model_rollouts_of_a_log_begin_at_rows_with_what_is_kept_of_them():
    costs = {"extra/cost": 2.0 * np.arange(LENGTHS.sum(), dtype=np.float32)}
    log = marked_log(LENGTHS, columns=costs)
    rows, valid = DatasetSource.create(log, Needs(0, (Feed(batch=1),), keep=("cost",))).starts(
        5, KEYS
    )
    np.testing.assert_array_equal(rows.extras["cost"], 2.0 * rows.reward)
    assert valid.all()


def test_model_rollouts_of_a_log_are_equal_in_memory_and_on_disk():
    fast = dreaming()
    on_disk = HostDataset(marked_log(LENGTHS))
    stored = dataclasses.replace(fast.source, data=on_disk)
    slow = dataclasses.replace(fast, source=stored)
    assert fast.traced
    assert not slow.traced
    dreams = [each.collect(Counting(), KEYS)[0].dreams for each in (fast, slow)]
    jax.tree.map(np.testing.assert_array_equal, *dreams)


def test_sequences_of_model_rollouts_of_a_log_lie_in_one_of_them():
    batch = drawn(dreaming(length=2))
    made = batch.obs[..., 0, 1] < 0
    ahead = batch.obs[made][:, 1, 1] - batch.obs[made][:, 0, 1]
    np.testing.assert_array_equal(ahead, np.full(ahead.shape, -1.0))


@pytest.mark.parametrize("due", [False, True])
def test_model_rollouts_of_a_log_wait_until_their_feed_is_due(due):
    source, _ = dreaming(every=2).collect(Counting(), KEYS, lambda feed: due)
    assert int(source.dreams.count) == (STEPS + 1) * due


class Doubting(Counting):
    """Its rows also hold their episode's number, a vector, and what they cost, which is kept of
    real rows."""

    renamed: dict[str, str] = eqx.field(static=True, default_factory=dict)
    shaped: str = eqx.field(static=True, default="")

    def imagine(self, rows, valid, keys):
        made = super().imagine(rows, valid, keys)
        number = made.obs[..., 0].astype(jnp.int32)
        extras = {"number": number, "pair": jnp.stack([made.obs[..., 1], made.reward], -1)}
        extras |= {"cost": 10.0 ** made.obs[..., 1], "sure": made.mask}
        if self.shaped == "branch":
            extras["pair"] = extras["pair"][:, 0]
        if self.shaped == "tree":
            extras["pair"] = {"one": extras["number"]}
        if self.shaped == "type":
            extras["cost"] = number
        return dataclasses.replace(
            made, extras={self.renamed.get(name, name): x for name, x in extras.items()}
        )


COSTS = {"extra/cost": 2.0 * np.arange(LENGTHS.sum(), dtype=np.float32)}
CHANNELS = {"cost": Channel()}


def doubting(agent, keep=("cost",), **more):
    """A batch of each update and seed, of a log with costs and rollouts that ``agent`` imagines."""
    dreams = Dreams(BRANCHES, STEPS, size=BRANCHES * STEPS, real=0.25)
    needs = Needs(0, (Feed(DREAM, batch=80, updates=2, dreams=dreams, **more),), keep=keep)
    spec = Spec(OBS, ACTIONS, channels=CHANNELS)
    log = marked_log(LENGTHS, columns=COSTS)
    stored = DatasetSource.create(log, needs_without_dreams(needs), spec=spec)
    return drawn(Dream.create(stored, needs.feeds[0], KEYS, agent), agent)


@pytest.mark.parametrize("length", [0, 2])
def test_extras_of_imagined_rows_are_in_batches_and_zero_in_real_rows_that_lack_them(length):
    batch = doubting(Doubting(), length=length)
    real = batch.obs[..., 1] >= 0
    assert set(batch.extras) == {"number", "pair", "cost", "sure"}
    number, step = batch.obs[..., 0].astype(np.int32), batch.obs[..., 1]
    np.testing.assert_array_equal(batch.extras["number"], np.where(real, 0, number))
    assert batch.extras["number"].dtype == np.int32
    pair = np.where(real[..., None], 0, np.stack([step, batch.reward], -1))
    np.testing.assert_array_equal(batch.extras["pair"], pair)
    np.testing.assert_array_equal(batch.extras["sure"], ~real)
    cost = np.where(real, 2.0 * batch.reward, np.float32(10.0) ** np.minimum(step, 0.0))
    np.testing.assert_allclose(batch.extras["cost"], cost, rtol=1e-6)


def test_n_step_returns_sum_what_imagined_rows_cost_as_what_real_rows_cost():
    batch = doubting(Doubting(), n_step=2)
    step = batch.obs[..., 1]
    assert set(np.unique(step[step < 0])) == {-1.0, -2.0, -3.0}
    for at, (cost, pair) in {-1: (0.1, -1), -2: (0.01, -2), -3: (0.001, -3)}.items():
        rows = step == at
        # discounts of the model are its rewards, those of the real rows
        following = np.where(at == -3, 0.0, batch.extras["pair"][rows][:, 1] * cost / 10)
        np.testing.assert_allclose(batch.extras["cost"][rows], cost + following, rtol=1e-5)
        np.testing.assert_array_equal(batch.extras["pair"][rows][:, 0], pair)


@pytest.mark.parametrize(
    ("made", "more", "said"),
    [
        (
            {"shaped": "branch"},
            {},
            r"'pair' of shape \(6, 2\), but its rows are \(3, 6\): \(time, ",
        ),
        ({"shaped": "tree"}, {}, "'pair' that is no array of numbers"),
        ({"shaped": "type"}, {}, r"'cost' of shape \(\) and type int32, but real rows .* float32"),
        ({}, {"keep": ()}, "'cost', which real rows have if keep of Needs names it"),
        ({"renamed": {"pair": "next_action"}}, {"add": ("next_action",)}, "'next_action', a name"),
        ({"renamed": {"pair": "reward_now"}}, {"add": ("one_step",)}, "'reward_now', a name of"),
        ({"renamed": {"pair": "past/0"}}, {}, "'past/0', a name of rows' own extras"),
    ],
    ids=["shape", "tree", "type", "not kept", "next action", "one step", "past"],
)
def test_extras_of_imagined_rows_are_refused_in_one_line_where_they_cannot_be_kept(
    made, more, said
):
    with pytest.raises(Mistake, match=said) as caught:
        doubting(Doubting(**made), **more)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (
            Doubting(renamed={"pair": "couple"}),
            r"'couple' as nothing when .* \(\(2,\), 'float32'\)",
        ),
        (Doubting(shaped="type"), r"'cost' as \(\(\), 'float32'\) when .* \(\(\), 'int32'\)"),
        (Counting(), "'cost' .* and now as nothing. Return the same extras in every call"),
    ],
    ids=["name", "type", "none"],
)
def test_extras_of_imagined_rows_that_change_in_a_later_call_are_refused(after, said):
    needs = Needs(0, (Feed(DREAM, batch=8, dreams=Dreams(BRANCHES, STEPS, 18, 0.0)),))
    stored = DatasetSource.create(marked_log(LENGTHS), needs_without_dreams(needs))
    source = Dream.create(stored, needs.feeds[0], KEYS, Doubting())
    with pytest.raises(Mistake, match=said):
        source.collect(after, KEYS)
