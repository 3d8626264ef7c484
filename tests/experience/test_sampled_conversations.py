"""Conversations with a real model: batches and weights do not depend on how they were sampled."""

import dataclasses
import random

import equinox as eqx
import jax
import numpy as np
import pytest
from collected import collect

from sterling.experience.language.conversation_rollout import Conversation
from sterling.language.engine.agent_samplers import seed_samplers
from sterling.language.engine.slots import SlotShapes
from sterling.training.assembly import build_run
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import LanguageSettings
from sterling.types import Mistake


class Rescheduled(eqx.Module):
    """The agent ``inner``, whose asks come in another order and one by one, to other workers."""

    inner: object
    workers: int = eqx.field(static=True)
    quantum: int = eqx.field(static=True)

    def samplers(self, shapes):
        found = seed_samplers(self.inner, shapes)
        for each in found:
            each.workers, each.quantum = self.workers, self.quantum
        return [Shuffled(each) for each in found]


@dataclasses.dataclass
class Shuffled:
    """Passes asks on in a random order, one at a time."""

    inner: object

    def ask(self, asks):
        order = random.Random(0).sample(range(len(asks)), len(asks))
        found = {n: self.inner.ask([asks[n]])[0] for n in order}
        return [found[n] for n in range(len(asks))]

    def close(self):
        self.inner.close()


@pytest.fixture(scope="module")
def run():
    """A run of GRPO with answers in several turns, for two seeds."""
    speech = LanguageSettings(model="nano", slots=8)
    fields = {"prompts": 4, "group": 4, "limit": 4}
    settings = resolve_settings(
        "grpo", "try-again:copy-text", updates=9, seeds=[3, 5], speech=speech, fields=fields
    )
    return build_run.build_first_phase(settings)


def arrays(tree):
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(tree)]


def is_key(leaf):
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@pytest.mark.parametrize(("workers", "quantum"), [(1, 1), (3, 16)])
def test_batches_are_bit_equal_whatever_the_schedule(run, workers, quantum):
    keys = jax.random.split(jax.random.key(1), 2)
    _, usual = collect(run.source, run.agent, keys)
    _, other = collect(run.source, Rescheduled(run.agent, workers, quantum), keys)
    for one, two in zip(arrays(usual), arrays(other), strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(np.unique(usual.action)) > 5


def test_answers_of_a_group_are_sampled_apart(run):
    """Their prompts are equal: the scene's number tells them apart."""
    _, record = collect(run.source, run.agent, jax.random.split(jax.random.key(1), 2))
    group = np.asarray(record.extras["group"])
    said = np.where(record.mask, record.action, -1)
    for seed in range(2):
        for number in range(4):
            own = {row.tobytes() for row in said[seed][group[seed] == number]}
            assert len(own) > 1


def test_a_seed_is_sampled_alike_alone_and_beside_another(run):
    keys = jax.random.split(jax.random.key(1), 2)
    alone = dataclasses.replace(run.agent, state=jax.tree.map(lambda x: x[1:], run.agent.state))
    source = Conversation.create(run.source.host, 1)
    both, own = (
        collect(*each)[1] for each in ((run.source, run.agent, keys), (source, alone, keys[1:]))
    )
    for one, two in zip(arrays(both), arrays(own), strict=True):
        np.testing.assert_array_equal(one[1], two[0])


def test_agent_without_a_model_is_refused():
    agent = type("Agent", (), {"state": object()})()
    with pytest.raises(Mistake, match=r"object has no language model\. Keep the model"):
        seed_samplers(agent, SlotShapes(1, 8, 1, ()))
