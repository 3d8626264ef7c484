"""Pairs of answers: what they are made of, how they lie in a batch, and what is refused."""

import copy
import functools
import json
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect

from sterling.experience.language.answer_pairs import (
    PairSource,
    PreferencePair,
    add_typos,
    make_pairs,
    read_pairs,
)
from sterling.language import worlds
from sterling.language.scene import Message
from sterling.language.tokenizer import Tokenizer
from sterling.types import Comparisons, Mistake

TOKENS = Tokenizer.characters()


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), 2)


@pytest.fixture(name="pairs", scope="module")
def _pairs():
    return make_pairs(worlds.find_world("reverse-text"), (0, 1), 12)


@pytest.fixture(name="source", scope="module")
def _source(pairs):
    return PairSource.create(pairs, Comparisons(4, 3), TOKENS)


@pytest.fixture(name="drawn", scope="module")
def _drawn(source):
    return collect(source, None, fixed_keys())[1]


def write(folder, *records):
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def text(record, row, mask):
    """What is written where ``mask`` holds."""
    return TOKENS.decode(np.asarray(record.action[row])[np.asarray(mask)].tolist())


def test_answer_pairs_reject_answers_that_the_text_environment_scores_lower(pairs):
    world = worlds.find_world("reverse-text")
    for pair in pairs:
        verb, word = pair.messages[-1].content.split()
        assert (verb, pair.chosen) == ("reverse", word[::-1])
        scores = []
        for answer in (pair.chosen, pair.rejected):
            task = world.family.sample(0, 0)
            task = type(task)(task.family, 0, 0, f"reverse {word}", word[::-1])
            scores.append(world.family.verify(task, answer).reward)
        assert scores == [1.0, 0.0]
    assert {len(pair.chosen) for pair in pairs[::2]} <= {3, 4}  # levels in turn
    assert {len(pair.chosen) for pair in pairs[1::2]} <= {5, 6}


def test_answer_pairs_are_deterministic_by_seed(pairs):
    world = worlds.find_world("reverse-text")
    assert make_pairs(world, (0, 1), 12) == pairs
    other = make_pairs(world, (0, 1), 12, seed=1)
    assert not {p.messages for p in other} & {p.messages for p in pairs}


def test_answer_pairs_ask_varied_questions():
    asked = [pair.messages for pair in make_pairs(worlds.find_world("reverse-text"), (2,), 40)]
    assert len(set(asked)) > 30


@pytest.mark.parametrize("name", ["countdown", "arithmetic", "try-again:sort-letters"])
def test_answer_pairs_are_made_for_other_text_environments(name):
    for pair in make_pairs(worlds.find_world(name), (0,), 8):
        assert pair.chosen != pair.rejected


@pytest.mark.parametrize(
    ("name", "said"),
    [("game:nim", "several seats"), ("gym:CartPole-v1", "cannot solve"), ("tools:arithmetic", "")],
)
def test_answer_pairs_refuse_environments_without_solutions(name, said):
    with pytest.raises(Mistake, match=f"{said}.*give a file of pairs"):
        make_pairs(worlds.find_world(name), (0,), 2)


def test_answer_pairs_refuse_a_multi_turn_environment():
    world = copy.copy(worlds.find_world("reverse-text"))

    class TwoTurns(type(world)):
        def begin(self, seed, level):
            scene = super().begin(seed, level)
            scene.say = lambda answer: None  # another turn of the same seat follows
            return scene

    world.__class__ = TwoTurns
    with pytest.raises(Mistake, match="solutions of reverse-text take several turns"):
        make_pairs(world, (0,), 2)


def test_answer_pair_typos_are_of_all_kinds_and_sizes():
    random = Random(0)
    found = [add_typos("abcdef", random) for _ in range(500)]
    assert {len(each) for each in found} >= {5, 6, 7}
    assert any(sorted(each) == list("abcdef") != list(each) for each in found)  # moved
    changed = [sum(a != b for a, b in zip(each, "abcdef", strict=False)) for each in found]
    assert {1, 2, 3} <= set(changed)
    assert {type(add_typos(each, random)) for each in ("", "7", "-")} == {str}


