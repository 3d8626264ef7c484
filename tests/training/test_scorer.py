"""Reward models as judges: they read what they learned from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms.language import reward
from sterling.experience.comparisons import Compared, of_world
from sterling.language import worlds
from sterling.language.model import LanguageModel, form_of
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.scored import Scored, sigmoid
from sterling.training import scorer as trained
from sterling.types import Comparisons, Mistake

TOKENS = Tokenizer.characters()


@pytest.fixture(name="state", scope="module")
def _state():
    def make(key):
        return LanguageModel.create(key, TOKENS.vocabulary, 16, form_of(16, 2, 1), 1)

    begun = reward.begin(jax.jit(make)(jax.random.key(0)), reward.Config())
    head = jax.random.normal(jax.random.key(1), (16,))
    return reward.State(begun.model, head, begun.optimiser, begun.updates, begun.config)


def test_a_reward_model_reads_what_it_learned_from(state):
    pairs = of_world(worlds.find("reverse-text"), (0, 1), 5)
    source = Compared.create(pairs, Comparisons(1), TOKENS)
    learned = reward.score(state, source.ids[:, 0], source.length[:, 0])
    judge = trained.of(state, TOKENS)
    found = judge([(pair.messages, pair.chosen) for pair in pairs])
    np.testing.assert_allclose(found, learned, rtol=1e-4, atol=1e-5)
    alone = [judge([(pair.messages, pair.chosen)])[0] for pair in pairs]
    np.testing.assert_allclose(alone, found, rtol=1e-4, atol=1e-5)
    assert jnp.unique(learned).size == 5


def test_a_reward_model_judges_a_world(state):
    judge = trained.of(state, TOKENS)
    world = Scored(worlds.find("reverse-text"), judge)
    scene = world.begin(1, 0)
    messages = scene.turn.messages
    scene.say("abc")
    expected = sigmoid(judge([(messages, "abc")])[0])
    assert scene.verdicts[0][0].reward == expected
    assert scene.verdicts[0][0].gold.reward == 0.0


def test_runs_that_are_no_judge_are_refused(tmp_path):
    trained.announce("copy-text")  # nothing to load
    with pytest.raises(Mistake):
        trained.announce(f"scored:{tmp_path}:copy-text")
