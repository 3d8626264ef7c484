"""Reward models as judges: they read what they learned from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling.algorithms.language import reward_model
from sterling.experience.language.answer_pairs import PairSource, make_pairs
from sterling.language import worlds
from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.reward_model_world import ScoredWorld, sigmoid
from sterling.training.language import judge_models as trained
from sterling.training.language.evaluate_scenes import _prefers_solution
from sterling.training.language.text_world import asked_levels
from sterling.types import Comparisons, Mistake

WORLD = worlds.find_world("reverse-text")
TOKENS = Tokenizer.characters()


@pytest.fixture(name="state", scope="module")
def _state():
    def make(key):
        return LanguageModel.create(key, TOKENS.vocabulary, 16, qwen3_form(16, 2, 1), 1)

    begun = reward_model.begin(jax.jit(make)(jax.random.key(0)), reward_model.Config())
    head = jax.random.normal(jax.random.key(1), (16,))
    return reward_model.State(begun.model, head, begun.optimiser, begun.updates, begun.config)


def test_reward_model_scores_texts_as_in_its_training(state):
    pairs = make_pairs(worlds.find_world("reverse-text"), (0, 1), 5)
    source = PairSource.create(pairs, Comparisons(1), TOKENS)
    learned = reward_model.score(state, source.ids[:, 0], source.length[:, 0])
    judge = trained.make_scorer(state, TOKENS)
    found = judge([(pair.messages, pair.chosen) for pair in pairs])
    np.testing.assert_allclose(found, learned, rtol=1e-4, atol=1e-5)
    alone = [judge([(pair.messages, pair.chosen)])[0] for pair in pairs]
    np.testing.assert_allclose(alone, found, rtol=1e-4, atol=1e-5)
    assert jnp.unique(learned).size == 5


def test_reward_model_world_rewards_answers_by_score(state):
    judge = trained.make_scorer(state, TOKENS)
    world = ScoredWorld(worlds.find_world("reverse-text"), judge)
    scene = world.begin(1, 0)
    messages = scene.turn.messages
    scene.say("abc")
    expected = sigmoid(judge([(messages, "abc")])[0])
    assert scene.verdicts[0][0].reward == expected
    assert scene.verdicts[0][0].gold.reward == 0.0


def test_runs_that_are_no_reward_model_are_refused_as_scorer(tmp_path):
    trained.register_reward_model("copy-text")  # nothing to load
    with pytest.raises(Mistake):
        trained.register_reward_model(f"scored:{tmp_path}:copy-text")


@pytest.fixture(name="judges", scope="module")
def _judges(tmp_path_factory):
    """Two reward models after one update."""
    out = tmp_path_factory.mktemp("runs") / "judges"
    few = {"updates": 1, "batch": 4, "examples": 16, "evaluate_episodes": 0, "lr": 1e-2}
    sterling.train("reward", "reverse-text", model="nano", seeds=[3, 8], out=out, **few)
    return out


@pytest.mark.slow
def test_reward_model_scorer_loads_the_asked_seed(judges):
    run = sterling.load(judges)
    pairs = make_pairs(worlds.find_world("reverse-text"), (0, 1), 5)
    asked = [(pair.messages, pair.chosen) for pair in pairs]
    tokenizer = run.language_model(3)[1]
    own = [
        trained.make_scorer(jax.tree.map(lambda x, at=at: x[at], run.agent.state), tokenizer)(asked)
        for at in (0, 1)
    ]
    assert not np.allclose(*own, rtol=1e-4, atol=1e-7)
    for seed, expected in ((None, own[0]), (3, own[0]), (8, own[1])):
        np.testing.assert_array_equal(trained.load_scorer(judges, seed)(asked), expected)
    with pytest.raises(Mistake, match="has seeds 3, 8, not 5"):
        trained.load_scorer(judges, 5)


@pytest.mark.slow
def test_reward_model_pair_accuracy_compares_chosen_with_rejected(judges):
    run = sterling.load(judges)
    found = _prefers_solution(run.agent, run.settings, 12, fresh=False)
    assert found.shape == (2, 12)
    apart = make_pairs(
        worlds.find_world("reverse-text"), asked_levels(run.settings, WORLD), 12, seed=1
    )
    for row, seed in zip(found, (3, 8), strict=True):
        judge = trained.load_scorer(judges, seed)
        better, worse = (
            np.array(judge([(pair.messages, getattr(pair, which)) for pair in apart]))
            for which in ("chosen", "rejected")
        )
        np.testing.assert_array_equal(row, better > worse)
    assert 0.0 < found.mean() < 1.0  # neither all nor none
