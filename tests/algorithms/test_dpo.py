"""Learning from preferences: what each loss is, what it raises, and what leaves it as it is."""

import dataclasses
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.algorithms.language import dpo
from sterling.algorithms.language.preference_pairs import Pairs
from sterling.experience.language.answer_pairs import PairSource, PreferencePair
from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.language.models.sequence_packing import TokenRows
from sterling.language.scene import Message
from sterling.language.tokenizer import Tokenizer
from sterling.types import Comparisons, Mistake, Spec

LOSSES = (*dpo.WITH_REFERENCE, *dpo.WITHOUT_REFERENCE)
TOKENS = Tokenizer.characters("abcdefghijklmnopqrstuvwxyz ")
ASKED = [("copy ab", "ab", "ba"), ("copy xyz", "xyz", "xz"), ("go", "yes", "no"), ("a", "b", "cc")]
KEY = constant_key(0)
READ = jax.jit(lambda model, ids: model.log_prob(ids)[0])
LEARN = jax.jit(dpo.learn)


@jax.jit
def evaluated(reference, config, kl, model, pairs):
    return dpo.make_loss(reference, config, kl)(
        model, TokenRows.one_per_row(pairs.flat()[0]), pairs
    )


def model(number=0):
    make = jax.jit(lambda key: LanguageModel.create(key, 37, 16, qwen3_form(16, 2, 1), 1))
    return make(jax.random.key(number))


def compared(texts, batch, context=16):
    pairs = [PreferencePair((Message("user", asked),), *both) for asked, *both in texts]
    return PairSource.create(pairs, Comparisons(batch), TOKENS, context)


def record(texts=ASKED, context=16):
    """All of them in order, as one batch."""
    source = compared(texts, len(texts), context)
    return source._record(jnp.arange(len(texts), dtype=jnp.int32))


def config(loss, **fields):
    return dpo.Config(loss=loss, **{"beta": 2.0 if loss == "simpo" else 0.1, **fields})


def louder():
    """A model that is surer of what it says than a new one, so that gains are not tiny."""
    new = model(1)
    return LanguageModel(8.0 * new.embedding, new.stack, new.head)


def moved(loss, **fields):
    """A learner that is no longer at its reference."""
    state = dpo.begin(model(), config(loss, **fields))
    return dataclasses.replace(state, model=louder())


def answer_log_prob(model, asked, answer):
    """Log-probability of an answer, read one text at a time, without padding."""
    opening = TOKENS.encode_opening([Message("user", asked)])
    ids = [*opening, *TOKENS.encode(answer), TOKENS.end]
    return READ(model, jnp.asarray([ids], jnp.int32))[0, len(opening) - 1 :]


def lost(state, batch, kl=0.0):
    return evaluated(
        state.reference, state.config, jnp.asarray(kl), state.model, Pairs.from_batch(batch)
    )


