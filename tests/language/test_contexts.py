"""Lines are as long as the scenes, and the texts to imitate, need them."""

import functools
import json
import time

import jax
import jax.numpy as jnp
import pytest
from scripted_agent import ScriptedAgent

from sterling.experience.language.imitated_texts import Demonstrations, read_demonstrations
from sterling.language import worlds
from sterling.language.engine.played_scenes import play_scenes
from sterling.language.models.turn_lengths import round_up_context
from sterling.language.scene import BaseScene, Message
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.reward_model_world import ScoredWorld
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language import build_language_run, context_length
from sterling.training.language.resolve_language_settings import with_context_length
from sterling.training.language.text_world import asked_levels
from sterling.types import Mistake, Texts

TOKENIZER = Tokenizer.characters()


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), 1)


class Poor(ScriptedAgent):
    """Says the first tokens of one text, as many as it may, and never ends."""

    stops = False

    def __init__(self, text):
        self.text = text

    def answer(self, ask, seed, row):
        return TOKENIZER.encode(self.text)[: ask.limit]


def room(name, limit, level=0):
    return context_length.world_context_length(
        worlds.find_world(name), (level,), TOKENIZER, limit, 10.0
    )


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("try-again:arithmetic", 3, "x" * 9),
        ("try-again:arithmetic", 6, "x" * 9),
        ("try-again:arithmetic", 6, "123456789"),
        ("tools:arithmetic", 8, "<calc>1+2"),
        ("tools:arithmetic", 24, "<calc>1+</calc>" + "x" * 9),
        ("tools:arithmetic", 36, "<calc></calc>" * 3),
        ("tools:copy-text,tools=calc", 40, '<tool_call>{"name":"x"}</tool_call>xxxxx'),
        ("gym:CartPole-v1,turns=9", 1, "01"),
    ],
)
def test_context_length_fits_every_turn_of_wrong_answers(name, limit, text):
    scene = worlds.find_world(name).begin(77, 0)
    voice = ChatSettings(TOKENIZER, limit, room(name, limit))
    (line,) = play_scenes(Poor(text), [[scene]], voice, fixed_keys())[0]
    assert scene.turn is None  # it was played to its end
    assert not line.full
    assert len(line.ids) <= voice.context


def test_context_length_allows_replies_twice_the_answer_limit():
    opening = len(
        TOKENIZER.encode_opening(worlds.find_world("arithmetic").begin(0, 0).turn.messages)
    )
    assert room("try-again:arithmetic", 64) >= opening + 3 * 64 + 2 * 2 * 64
    assert room("arithmetic", 64) < opening + 64 + 16  # of one turn: nothing is said between


def test_context_length_is_deterministic_and_calls_no_scorer():
    def judge(asked):
        judged.append(asked)
        return [0.0] * len(asked)

    judged = []
    plain = room("tools:arithmetic", 8)
    assert room("tools:arithmetic", 8) == plain
    around = ScoredWorld(worlds.find_world("tools:arithmetic"), judge)
    assert context_length.world_context_length(around, (0,), TOKENIZER, 8, 10.0) == plain
    assert len(judged) == 1  # when it was made


class Faulty(BaseScene):
    """A scene that answers once, and then raises or hangs."""

    def __init__(self, seconds, faults):
        super().__init__()
        self.seconds, self.faults = seconds, faults
        self.ask(0, Message("user", "hi"))

    def hear(self, seat, text):
        self.judge(seat, 0.0, "heard")
        if len(self.verdicts[seat]) == 2:
            self.faults.append(self)
            time.sleep(self.seconds)
            raise ValueError("out of order")
        self.ask(seat, Message("user", "a reply that is much longer than an answer"))


class FaultyWorld:
    name, seats, turns, levels = "faulty", 1, 3, range(1)

    def __init__(self, seconds):
        self.seconds, self.faults = seconds, []

    def begin(self, seed, level):
        return Faulty(self.seconds, self.faults)


@pytest.mark.parametrize("seconds", [0.0, 600.0])
def test_context_length_probe_tolerates_failing_scenes(seconds):
    world = FaultyWorld(seconds)
    found = context_length.world_context_length(world, (0,), TOKENIZER, 2, 1.0 if seconds else 60.0)
    # a world that hangs is not waited for again and again
    assert len(world.faults) == (1 if seconds else context_length.PROBED_SCENES)
    assert found == round_up_context(4 + 3 * 2 + 2 * 45)


