"""The order in which texts are drawn: every row once before any comes again."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.experience.language.answer_pairs import PairSource, PreferencePair
from sterling.experience.language.epoch_order import EpochOrder, shuffled_place
from sterling.experience.language.imitated_texts import Demonstrations, read_demonstrations
from sterling.language.scene import Message
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.training.saving.added_leaves import added_leaves
from sterling.types import Comparisons, Feed, Texts

COUNT, FEED = 10, Feed("texts", batch=4, updates=3)


def drawn(order, iterations):
    """The rows of each seed, one after another."""
    found = []
    for _ in range(iterations):
        found.append(np.asarray(order.choose(COUNT, FEED.updates, FEED.batch)).reshape(2, -1))
        order = order.after(FEED)
    return np.concatenate(found, 1)


def begun(number=0, seeds=2):
    keys = jax.random.split(jax.random.key(number), seeds)
    return EpochOrder.create(seeds).begun(keys)


def test_every_row_is_drawn_once_before_any_comes_again_in_a_new_order_each_time():
    rows = drawn(begun(), 5)
    passes = rows.reshape(2, 6, COUNT)
    assert (np.sort(passes, -1) == np.arange(COUNT)).all()
    assert len({tuple(each) for each in passes.reshape(-1, COUNT).tolist()}) == 12
    assert (rows != drawn(begun(1), 5)).any()


def test_order_goes_on_with_its_first_key():
    order = begun().after(FEED)
    other = order.begun(jax.random.split(jax.random.key(7), 2))
    assert (drawn(order, 2) == drawn(other, 2)).all()
    assert (drawn(order, 2) == drawn(begun(), 3)[:, 12:]).all()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33])
def test_shuffled_places_are_permutations_that_are_about_equally_frequent(count):
    def orders(epochs):
        def of_epoch(epoch):
            place = jnp.arange(count, dtype=jnp.int32)
            key = jax.random.key(3)
            return jax.vmap(lambda at: shuffled_place(key, epoch, at, count))(place)

        return np.asarray(jax.jit(jax.vmap(of_epoch))(jnp.arange(epochs, dtype=jnp.int32)))

    found = orders(3_000)
    assert (np.sort(found, -1) == np.arange(count)).all()
    shares = np.stack([(found == row).mean(0) for row in range(count)])
    deviation = np.sqrt((1 - 1 / count) / count / 3_000)
    assert np.abs(shares - 1 / count).max() < 5 * deviation + 1e-9
    if count == 3:
        times = np.unique(found, axis=0, return_counts=True)[1]
        assert len(times) == 6
        assert np.abs(times - 500).max() < 5 * np.sqrt(500)


def test_order_of_older_runs_on_texts_begins_at_zero():
    order = {"source/order/key", "source/order/drawn"}
    assert added_leaves({"iteration", "agent/state/w"}, order) == order
    assert not added_leaves({"iteration", *order}, order)
    assert not added_leaves({"net/w"}, order)  # not a run


TOKENS = Tokenizer.characters("abcdefghij ")


def sources(tmp_path):
    """The sources of texts and of pairs, of ten rows and two seeds."""
    path = tmp_path / "texts.jsonl"
    rows = [{"prompt": x, "response": x} for x in "abcdefghij"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    voice = ChatSettings(TOKENS, limit=6, context=24)
    lines = read_demonstrations(path, voice)
    yield Demonstrations.from_transcripts(lines, voice, Texts(4, 3), 2)
    pairs = [PreferencePair((Message("user", x),), x, f"{x} no") for x in "abcdefghij"]
    yield PairSource.create(pairs, Comparisons(4, 3), TOKENS, seeds=2)


def test_texts_and_pairs_are_each_drawn_once_a_pass_also_from_a_checkpoint(tmp_path):
    for fresh in sources(tmp_path):
        source, found, (feed,) = fresh, [], fresh.needs.feeds
        for number in range(5):
            keys = jax.random.split(jax.random.key(number), 2)
            source, draws = source.collect(None, keys)
            found.append(np.asarray(draws.presample(feed, keys)).reshape(2, -1))
            if number == 2:
                source = source.to_checkpoint().from_checkpoint(fresh)
        passes = np.concatenate(found, 1).reshape(2, 6, COUNT)
        assert (np.sort(passes, -1) == np.arange(COUNT)).all()
        assert (passes[0] != passes[1]).any()