def test_answer_pair_row_is_the_conversation_masked_to_the_answer(pairs, drawn):
    assert drawn.mask.shape[:3] == (2, 3, 8)
    record = jax.tree.map(lambda x: x[1, 2], drawn)
    known = {pair.messages[-1].content: pair for pair in pairs}
    for row in range(8):
        length = int(np.flatnonzero(record.last[row])[0]) + 1
        line = [int(record.obs[row, 0]), *np.asarray(record.action[row, :length]).tolist()]
        asked = text(record, row, np.arange(record.mask.shape[1]) < length)
        answer = text(record, row, record.mask[row])
        pair = known[asked.removesuffix(answer)]
        assert answer == (pair.chosen if row < 4 else pair.rejected)
        opening = TOKENS.encode_opening(pair.messages)
        assert line == [*opening, *TOKENS.encode(answer), TOKENS.end]
        assert record.mask[row].sum() == len(answer) + 1  # and the token that ends it
        assert jnp.all(record.action[row, length:] == TOKENS.pad)


def test_answer_pair_record_holds_group_score_and_last_token_reward(drawn):
    record = jax.tree.map(lambda x: x[0, 0], drawn)
    np.testing.assert_array_equal(record.extras["group"], [0, 1, 2, 3, 0, 1, 2, 3])
    np.testing.assert_array_equal(record.extras["score"], [1, 1, 1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(record.reward.sum(1), record.extras["score"])
    np.testing.assert_array_equal(record.last.sum(1), 1)
    assert jnp.all(record.mask[record.last])
    assert jnp.all(record.reward[~record.last] == 0.0)
    np.testing.assert_array_equal(record.discount, ~record.last)
    assert jnp.all(record.extras["valid"])
    for name in ("log_prob", "turn"):
        assert record.extras[name].shape == record.mask.shape
        assert not record.extras[name].any()
    openings = record.obs[:, :3]
    np.testing.assert_array_equal(openings[:4], openings[4:])


def test_answer_pair_draws_depend_on_the_key_alone_compiled_or_not(source, drawn):
    assert source.traced
    first, compiled = drawn, jax.jit(lambda keys: collect(source, None, keys))
    _, again = compiled(fixed_keys())
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    assert jnp.any(first.obs[0] != first.obs[1])  # seeds
    assert jnp.any(first.obs[0, 0] != first.obs[0, 1])  # updates
    _, other = compiled(jax.random.split(jax.random.key(1), 2))
    assert jnp.any(first.obs != other.obs)


def test_answer_pairs_are_drawn_uniformly(pairs):
    source = PairSource.create(pairs, Comparisons(1200), TOKENS)
    _, drawn = jax.jit(lambda keys: collect(source, None, keys))(fixed_keys()[:1])
    found = np.unique(np.asarray(drawn.obs[0, 0, :1200]), axis=0, return_counts=True)[1]
    assert len(found) == 12
    assert np.all(np.abs(found - 100) < 45)


def test_answer_pair_source_is_rebuilt_from_a_checkpoint(source):
    stored = source.to_checkpoint()
    assert jax.tree.leaves(stored) == []
    restored = stored.from_checkpoint(source)
    np.testing.assert_array_equal(restored.ids, source.ids)
    assert source.with_feedback(None) is source
    assert source.reset_statistics().tally is None
    source.close()


def test_answer_pairs_are_read_from_a_jsonl_file(tmp_path):
    record = {"prompt": "1+1=", "chosen": "2", "rejected": "3", "note": 4}
    pairs = read_pairs(write(tmp_path, record, {**record, "system": "be short"}))
    assert pairs[0] == PreferencePair((Message("user", "1+1="),), "2", "3")
    assert pairs[1].messages[0] == Message("system", "be short")
    source = PairSource.create(pairs, Comparisons(2), TOKENS, 20)
    assert source.ids.shape == (2, 2, 20)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"prompt": "a", "chosen": "b", "rejected": "b"},
            "record 1: both answers are the same; remove",
        ),
        ({"prompt": "a", "chosen": "b"}, "line 1 has no 'rejected'"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "system": 1}, "'system' must be a text"),
    ],
)
def test_answer_pairs_refuse_malformed_files(tmp_path, record, said):
    with pytest.raises(Mistake, match=said):
        read_pairs(write(tmp_path, record))


def test_answer_pairs_refuse_too_long_texts_and_empty_lists(pairs):
    long = PreferencePair((Message("user", "hello"),), "x" * 40, "y")
    with pytest.raises(Mistake, match="pair 13 has 48 tokens, more than the context of 32"):
        PairSource.create([*pairs, long], Comparisons(2), TOKENS, 32)
    with pytest.raises(Mistake, match="no preference pairs"):
        PairSource.create([], Comparisons(2), TOKENS)
