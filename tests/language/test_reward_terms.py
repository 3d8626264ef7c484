"""Rewards whose terms are normalised one by one, from the rule to the learner."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms.language import token_credit
from sterling.equations.term_advantages import term_advantages
from sterling.experience.language.conversation_host import ConversationHost
from sterling.experience.language.conversation_rollout import Conversation, _is_informative
from sterling.experience.language.raw_rewards import RawRewards
from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.experience.offline.batch_files import read_batch, write_batch
from sterling.experience.offline.recorded_batches import RecordedBatches, SolvedGroups
from sterling.language.engine.transcript import Transcript
from sterling.language.named_rewards import RewardRule
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.task import Verdict
from sterling.language.tokenizer import Tokenizer
from sterling.training.api import settings_from_arguments as settings_of
from sterling.types import Generations, Mistake

TOKENIZER = Tokenizer.characters("ab ")
RULE = RewardRule("right + 0.5*format", each=True)
VOICE = ChatSettings(TOKENIZER, limit=3, context=6, rule=RULE)


@pytest.mark.parametrize(
    ("rule", "terms"),
    [
        ("right + 0.2*format", [(1.0, 1.0), (0.5, 0.2)]),
        ("right*3 - 0.1*length*2", [(1.0, 3.0), (-2.0, -0.2)]),
        ("-(right - format) - 2", [(1.0, -1.0), (0.5, 1.0), (1.0, -2.0)]),
        ("right*gate(format) + 2*(right + length)", [(1.0, 1.0), (-1.0, 2.0)]),
        ("right + 0.2*other", [(1.0, 1.0), (0.0, 0.0)]),  # it does not apply
        ("right + 0*format", [(1.0, 1.0), (0.5, 0.0)]),  # nor does what has no weight
    ],
)
def test_terms_of_a_rule_have_their_values_and_factors(rule, terms):
    named = {"right": 1.0, "format": 0.5, "length": -2.0}
    found = RewardRule(rule, each=True).terms([Verdict.of_rewards(named)])
    assert found == [tuple(map(pytest.approx, each)) for each in terms]
    if "gate" not in rule:  # they add up to the reward
        assert sum(x * w for x, w in found) == pytest.approx(RewardRule(rule)(named))


def test_terms_of_several_turns_are_added_up_and_unnamed_zeros_count_as_zeros():
    turns = [Verdict.of_rewards({"right": 0.5}), Verdict(0.0, "call")]
    assert RULE.terms([*turns, turns[0]]) == [(1.0, 1.0), (0.0, 0.0)]
    assert RULE.terms([Verdict(0.0, "timeout")]) == [(0.0, 1.0), (0.0, 0.5)]
    with pytest.raises(Mistake, match="needs named rewards, and a verdict is 2 without a name"):
        RULE.terms([*turns, Verdict(2.0, "")])


@pytest.mark.parametrize("text", ["", "right", "right*format", "2*(right + format)"])
def test_rule_that_is_no_sum_has_no_terms_to_normalise(text):
    with pytest.raises(Mistake, match="rewards_each normalises the terms of a sum"):
        RewardRule(text, each=True)


def line(number, **named):
    verdicts = (Verdict(RULE(named), "", rewards=named),) if named else ()
    made = Transcript(number, 0, verdicts=verdicts, failed="" if named else "late")
    made.hear([1, 1])
    made.say([1, 2], [-1.0, -1.0])
    return made


LINES = [
    line(0, right=10.0, format=0.0),
    line(1, right=0.0, format=1.0),
    line(2, right=10.0),
    line(3),
    line(4, right=0.0, format=1.0),
    line(5, right=0.0, format=1.0),
]


def record(raw=None, voice=VOICE):
    return to_record([GroupedLines(LINES, [0, 0, 0, 0, 1, 1])], voice, 6, raw)


def test_advantages_of_a_record_are_those_of_its_terms_and_of_the_length_penalty():
    batch = record()
    part = np.array([[(10, 1), (0, 0.5)], [(0, 1), (1, 0.5)], [(10, 1), (0, 0)], [(0, 0), (0, 0)]])
    np.testing.assert_array_equal(batch.extras["part"][0, :4], part)
    one = jax.tree.map(lambda x: x[0], batch)
    config = SimpleNamespace(baseline="mean", scale="group", turns=0, kl="none", kl_in="loss")
    config.overlong, config.limit, mask = 2, 3, batch.mask[0].at[5, 2].set(False)
    state = SimpleNamespace(config=config, critic=None, updates=jnp.asarray(0, jnp.int32))
    before = {"model": jnp.zeros(mask.shape)}
    found, _, metrics = token_credit.token_advantages(state, one, None, mask, before)
    penalty = jnp.asarray([-0.5, -0.5, -0.5, -0.5, -0.5, 0.0])
    terms = jnp.concatenate([one.extras["part"][..., 0], penalty[:, None]], 1)
    weights = jnp.concatenate([one.extras["part"][..., 1], jnp.ones((6, 1))], 1)
    group, valid = one.extras["group"], one.extras["valid"]
    expected = term_advantages(terms, weights, group, valid, ("mean", "group"))
    np.testing.assert_allclose(found, jnp.where(mask, expected[:, None], 0.0), atol=1e-6)
    assert expected[4] < expected[5]  # for its length alone
    assert metrics["data/flat"] == pytest.approx(2 / 5)  # the second group's


def test_group_whose_sum_is_equal_is_informative_if_a_term_differs():
    """10 + 0.5*0 and 9.5 + 0.5*1 are the same sum."""
    group = [line(0, right=10.0, format=0.0), line(1, right=9.5, format=1.0)]
    sums = RewardRule("right + 0.5*format")
    assert _is_informative(group, RULE)
    assert not _is_informative(group, sums)
    assert not _is_informative([line(0, right=1.0), line(1, right=1.0, format=3.0)], RULE)
    host = ConversationHost(None, VOICE, Generations(2, 2), (0,))
    source = Conversation(host, None, None, None, None, None)
    assert source._informative_groups([LINES[4:], group], 1, final=False) == [1]
    made = to_record([GroupedLines([*group, *LINES[4:]], [0, 0, 1, 1])], VOICE, 5)
    share = token_credit.uniform_group_share
    one = jax.tree.map(lambda x: x[0], made)
    assert share(one) == 0.5
    one.extras.pop("part")
    assert share(one) == 1.0


def test_replay_and_pool_normalise_the_terms_of_stored_rewards(tmp_path):
    raw, plain = RawRewards(1), ChatSettings(TOKENIZER, limit=3, context=6)
    write_batch(tmp_path / "000000.safetensors", record(raw, plain), 0.0, raw)
    replay = RecordedBatches.open_folder(tmp_path, 1, RULE)
    found = replay.collect(None, jnp.zeros(1))[1].record
    np.testing.assert_array_equal(found.extras["part"], record().extras["part"])
    assert "part" not in read_batch(tmp_path / "000000.safetensors").extras
    write_batch(tmp_path / "000000.safetensors", record(raw), 0.0, raw)  # of a run with terms
    for rule in (None, RewardRule("right")):
        assert "part" not in read_batch(tmp_path / "000000.safetensors", rule).extras
    sizes = {"count": 1, "group": 4, "seats": 1, "tokens": 9}
    pool = SolvedGroups.load_folder(tmp_path, rule=RULE, **sizes)
    np.testing.assert_array_equal(pool.groups.extras["part"][0], record().extras["part"][0, :4])


@pytest.mark.parametrize(
    ("algorithm", "more", "said"),
    [
        ("grpo", {"rewards": ""}, "rewards_each normalises the terms of a sum"),
        ("dr-grpo", {}, "dr-grpo has scale=none, which .* Set scale=group"),
        ("reinforce++", {}, "has scale=tokens"),
        ("grpo", {"turns": 3}, r"does not support turns=3\. Leave out one"),
        ("grpo", {"baseline": "critic", "kl": "k1", "kl_in": "reward"}, "critic, kl_in=reward"),
        ("sft", {}, "sft learns from texts. Leave out rewards_each"),
    ],
)
def test_terms_are_refused_where_no_group_compares_answers(algorithm, more, said):
    asked = {"algorithm": algorithm, "environment": "try-again:copy-text", "updates": 1}
    asked |= {"rewards": "right + format", "rewards_each": True}
    with pytest.raises(Mistake, match=said):
        settings_of({**asked, **more})
    assert settings_of({**asked, "algorithm": "dapo"}).speech.rewards_each
