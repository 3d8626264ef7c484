"""Which questions come next: of a file each before any again, whichever world is around it."""

import itertools
import json
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scripted_agent import ScriptedAgent

import sterling
from sterling.evaluation.language import solve_rates
from sterling.experience.language.conversation_rollout import Conversation, ConversationHost
from sterling.experience.language.imitated_texts import make_demonstrations
from sterling.experience.offline.batch_files import read_batch
from sterling.language import question_order, worlds
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.held_out_questions import HeldOutSplit
from sterling.types import Generations

COUNT = 7
LETTERS = Tokenizer.characters()
USER = f"""
count, levels = {COUNT}, range(2)
def sample(seed, level): return {{"prompt": "abcdefg"[seed] * (level + 1), "answer": seed}}
def verify(task, response): return response == str(task.answer)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "few.jsonl"
    lines = [{"prompt": f"{x}+1=", "answer": str(x + 1)} for x in range(COUNT)]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return str(path)


def question(scene):
    return scene.turn.messages[-1].content


class Half(ScriptedAgent):
    """Says nothing but an end; the last of its seeds knows every other answer."""

    def __init__(self, seeds=1):
        self.seeds = seeds

    def answer(self, ask, seed, row):
        known = row % 2 and seed == self.seeds - 1
        asked = LETTERS.decode(ask.ids).rpartition("+1=")[0][-1:]
        return [*LETTERS.encode(str(int(asked) + 1) if known else ""), LETTERS.end]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 64, 1000])
def test_permuted_index_is_a_permutation(count):
    orders = [
        [question_order.permuted_index(at, count, key) for at in range(count)] for key in range(4)
    ]
    for order in orders:
        assert sorted(order) == list(range(count))
    if count >= 64:
        assert len(set(map(tuple, orders))) == 4
        moves = Counter((b - a) % count for a, b in itertools.pairwise(orders[0]))
        assert max(moves.values()) < count / 4  # and no mere shift or stride


@pytest.mark.parametrize("around", ["{}", "try-again:{}", "tools:{}"])
def test_jsonl_questions_are_all_asked_before_any_repeats(file, around):
    world, latest = worlds.find_world(around.format(file)), {}
    random = np.random.default_rng(0)
    asked = [question_order.next_questions(world, [0] * 3, random, latest) for _ in range(7)]
    said = [question(world.begin(*pair)) for pairs in asked for pair in pairs]
    assert [sorted(said[at : at + COUNT]) == sorted(set(said)) for at in (0, 7, 14)] == [True] * 3
    assert len({tuple(said[at : at + COUNT]) for at in (0, 7, 14)}) == 3


def test_question_order_is_random_for_endless_task_families():
    world = worlds.find_world("arithmetic")
    found = question_order.next_questions(world, [0, 1, 0], np.random.default_rng(3), {})
    drawn = np.random.default_rng(3).integers(2**31, size=3)
    assert found == list(zip(drawn.tolist(), [0, 1, 0], strict=True))


def test_finite_user_tasks_are_asked_without_repetition(tmp_path):
    (tmp_path / "few.py").write_text(USER)
    world = worlds.find_world(str(tmp_path / "few.py"))
    pairs = question_order.next_questions(world, [0, 1] * COUNT, np.random.default_rng(0))
    for level in range(2):
        said = [question(world.begin(*pair)) for pair in pairs if pair[1] == level]
        assert sorted(said) == [letter * (level + 1) for letter in "abcdefg"]
    world.family.close()


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_held_out_parts_of_a_file_are_asked_without_repetition(file, share):
    parts = [
        HeldOutSplit(worlds.find_world(file), share, judging=judging) for judging in (False, True)
    ]
    counts = [part.count(0) for part in parts]
    assert sum(counts) == COUNT
    assert min(counts) > 0
    whole = {question(worlds.find_world(file).begin(seed, 0)) for seed in range(COUNT)}
    for part, count in zip(parts, counts, strict=True):
        own = {question(part.begin(seed, 0)) for seed in range(5 * count, 6 * count)}
        assert len(own) == count
        whole -= own
    assert not whole


@pytest.mark.slow
def test_conversation_rollout_cycles_through_a_question_file(file):
    """The second of two seeds is asked what it would be asked alone: its groups tell at once, and
    when those of the first, which never do, are asked anew, it has no room."""
    host = ConversationHost(
        worlds.find_world(file), ChatSettings(LETTERS, 4, 64), Generations(3, 2, rounds=2), (0,)
    )
    said = []
    for own in (jnp.asarray([4, 9]), jnp.asarray([9])):
        source, batches = Conversation.create(host, own.size), []
        for turn in range(7):
            keys = jax.vmap(lambda n, at: jax.random.fold_in(jax.random.key(at), n), (0, None))
            source, draws = source.collect(Half(own.size), keys(own, turn))
            obs = np.asarray(draws.record.obs)[-1]
            batches += [LETTERS.decode(row)[: len("0+1=")] for row in obs.tolist()]
        said.append([batches[at] for at in range(0, len(batches), 2)])  # a group asks the same
    both, alone = said
    assert both == alone
    for at in (0, 7, 14):
        assert len(set(both[at : at + COUNT])) == COUNT


def test_demonstrations_cover_every_question_of_a_file(file):
    lines = make_demonstrations(worlds.find_world(file), (0,), ChatSettings(LETTERS, 4, 64), COUNT)
    assert len({tuple(line.ids) for line in lines}) == COUNT


@pytest.mark.slow
def test_solve_rates_cover_exactly_the_held_out_questions_of_a_file(file, tmp_path):
    sizes = {"updates": 2, "prompts": 3, "group": 2, "limit": 2, "model": "nano"}
    run = sterling.train("grpo", file, dump=str(tmp_path / "dump"), held_out=0.3, **sizes)
    found = solve_rates.judge(run, samples=2, problems=64)
    left = HeldOutSplit(worlds.find_world(file), 0.3, judging=True).count(0)
    assert found.problems == left
    assert (
        f"the environment has only {left} problems, so {left} were asked instead of 64"
        in found.notes
    )
    batches = [read_batch(each) for each in sorted((tmp_path / "dump").glob("*.safetensors"))]
    assert len(batches) == 2
