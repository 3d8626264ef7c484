"""A reward model: what it learns from a pair, and that it finds what answers are worth."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.algorithms.language import reward_model
from sterling.experience.language.answer_pairs import PairSource, PreferencePair
from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.language.scene import Message
from sterling.language.tokenizer import Tokenizer
from sterling.types import Comparisons, Mistake, Spec

TOKENS = Tokenizer.characters("abcdefghijklmnopqrstuvwxyz ")
ASKED = [("copy ab", "ab", "ba"), ("copy xyz", "xyz", "xz"), ("go", "yes", "no"), ("a", "b", "cc")]
KEY = constant_key(0)
LEARN, SCORE = jax.jit(reward_model.learn), jax.jit(reward_model.score)
READ = jax.jit(lambda state, ids: state.model.hidden(ids)[0, -1] @ state.head)


def compared(texts=ASKED):
    pairs = [PreferencePair((Message("user", asked),), *both) for asked, *both in texts]
    return PairSource.create(pairs, Comparisons(len(pairs)), TOKENS, 16)


def record(texts=ASKED):
    """All of them in order, as one batch."""
    source = compared(texts)
    return source._record(jnp.arange(len(texts), dtype=jnp.int32))


def new(**fields):
    """A judge with opinions."""
    make = jax.jit(lambda key: LanguageModel.create(key, 37, 16, qwen3_form(16, 2, 1), 1))
    begun = reward_model.begin(make(KEY), reward_model.Config(**fields))
    return dataclasses.replace(begun, head=jax.random.normal(jax.random.key(1), (16,)))


def scores(state, texts=ASKED):
    """Every text read alone, without padding: (pair, 2)."""
    found = []
    for asked, *both in texts:
        for answer in both:
            opening = TOKENS.encode_opening([Message("user", asked)])
            ids = jnp.asarray([[*opening, *TOKENS.encode(answer), TOKENS.end]], jnp.int32)
            found.append(float(READ(state, ids)))
    return np.array(found).reshape(-1, 2)


def test_reward_model_score_is_read_at_the_last_token():
    state, source = new(), compared()
    found = SCORE(state, source.ids.reshape(-1, 16), source.length.reshape(-1))
    np.testing.assert_allclose(found.reshape(-1, 2), scores(state), rtol=1e-4, atol=1e-5)
    junk = jnp.where(source.ids == TOKENS.pad, 9, source.ids).reshape(-1, 16)
    np.testing.assert_allclose(SCORE(state, junk, source.length.reshape(-1)), found, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("centring", [0.0, 0.3])
def test_reward_model_loss_is_bradley_terry(centring):
    state = new(centring=centring)
    _, signals = LEARN(state, record(), KEY)
    c, r = scores(state).T
    expected = np.log1p(np.exp(-(c - r))) + centring * (c + r) ** 2
    told = signals.metrics
    np.testing.assert_allclose(told["loss/reward"], expected.mean(), rtol=1e-4)
    np.testing.assert_allclose(told["reward/accuracy"], (c > r).mean())
    np.testing.assert_allclose(told["reward/margin"], (c - r).mean(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(told["reward/middle"], (c + r).mean() / 2, rtol=1e-3, atol=1e-5)


def test_held_out_loss_and_accuracy_are_means_over_all_pairs():
    state, source = new(piece=1, batch=2, centring=0.3), compared()
    read = SCORE(state, source.ids.reshape(-1, 16), source.length.reshape(-1))
    c, r = np.asarray(read, np.float64).reshape(-1, 2).T
    found = jax.jit(reward_model.held_out_metrics)(state, record())
    expected = np.log1p(np.exp(-(c - r))) + 0.3 * (c + r) ** 2
    np.testing.assert_allclose(found["loss"], expected.mean(), rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], (c > r).mean())


def test_reward_model_begins_indifferent_and_learns_from_the_first_step():
    state = reward_model.begin(new().model, reward_model.Config(rise=1))
    learned, signals = LEARN(state, record(), KEY)
    np.testing.assert_allclose(signals.metrics["loss/reward"], np.log(2.0), rtol=1e-6)
    assert signals.metrics["reward/accuracy"] == 0.0  # a tie is no preference
    _, signals = LEARN(learned, record(), KEY)
    assert signals.metrics["loss/reward"] < np.log(2.0)
    assert signals.metrics["reward/margin"] > 0.0


@pytest.mark.slow
def test_reward_model_gradient_accumulation_leaves_the_update_unchanged():
    found = [LEARN(new(piece=piece), record(), KEY) for piece in (0, 2)]
    for name, value in found[0][1].metrics.items():
        np.testing.assert_allclose(found[1][1].metrics[name], value, rtol=1e-4, atol=1e-6)
    leaves = zip(*(jax.tree.leaves(each[0].optimiser) for each in found), strict=True)
    for one, other in leaves:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_reward_model_leaves_out_pairs_with_an_invalid_row():
    batch = record()
    valid = batch.extras["valid"].at[3].set(False)
    batch = dataclasses.replace(batch, extras={**batch.extras, "valid": valid})
    found, few = LEARN(new(), batch, KEY), LEARN(new(), record(ASKED[:3]), KEY)
    for name, value in few[1].metrics.items():
        np.testing.assert_allclose(found[1].metrics[name], value, rtol=1e-4, atol=1e-6)


def worth(asked, answer):
    """What an answer is worth to those who choose: its vowels are wanted, or they are not."""
    vowels = sum(letter in "aeiou" for letter in answer)
    return vowels if asked == "vowels" else -vowels


def preferred(count, seed):
    """Pairs of random answers, chosen as Bradley and Terry say: one wins with sigma(difference)."""
    random, pairs = np.random.default_rng(seed), []
    for _ in range(count):
        asked = str(random.choice(["vowels", "others"]))
        one, other = ("".join(random.choice(list("aeioubcdfg"), 5)) for _ in range(2))
        if random.random() > 1 / (1 + np.exp(worth(asked, other) - worth(asked, one))):
            one, other = other, one
        pairs.append((asked, one, other))
    return pairs


def drawn(source, key):
    """One batch of pairs."""
    (feed,) = source.needs.feeds
    _, begun = source.collect(None, key[None])
    which = begun.presample(feed, key[None])
    return begun.draw(feed, jnp.int32(0), None, which[0, 0])


@pytest.mark.slow
def test_reward_model_recovers_the_true_reward_differences_of_unseen_answers():
    """Also of answers that it has never seen: differences of scores are those of worth."""
    source = dataclasses.replace(compared(preferred(8192, 0)), needs=Comparisons(64))

    def update(state, key):
        batch = drawn(source, key)
        return reward_model.learn(state, batch, key)[0], None

    teach = jax.jit(lambda state, keys: jax.lax.scan(update, state, keys)[0])
    judge = teach(
        reward_model.begin(new().model, reward_model.Config(1e-2, 0.0)), jax.random.split(KEY, 240)
    )
    finer = dataclasses.replace(judge, config=reward_model.Config(1e-3, 0.0))
    judge = teach(finer, jax.random.split(KEY, 80))
    asked = preferred(256, 1)
    held = compared(asked)
    chosen, rejected = (SCORE(judge, held.ids[:, side], held.length[:, side]) for side in (0, 1))
    expected = [worth(question, one) - worth(question, other) for question, one, other in asked]
    assert np.corrcoef(expected, chosen - rejected)[0, 1] > 0.95
    np.testing.assert_allclose(np.polyfit(expected, chosen - rejected, 1)[0], 1.0, atol=0.2)


def test_reward_model_refuses_an_environment_without_text():
    space = spaces.Discrete(37)
    with pytest.raises(Mistake, match="Name a text world"):
        reward_model.init(KEY, Spec(space, space), reward_model.Config())
    begun = reward_model.init(
        KEY, Spec(space, space, model=lambda key: new().model), reward_model.Config()
    )
    assert not begun.head.any()
    assert reward_model.needs(reward_model.Config(batch=7, learn=2)) == Comparisons(7, 2)
