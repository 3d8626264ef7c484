"""Batches of agent programs: what failed runs are worth, and how many conversations there were."""

import jax
import numpy as np
from collected import collect
from played_programs import PROGRAM, TOKENIZER, VOICE, Late, tasks_of
from scripted_agent import ScriptedAgent

from sterling.experience.language.conversation_rollout import Conversation, ConversationHost
from sterling.language.agent_programs.program_world import ProgramWorld
from sterling.types import Generations


class Alternating(ScriptedAgent):
    """Says "a", then "b", and so on."""

    def __init__(self):
        self.count = 0

    def answer(self, ask, seed, row):
        self.count += 1
        return [*TOKENIZER.encode("ba"[self.count % 2]), TOKENIZER.end]


def collected(folder, record, agent=None, contexts=2, **options):
    """The source after a batch of two runs on one task, and the batch."""
    world = ProgramWorld(tasks_of(folder, record), f"{PROGRAM}:run", contexts=contexts, **options)
    host = ConversationHost(world, VOICE, Generations(1, 2), (0,))
    keys = jax.random.split(jax.random.key(0), 1)
    return collect(Conversation.create(host, 1), agent or Alternating(), keys)


def scores_of(batch):
    first = batch.extras["rows_before"][0] == 0
    return batch.extras["score"][0][first & batch.extras["valid"][0]].tolist()


def test_failed_run_of_a_program_gets_the_lowest_reward_of_its_group(tmp_path):
    source, batch = collected(tmp_path, dict(do="fragile", prompt="1", reward=-1.0))
    assert scores_of(batch) == [-1.0, -1.0]
    assert (int(source.tally.invalid[0]), float(source.tally.returns[0])) == (0, -2.0)


def test_failed_run_of_a_program_gets_the_reward_that_is_given_for_it(tmp_path):
    record = dict(do="fragile", prompt="1", reward={"right": 1.0})
    _, batch = collected(tmp_path, record, failed_reward=2.5)
    assert sorted(scores_of(batch)) == [1.0, 2.5]
    right = batch.extras["right"][0][batch.extras["score"][0] == 2.5]
    assert right.tolist() == [False]  # though above 1


def test_metrics_say_how_many_conversations_a_run_has(tmp_path):
    source, batch = collected(tmp_path, dict(do="apart", prompt="1", answer="a"))
    assert np.asarray(batch.extras["valid"][0]).sum() == 4
    columns = source.host.answer_columns([0.5], np.array([True]))
    assert columns["data/contexts"] == [2.0]
    source, _ = collected(tmp_path, dict(do="once", prompt="1", answer="a"))
    assert "data/contexts" not in source.host.answer_columns([0.5], np.array([True]))


def test_answers_that_were_not_delivered_are_counted_and_not_learned(tmp_path):
    record = dict(do="hangs_up", prompt="1", answer="a")
    source, batch = collected(tmp_path, record, Late(), contexts=3)
    assert int(batch.mask.sum()) == 2 * 2 * 2  # of two runs two answers: a letter and the end
    columns = source.host.answer_columns([0.5], np.array([True]))
    assert columns["data/undelivered"] == [2.0]