@pytest.mark.slow
def test_dpo_gradient_equals_the_closed_form():
    state, batch = moved("dpo"), record(ASKED[1:2])
    asked, *both = ASKED[1]

    def total(model, answer):
        return jnp.sum(answer_log_prob(model, asked, answer))

    (c, up), (r, down) = (jax.value_and_grad(total)(state.model, text) for text in both)
    z = 0.1 * (c - total(state.reference, both[0]) - (r - total(state.reference, both[1])))
    expected = jax.tree.map(lambda a, b: -0.1 * jax.nn.sigmoid(-z) * (a - b), up, down)

    def own(model):
        return evaluated(
            state.reference, state.config, jnp.zeros(()), model, Pairs.from_batch(batch)
        )[0]

    value, found = jax.jit(jax.value_and_grad(own))(state.model)
    np.testing.assert_allclose(value, np.log1p(np.exp(-z)), rtol=1e-5)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_preference_loss_equals_its_formula_on_answers_scored_one_by_one(loss):
    state, batch = moved(loss), record(ASKED[:2])
    said = [[answer_log_prob(state.model, asked, x) for x in both] for asked, *both in ASKED[:2]]
    if loss in dpo.WITHOUT_REFERENCE:
        c, r = np.array([[float(x.mean()) for x in both] for both in said]).T
    else:
        old = [[answer_log_prob(model(), asked, x) for x in both] for asked, *both in ASKED[:2]]
        gains = [[float((x - y).sum()) for x, y in zip(*each, strict=True)]
                 for each in zip(said, old, strict=True)]  # fmt: skip
        c, r = np.array(gains).T

    def s(x):
        return 1.0 / (1.0 + np.exp(-x))

    def odds(x):
        return np.exp(x) / (1.0 - np.exp(x))

    formulas = {
        "dpo": lambda: -np.log(s(0.1 * (c - r))),
        "ipo": lambda: (c - r - 5.0) ** 2,
        "hinge": lambda: np.maximum(0.0, 1.0 - 0.1 * (c - r)),
        "kto": lambda: 0.5 * (1.0 - s(0.1 * (c - 0.3)) + 1.0 - s(0.1 * (0.3 - r))),
        "orpo": lambda: -c - 0.1 * np.log(s(np.log(odds(c) / odds(r)))),
        "simpo": lambda: -np.log(s(2.0 * (c - r) - 1.0)),
    }
    found, told = lost(state, batch, 0.3)
    np.testing.assert_allclose(found, formulas[loss]().mean(), rtol=1e-4)
    np.testing.assert_allclose(told["reward/margin"], state.config.beta * (c - r).mean(), rtol=1e-3)
    np.testing.assert_allclose(told["reward/accuracy"], (c > r).mean())
    np.testing.assert_allclose(
        told["policy/log_prob_chosen"], np.mean([x[0].sum() for x in said]), rtol=1e-4
    )


@pytest.mark.parametrize(
    "loss",
    [x if x == "dpo" else pytest.param(x, marks=pytest.mark.slow) for x in LOSSES],
)
def test_preference_learning_lowers_loss_and_raises_accuracy(loss):
    state, batch = dpo.begin(model(), config(loss, lr=3e-3, rise=1)), record()
    assert (state.reference is None) == (loss in dpo.WITHOUT_REFERENCE)
    before, first = lost(state, batch)

    def several(state):
        def update(state, _):
            state, signals = dpo.learn(state, batch, KEY)
            return state, signals.metrics

        return jax.lax.scan(update, state, None, 30)

    learned, metrics = jax.jit(several)(state)
    after, last = lost(learned, batch)
    assert after < before
    np.testing.assert_allclose(metrics["loss/preference"][0], before, rtol=1e-5)

    def lead(told):
        return told["policy/log_prob_chosen"] - told["policy/log_prob_rejected"]

    assert lead(last) > lead(first) + 0.5
    assert last["reward/accuracy"] == 1.0
    same = jax.tree.map(jnp.array_equal, learned.reference, state.reference)
    assert all(jax.tree.leaves(same))
    assert int(learned.updates) == 30


def test_dpo_policy_begins_at_the_reference_model():
    state, batch = dpo.begin(model(), config("dpo")), record()
    _, signals = LEARN(state, batch, KEY)
    np.testing.assert_allclose(signals.metrics["loss/preference"], np.log(2.0), rtol=1e-6)
    assert signals.metrics["reward/margin"] == 0.0
    assert signals.metrics["reward/accuracy"] == 0.0  # of two alike none is preferred
    assert signals.metrics["loss/grad_norm"] > 0.0


def tasteful(random):
    """Someone who prefers words of the letters a to m."""
    words = [
        "".join(random.choices(letters, k=4)) for letters in ("abcdefghijklm", "nopqrstuvwxyz")
    ]
    return (f"say {random.choice('abcdxyz')}", *words)


def drawn(source, key):
    """One batch of pairs."""
    (feed,) = source.needs.feeds
    _, begun = source.collect(None, key[None])
    which = begun.presample(feed, key[None])
    return begun.draw(feed, jnp.int32(0), None, which[0, 0])


