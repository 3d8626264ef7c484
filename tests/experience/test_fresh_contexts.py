"""Scenes that begin a seat's context anew: what the model sees, and the rows of the record."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from collected import collect
from scripted_agent import ScriptedAgent

import sterling
from sterling.experience.language.conversation_rollout import Conversation, ConversationHost
from sterling.experience.language.imitated_texts import Demonstrations, make_demonstrations
from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.experience.offline.batch_files import write_batch
from sterling.experience.offline.recorded_batches import RecordedBatches, SolvedGroups
from sterling.language import worlds
from sterling.language.engine.played_scenes import play_scenes
from sterling.language.models.turn_lengths import round_up_context
from sterling.language.named_rewards import RewardRule
from sterling.language.scene import BaseScene, Message, context_count
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.held_out_questions import HeldOutSplit
from sterling.training.language.context_length import world_context_length
from sterling.types import Generations, Mistake, Texts

NOTES = f"{Path(sterling.__file__).parents[1] / 'examples' / 'worlds' / 'notes.py'}:make"
TOKENIZER = Tokenizer.characters("0123456789,")
VOICE = ChatSettings(TOKENIZER, limit=2, context=16, temperature=0.5)


class Speaker(ScriptedAgent):
    """Answers with the larger digit of the prompt, and keeps the prompts; it has had 3 updates."""

    version = 3

    def __init__(self):
        self.prompts = []

    def answer(self, ask, seed, row):
        self.prompts.append(list(ask.ids))
        digit = max(each for each in TOKENIZER.decode(ask.ids) if each.isdigit())
        return [*TOKENIZER.encode(digit), TOKENIZER.end]


class Endless(BaseScene):
    """Begins the context anew in every turn."""

    def __init__(self):
        super().__init__()
        self.ask(0, Message("user", "1,2"))

    def hear(self, seat, text):
        self.judge(seat, 0.0, "note")
        if len(self.verdicts[0]) < 3:
            self.ask(0, Message("user", "3,4" * len(self.verdicts[0])), fresh_context=True)


class Unending(Endless):
    """Never comes to an end."""

    def hear(self, seat, text):
        self.judge(seat, 0.0, "note")
        self.ask(0, Message("user", "1,2"), fresh_context=True)


class EndlessWorld:
    name, seats, turns, levels = "endless", 1, 3, range(1)

    def begin(self, seed, level):
        return Endless()


def keys():
    return jax.random.split(jax.random.key(0), 1)


def talk(world, needs, voice=VOICE):
    return Conversation.create(ConversationHost(world, voice, needs, (0,)), 1)


def test_model_sees_its_note_and_the_next_piece_alone():
    world, speaker = worlds.find_world(NOTES), Speaker()
    scene = world.begin(1, 0)
    digits = scene.turn.messages[0].content[-1] + scene.left
    (line,) = play_scenes(speaker, [[scene]], VOICE, keys())[0]
    notes = ["0", max(digits[:1]), max(digits[:2])]
    asked = [(Message("user", f"{note},{each}"),) for note, each in zip(notes, digits, strict=True)]
    assert speaker.prompts == [TOKENIZER.encode_opening(each) for each in asked]
    said = [*TOKENIZER.encode(max(digits)), TOKENIZER.end]
    assert line.ids[line.contexts[2]] == speaker.prompts[2] + said
    assert [part.stop for part in line.contexts[:2]] == line.starts[1:]
    assert (line.reward, line.turns, line.right) == (1.0, 3, True)
    assert line.longest == len(speaker.prompts[0]) + 2


def test_each_context_is_a_row_with_the_answers_score_and_its_own_turns():
    world = worlds.find_world(NOTES)
    source, record = collect(talk(world, Generations(2, 2)), Speaker(), keys())
    assert record.mask.shape[1] == source.rows == 2 * 2 * 3
    extras = {name: np.asarray(x)[0] for name, x in record.extras.items()}
    assert extras["rows_before"].tolist() == [0, 1, 2] * 4
    assert extras["group"].tolist() == [0] * 6 + [1] * 6
    assert extras["valid"].all()
    np.testing.assert_array_equal(extras["score"], 1.0)
    own = np.asarray(record.mask)[0]
    for name, expected in {"version": 3, "temperature": 0.5}.items():
        np.testing.assert_array_equal(extras[name], np.where(own, expected, 0.0))
    for row in range(12):
        assert set(extras["turn"][row][own[row]].tolist()) == {row % 3}
        assert float(record.reward[0, row].sum()) == (row % 3 == 2)
        ends = np.flatnonzero(record.last[0, row]).tolist()
        assert ends == [np.flatnonzero(own[row])[-1]]
        assert float(record.discount[0, row, ends[0]]) == (row % 3 < 2)
    assert source.asked[0].tolist() == [0, -1, -1] * 4  # curricula count the answer once


def test_context_too_short_for_a_later_piece_cuts_the_answer_there():
    """The opening of 3 characters fits, 6 do not: the last row goes on, and the line is cut."""
    world = EndlessWorld()
    world.contexts = 3
    room = len(TOKENIZER.encode_opening((Message("user", "3,4"),))) + 2
    voice = ChatSettings(TOKENIZER, limit=2, context=room)
    (line,) = play_scenes(Speaker(), [[world.begin(0, 0)]], voice, keys())[0]
    assert (line.turns, line.cut, line.full, line.failed) == (2, True, True, "")
    record = to_record([GroupedLines([line], [0])], voice, 3)
    ends = [float(record.discount[0, row][record.last[0, row]][0]) for row in (0, 1)]
    assert ends == [1.0, 1.0]
    assert record.extras["valid"][0].tolist() == [True, True, False]


@pytest.mark.parametrize(("contexts", "most"), [(None, 1), (2, 2)])
def test_more_contexts_than_the_world_says_are_refused(contexts, most):
    world = EndlessWorld()
    if contexts:
        world.contexts = contexts
    with pytest.raises(Mistake, match=rf"endless began 3 contexts.* has {most}\. Set its `cont"):
        collect(talk(world, Generations(1, 1)), Speaker(), keys())


def test_context_length_is_that_of_one_context():
    world = worlds.find_world(NOTES)
    found = world_context_length(world, (0,), TOKENIZER, 2, 5.0)
    opening = len(TOKENIZER.encode_opening((Message("user", "1,2"),)))
    assert found == round_up_context(opening + 2)


def test_scene_that_begins_contexts_without_end_is_stopped():
    voice = dataclasses.replace(VOICE, contexts=4)
    (line,) = play_scenes(Speaker(), [[Unending()]], voice, keys())[0]
    assert (line.turns, line.failed) == (4, "it began more contexts than its world has")


def test_number_of_contexts_is_checked_and_passes_through_held_out_questions():
    world = worlds.find_world(NOTES)
    assert context_count(HeldOutSplit(world, 0.5, judging=False)) == 3
    world.contexts = "three"
    with pytest.raises(Mistake, match="notes: `contexts` must be a number above 0, not 'three'"):
        context_count(world)


def test_demonstrations_have_a_row_for_each_context():
    lines = make_demonstrations(worlds.find_world(NOTES), (0,), VOICE, 4)
    texts = Demonstrations.from_transcripts(lines, VOICE, Texts(4, 1)).texts
    assert texts.mask.shape[0] == 12
    assert texts.extras["rows_before"].tolist() == [0, 1, 2] * 4


def test_recorded_answers_of_another_temperature_are_told(tmp_path, capsys):
    _, record = collect(talk(worlds.find_world(NOTES), Generations(2, 2)), Speaker(), keys())
    write_batch(tmp_path / "000000.safetensors", record)
    RecordedBatches.open_folder(tmp_path, 1, RewardRule(), 0.5)
    assert not capsys.readouterr().err
    RecordedBatches.open_folder(tmp_path, 1, RewardRule())
    assert "sampled at temperature 0.5, and this run learns a policy at 1" in " ".join(
        capsys.readouterr().err.split()
    )
    with pytest.raises(Mistake, match="answers of several contexts, which cannot be learned"):
        SolvedGroups.load_folder(tmp_path, 1, 2, 1, VOICE.context - 1)


@pytest.mark.slow
def test_staleness_is_the_number_of_updates_since_the_answers_were_sampled(tmp_path):
    settings = {"model": "nano", "updates": 6, "prompts": 2, "group": 2, "limit": 2, "log_every": 1}
    run = tmp_path / "run"
    sterling.train("grpo", NOTES, **settings, lag=2, evaluate_episodes=0, out=run)
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    found = [row["data/staleness"][0] for row in rows if "data/staleness" in row]
    assert found == [0.0, 0.0, 2.0, 2.0, 2.0, 2.0]  # the first batches are learned at once, too