class Unsolved(FaultyWorld):
    """A world whose ``solve`` fails."""

    def __init__(self, answer):
        super().__init__(0.0)
        self.answer = answer

    def solve(self, scene):
        return self.answer(scene)


def in_need(scene):
    raise Mistake("tasks.py has no solve")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda scene: scene.nothing, "it raises AttributeError: 'Faulty' object has no"),
        (lambda scene: 5, "it returns 5 in place of text"),
        (in_need, ""),
    ],
)
def test_context_length_probe_warns_once_of_a_failing_solve(answer, words, capsys):
    found = context_length.world_context_length(Unsolved(answer), (0,), TOKENIZER, 2, 10.0)
    assert found == round_up_context(4 + 3 * 2 + 2 * 45)  # as other answers are replied to
    said = capsys.readouterr().err
    assert said.count("\n") == bool(words)
    assert words in said


def test_context_length_probe_raises_tokenizer_errors(monkeypatch):
    def fail(tokenizer, ids):
        raise IndexError("of ours")

    monkeypatch.setattr(Tokenizer, "decode", fail)
    with pytest.raises(IndexError, match="of ours"):
        context_length.world_context_length(FaultyWorld(0.0), (0,), Tokenizer.characters(), 2, 10.0)


class Unposed(FaultyWorld):
    """Of level 1 no scene begins, of level 0 every other one."""

    levels = range(2)

    def begin(self, seed, level):
        if level == 1 or seed % 2 == 0:
            time.sleep(self.seconds)
            raise ValueError("nothing\nto ask")
        return Faulty(0.0, [])


def test_language_level_whose_scenes_never_begin_is_refused():
    context_length.check_scenes_begin(Unposed(0.0), (0,), 10.0)
    with pytest.raises(Mistake, match=r"no scene of level 1 begins \(ValueError: nothing to ask\)"):
        context_length.check_scenes_begin(Unposed(0.0), (0, 1), 10.0)
    begun = time.monotonic()
    with pytest.raises(Mistake, match=r"level 1 begins \(TimeoutError: took longer than 0\.2 s"):
        context_length.check_scenes_begin(Unposed(600.0), (1,), 0.2)
    assert time.monotonic() - begun < 60.0
    asked = resolve_settings(
        "grpo", lambda: Unposed(0.0), speech=LanguageSettings("nano", levels="1"), updates=1
    )
    with pytest.raises(Mistake, match="no scene of level 1 begins"):
        with_context_length(asked)


@pytest.mark.parametrize("levels", ["0-1-2", "-1", "0,", "x"])
def test_invalid_language_levels_option_is_refused(levels):
    asked = resolve_settings(
        "grpo", "arithmetic", speech=LanguageSettings("nano", levels=levels), updates=1
    )
    with pytest.raises(Mistake, match=r"Cannot parse levels=.*Write 2, 0-3 or 1,4"):
        asked_levels(asked, worlds.find_world("arithmetic"))


def test_reversed_language_levels_range_is_refused():
    asked = resolve_settings(
        "grpo", "arithmetic", speech=LanguageSettings("nano", levels="1,2-1"), updates=1
    )
    with pytest.raises(Mistake, match=r"levels=1,2-1: arithmetic has levels 0 to [0-9]+\."):
        asked_levels(asked, worlds.find_world("arithmetic"))


def solutions(name, limit, level=0, **asked):
    world = worlds.find_world(name)
    voice = ChatSettings(TOKENIZER, limit, asked.get("context") or room(name, limit, level))
    lines, how = context_length.texts_to_imitate(
        LanguageSettings(examples=64, **asked), world, (level,), voice
    )
    return lines, voice, how