@pytest.mark.slow
def test_dpo_preference_generalises_to_unseen_answers():
    random = Random(0)
    source, held = (compared([tasteful(random) for _ in range(n)], 32) for n in (256, 64))

    def several(state):
        def update(state, key):
            return dpo.learn(state, drawn(source, key), key)[0], None

        return jax.lax.scan(update, state, jax.random.split(KEY, 60))[0]

    state = dpo.begin(model(), config("dpo", lr=3e-3))
    unseen = drawn(held, KEY)
    value, told = lost(jax.jit(several)(state), unseen)
    assert told["reward/accuracy"] > 0.95
    assert value < 0.5  # log 2 at first


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dpo", "kto", "orpo"])
def test_dpo_gradient_accumulation_leaves_the_update_unchanged(loss):
    states = [moved(loss), moved(loss, piece=2)]
    whole, parts = (LEARN(state, record(), KEY) for state in states)
    for name, value in whole[1].metrics.items():
        np.testing.assert_allclose(parts[1].metrics[name], value, rtol=1e-4, atol=1e-6)
    leaves = zip(*(jax.tree.leaves(found[0].optimiser) for found in (whole, parts)), strict=True)
    for one, other in leaves:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_dpo_leaves_out_pairs_with_an_invalid_row():
    batch, few = record(), record(ASKED[:3])
    valid = batch.extras["valid"].at[7].set(False)  # the last pair's rejected answer
    batch = dataclasses.replace(batch, extras={**batch.extras, "valid": valid})
    np.testing.assert_allclose(lost(moved("dpo"), batch)[0], lost(moved("dpo"), few)[0], rtol=1e-6)
    nothing = dataclasses.replace(batch, mask=jnp.zeros_like(batch.mask))
    learned, signals = LEARN(moved("kto"), nothing, KEY)
    assert signals.metrics["loss/preference"] == 0.0
    assert jnp.all(learned.model.embedding == moved("kto").model.embedding)


def test_kto_mismatched_answers_are_those_to_the_next_prompt():
    found = Pairs.from_batch(record()).mismatched()
    for number, (asked, *_) in enumerate(ASKED):
        for side in (0, 1):
            answer = ASKED[(number + 1) % 4][1 + side]
            ids = [
                *TOKENS.encode_opening([Message("user", asked)]),
                *TOKENS.encode(answer),
                TOKENS.end,
            ]
            np.testing.assert_array_equal(found.ids[number, side, : len(ids)], ids)
            own = np.flatnonzero(found.mask[number, side]) + 1
            np.testing.assert_array_equal(own, range(len(ids) - len(answer) - 1, len(ids)))


@pytest.mark.slow
def test_kto_reference_point_is_the_mean_gain_of_mismatched_answers():
    state = moved("kto")
    gains = []
    for number, (asked, *_) in enumerate(ASKED):
        for answer in ASKED[(number + 1) % 4][1:]:
            pair = [answer_log_prob(each, asked, answer) for each in (state.model, state.reference)]
            gains.append(float((pair[0] - pair[1]).sum()))
    expected = max(0.0, np.mean(gains))
    flipped = dataclasses.replace(state, model=state.reference, reference=state.model)
    points = [
        float(dpo.kto_reference_point(each, Pairs.from_batch(record())))
        for each in (state, flipped)
    ]
    np.testing.assert_allclose(sorted(points), [0.0, abs(np.mean(gains))], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(points[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_kto_mismatched_answer_cut_off_by_row_length_keeps_what_fits():
    short = Pairs.from_batch(
        record([("a", "bcdefg", "x"), ("abcdefg", "y", "zz")], 12)
    ).mismatched()
    assert int(short.mask[1, 0].sum()) == 3  # of 7: the prompt's 9 tokens stay
    assert int(short.mask[0, 0].sum()) == 2


@pytest.mark.slow
def test_ipo_per_token_gain_is_the_mean_over_answer_tokens():
    summed, mean = moved("ipo"), moved("ipo", per_token=True)
    pairs = Pairs.from_batch(record())
    tokens = pairs.mask.sum(-1).astype(jnp.float32)
    ids, mask = pairs.flat()
    found = (
        dpo.answer_merits(summed.model, summed.reference, TokenRows.one_per_row(ids), mask)[0]
        / tokens
    )
    other = dpo.answer_merits(
        mean.model, mean.reference, TokenRows.one_per_row(ids), mask, per_token=True
    )[0]
    np.testing.assert_allclose(other, found, rtol=1e-5)
    assert lost(summed, record())[0] != lost(mean, record())[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"loss": "dpa"}, "did you mean dpo"),
        ({"loss": "ipo", "smoothing": 0.1}, "smoothing belongs to loss dpo"),
        ({"loss": "dpo", "per_token": True}, "per_token belongs to loss ipo"),
        ({"loss": "kto", "batch": 1}, "Set batch=2 or more"),
    ],
)
def test_dpo_refuses_contradictory_configs(fields, said):
    for check in (dpo.needs, lambda given: dpo.begin(model(), given)):
        with pytest.raises(Mistake, match=said):
            check(dpo.Config(**fields))