@pytest.mark.parametrize(
    ("name", "limit", "level"),
    [("sql", 32, 0), ("json-format", 32, 3), ("instructions", 32, 0), ("reverse-text", 4, 4)],
)
def test_sft_context_grows_for_solutions_longer_than_the_answer_limit(name, limit, level, capsys):
    lines, voice, how = solutions(name, limit, level)
    assert not any(line.cut or line.failed for line in lines)
    assert how.context > voice.context
    texts = Demonstrations.from_transcripts(lines, how, Texts(4)).texts
    assert texts.mask.shape == (64, how.context - 1)
    assert (texts.extras["score"] == 1.0).all()
    assert capsys.readouterr().err == ""


def test_sft_context_is_unchanged_where_solutions_fit():
    _, voice, how = solutions("reverse-text", 32)
    assert how == voice


def test_sft_solutions_beyond_the_given_context_are_left_out_and_counted(capsys):
    whole, _, _ = solutions("sql", 32)
    lengths = sorted(len(line.ids) for line in whole)
    lines, _, how = solutions("sql", 32, context=lengths[9])
    long = sum(length > how.context for length in lengths)
    assert how.context == lengths[9]
    assert sum(line.cut for line in lines) == long > 0
    assert Demonstrations.from_transcripts(lines, how, Texts(4)).texts.mask.shape[0] == 64 - long
    said = capsys.readouterr().err
    assert said.startswith(f"{long} of 64 texts to imitate are left out: they have more than ")
    assert said.count("\n") == 1


RECORDS = (
    {"prompt": "ab", "response": "ba"},
    {"system": "be brief", "prompt": "c", "response": "see " * 60},
)


def write(tmp_path, *records):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_sft_context_fits_file_texts_with_their_system_message(tmp_path, capsys):
    lines, voice, how = solutions("reverse-text", 8, texts=write(tmp_path, *RECORDS))
    assert voice.context < how.context == round_up_context(3 + 8 + 1 + 240 + 1)
    asked = (Message("system", "be brief"), Message("user", "c"))
    opening = TOKENIZER.encode_opening(asked)
    assert lines[1].ids[: len(opening)] == opening
    assert lines[1].own == [False] * len(opening) + [True] * 241
    assert Demonstrations.from_transcripts(lines, how, Texts(4)).texts.mask.shape == (
        2,
        how.context - 1,
    )
    assert capsys.readouterr().err == ""
    _, _, short = solutions("reverse-text", 8, texts=write(tmp_path, RECORDS[0]))
    assert short.context == 8  # a file of short texts needs no room for the world's scenes


def test_sft_file_texts_beyond_the_given_context_are_left_out(tmp_path, capsys):
    path = write(tmp_path, *RECORDS)
    lines, _, how = solutions("reverse-text", 8, texts=path, context=40)
    assert [line.cut for line in lines] == [False, True]
    assert Demonstrations.from_transcripts(lines, how, Texts(4)).texts.mask.shape == (1, 39)
    assert "1 of 2 texts to imitate are left out" in capsys.readouterr().err
    lines, _, how = solutions("reverse-text", 8, texts=path, context=4)
    with pytest.raises(Mistake, match="no text is left to imitate: all are too long"):
        Demonstrations.from_transcripts(lines, how, Texts(4))


def test_sft_system_message_must_be_a_string(tmp_path):
    path = write(tmp_path, RECORDS[0], {**RECORDS[0], "system": 1})
    with pytest.raises(Mistake, match=r"texts\.jsonl, record 2: 'system' must be a text"):
        read_demonstrations(path, ChatSettings(TOKENIZER, 8, 64))


def test_sft_run_starts_with_solutions_longer_than_the_answer_limit():
    asked = LanguageSettings(model="nano", levels="4", examples=32)
    settings = resolve_settings("sft", "reverse-text", updates=1, fields={"limit": 4}, speech=asked)
    run = build_language_run.run_builder(settings)(jnp.zeros(1, jnp.int32), None, False)
    assert run.source.texts.mask.shape[0] == 32
    assert (run.source.texts.extras["score"] == 1.0).all()


def test_curriculum_with_one_level_is_refused():
    asked = LanguageSettings(model="nano", curriculum="learnable")
    settings = resolve_settings("grpo", "reverse-text", updates=1, speech=asked)
    begin = build_language_run.run_builder(settings)
    with pytest.raises(Mistake, match="curriculum needs several levels"):
        begin(jnp.zeros(1, jnp.int32), None, False)