def test_dpo_refuses_an_environment_without_text():
    space = spaces.Discrete(37)
    with pytest.raises(Mistake, match="Name a text world"):
        dpo.init(KEY, Spec(space, space), dpo.Config())
    begun = dpo.init(KEY, Spec(space, space, model=lambda key: model()), dpo.Config())
    assert begun.model.vocabulary == 37
    assert dpo.needs(dpo.Config()) == Comparisons(32, 1)


def test_kto_reference_point_reads_at_most_one_piece_of_pairs_at_a_time(monkeypatch):
    seen, read = set(), LanguageModel.hidden

    def counted(self, ids, mask=None, **how):
        seen.add(ids.size)
        return read(self, ids, mask, **how)

    monkeypatch.setattr(LanguageModel, "hidden", counted)
    jax.eval_shape(dpo.kto_reference_point, moved("kto", piece=3), Pairs.from_batch(record()))
    assert seen == {3 * 2 * 16}  # tokens: those of three of the four pairs


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dpo", "kto", "simpo"])
def test_held_out_loss_and_accuracy_are_means_over_all_pairs(loss):
    state = moved(loss, piece=1, batch=2)
    found = jax.jit(dpo.held_out_metrics)(state, record())
    said = [[answer_log_prob(state.model, asked, x) for x in both] for asked, *both in ASKED]
    if loss == "simpo":
        c, r = np.array([[float(x.mean()) for x in both] for both in said]).T
    else:
        old = [[answer_log_prob(model(), asked, x) for x in both] for asked, *both in ASKED]
        gains = [[float((x - y).sum()) for x, y in zip(*each, strict=True)]
                 for each in zip(said, old, strict=True)]  # fmt: skip
        c, r = np.array(gains).T
    others = [(asked, *ASKED[(n + 1) % 4][1:]) for n, (asked, *_) in enumerate(ASKED)]
    mismatched = [
        float((answer_log_prob(state.model, asked, x) - answer_log_prob(model(), asked, x)).sum())
        for asked, *both in others
        for x in both
    ]
    kl = max(np.mean(mismatched), 0.0)

    def s(x):
        return 1.0 / (1.0 + np.exp(-x))

    formulas = {
        "dpo": lambda: -np.log(s(0.1 * (c - r))),
        "kto": lambda: 0.5 * (1.0 - s(0.1 * (c - kl)) + 1.0 - s(0.1 * (kl - r))),
        "simpo": lambda: -np.log(s(2.0 * (c - r) - 1.0)),
    }
    np.testing.assert_allclose(found["loss"], formulas[loss]().mean(), rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], (c > r).mean())


def test_kto_on_a_single_held_out_pair_is_refused():
    with pytest.raises(Mistake, match=r"kto pairs each prompt .* one pair is held out"):
        jax.eval_shape(dpo.held_out_metrics, moved("kto"), record(ASKED[:1]))
