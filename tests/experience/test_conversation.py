"""Conversations with a speaker whose words are written down beforehand."""

import dataclasses
import functools
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import batches as batches_of
from collected import collect, tell
from scripted_agent import ScriptedAgent

from sterling.experience.language.conversation_rollout import (
    Conversation,
    ConversationHost,
    _is_informative,
)
from sterling.experience.language.delayed_batches import DelayedSource
from sterling.experience.language.imitated_texts import (
    Demonstrations,
    make_demonstrations,
    read_demonstrations,
)
from sterling.experience.language.task_curriculum import Curriculum
from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.experience.offline.batch_files import read_batch, write_batch
from sterling.experience.offline.mixed_sources import Mix
from sterling.experience.offline.recorded_batches import (
    BatchRecorder,
    RecordedBatches,
    SolvedGroups,
)
from sterling.language import worlds
from sterling.language.engine.ask import Said
from sterling.language.engine.played_scenes import play_scenes
from sterling.language.engine.transcript import Transcript
from sterling.language.scene import BaseScene, Message, check_verdicts
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.task import Verdict
from sterling.language.tokenizer import Tokenizer
from sterling.training.config.option_checks import check_language_settings
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.types import Generations, Mistake, Record, Texts

TOKENIZER = Tokenizer.characters("abcdefghijklmnopqrstuvwxyz ,!")
VOICE = ChatSettings(TOKENIZER, limit=6, context=64, patience=0.2)


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), 1)


class Speaker(ScriptedAgent):
    """Says its words one after another, whoever asks; without an end token where it is told so."""

    def __init__(self, *words, seeds=1, stops=True):
        self.words, self.said, self.seeds, self.stops = words, 0, seeds, stops

    def answer(self, ask, seed, row):
        word = self.words[self.said % len(self.words)]
        self.said += 1
        return TOKENIZER.encode(word) + [TOKENIZER.end] * self.stops


class Odd(BaseScene):
    """A scene that does what its name says."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.ask(0, Message("user", kind))

    def hear(self, seat, text):
        if self.kind == "raises":
            raise RuntimeError("the verifier\nis broken")
        if self.kind == "hangs":
            time.sleep(600.0)
        if self.kind == "nonsense":
            self.verdicts[seat].append("seven")
            return
        if self.kind == "judges twice":
            self.judge(seat, 0.0, "heard")
        if self.kind == "judges nobody":
            self.verdicts = []
            return
        self.judge(seat, float(text == "a"), "heard")


class Duet(BaseScene):
    """Two seats take turns for ever; the first is told more than the second."""

    def __init__(self):
        super().__init__(2)
        self.ask(0, Message("user", "begin"))

    def hear(self, seat, text):
        self.judge(seat, 0.0, "heard")
        self.ask(1 - seat, Message("user", "go on" if seat else text))


class OddWorld:
    name, seats, turns, levels = "odd", 1, 1, range(3)

    def __init__(self, *kinds):
        self.kinds, self.begun = kinds, 0

    def begin(self, seed, level):
        kind = self.kinds[self.begun % len(self.kinds)]
        self.begun += 1
        if kind == "never begins":
            raise ValueError("no scene")
        return Odd(kind)


def source(world, needs, levels=(0,), curriculum="uniform"):
    return Conversation.create(ConversationHost(world, VOICE, needs, levels), 1, curriculum)


def test_conversation_rollout_transcript_holds_both_sides_token_by_token():
    world = worlds.find_world("try-again:copy-text")
    scene = world.begin(1, 0)
    asked = scene.turn.messages
    (line,) = play_scenes(Speaker("zz"), [[scene]], VOICE, fixed_keys())[0]
    own = [i for i, mine in zip(line.ids, line.own, strict=True) if mine]
    assert own == [*TOKENIZER.encode("zz"), TOKENIZER.end] * line.turns
    assert line.turns == len(line.verdicts) == 3
    opening = TOKENIZER.encode_opening(asked)
    assert line.ids[: len(opening)] == opening
    assert not any(line.own[: len(opening)])
    assert [lp for lp, mine in zip(line.log_prob, line.own, strict=True) if mine] == [-1.0] * 9
    assert sorted(set(line.turn)) == [0, 1, 2]
    assert "wrong" in TOKENIZER.decode(line.ids)


def test_conversation_rollout_closes_a_truncated_turn_before_the_next():
    scene = worlds.find_world("try-again:copy-text").begin(1, 0)
    (line,) = play_scenes(Speaker("zz", stops=False), [[scene]], VOICE, fixed_keys())[0]
    assert line.cut
    first = line.own.index(True) + 2
    assert (line.ids[first], line.own[first]) == (TOKENIZER.end, False)


OPENED = """
{%- for m in messages -%} {{ '<|' + m.role + '|>' + m.content }}
{%- if m.role == 'assistant' -%} {{ eos_token }} {%- endif -%} {%- endfor -%}
{%- if add_generation_prompt -%} {{ '<|assistant|><think>\n' }} {%- endif -%}
"""


def thinking(folder):
    """A tokenizer whose chat template begins the assistant's turn with a thought."""
    Tokenizer.characters().write(folder)
    (folder / "chat_template.jinja").write_text(OPENED)
    return Tokenizer.read(folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("maybe {}? let me", "no answer"), ("maybe 3\n</think>\n\n{}", "right"), ("{}", "no answer")],
)
def test_conversation_thought_opened_by_the_chat_template_is_no_answer(tmp_path, text, reason):
    tokenizer = thinking(tmp_path)
    assert tokenizer.starts_in_thought
    assert not TOKENIZER.starts_in_thought
    world = worlds.find_world("arithmetic")
    scene = world.begin(3, 1)
    talk = SceneBatch([scene], ChatSettings(tokenizer, 64, 200))
    (line,) = talk.waiting()
    ids = tokenizer.encode(text.format(f"\\boxed{{{scene.task.answer}}}"))
    talk.add_answer(line, Said(ids, [0.0] * len(ids), False))
    assert [each.reason for each in talk.finish()[0].verdicts] == [reason]
    assert line.ids[-len(ids) :] == ids


@pytest.mark.parametrize("name", ["arithmetic", "tools:arithmetic"])
def test_made_demonstrations_close_a_thought_opened_by_the_template(tmp_path, name):
    voice = ChatSettings(thinking(tmp_path), 64, 256)
    assert all(line.right for line in make_demonstrations(worlds.find_world(name), (0,), voice, 4))


def test_conversation_question_mentioning_think_tags_opens_no_thought():
    talk = SceneBatch([Odd("<think>")], ChatSettings(Tokenizer.characters(), 8, 64))
    (line,) = talk.waiting()
    talk.add_answer(line, Said(talk.settings.tokenizer.encode("a"), [0.0], False))
    assert line.reward == 0.0  # not told yet
    assert talk.finish()[0].reward == 1.0


def test_conversation_transcripts_end_at_the_context_length():
    short = ChatSettings(TOKENIZER, limit=6, context=40)
    scene = worlds.find_world("try-again:copy-text").begin(1, 0)
    (line,) = play_scenes(Speaker("zz"), [[scene]], short, fixed_keys())[0]
    assert line.cut
    assert len(line.ids) <= 40
    assert 0 < line.turns < 3


def test_conversation_rewards_stand_at_the_last_token_of_their_turn():
    world = OddWorld("plain")
    _, record = collect(source(world, Generations(2, 1)), Speaker("a", "bc"), fixed_keys())
    np.testing.assert_array_equal(record.extras["score"][0], [1.0, 0.0])
    np.testing.assert_array_equal(record.mask[0].sum(1), [2, 3])  # the letters, and the end
    for row in range(2):
        last = int(jnp.argmax(record.last[0, row]))
        assert record.mask[0, row, last]
        assert not record.mask[0, row, last + 1 :].any()
        assert record.action[0, row, last] == TOKENIZER.end
        assert record.reward[0, row, last] == record.reward[0, row].sum() == 1 - row
        assert record.discount[0, row, last] == 0.0
        said = np.asarray(record.action[0, row])[np.asarray(record.mask[0, row])]
        assert TOKENIZER.decode(said.tolist()) == ("a", "bc")[row]
    np.testing.assert_array_equal(record.obs[0, :, 1:], record.action[0, :, :-1])


def test_truncated_final_answer_has_discount_zero():
    """Nothing comes after it, so there is no value to go on with."""
    begun = source(OddWorld("plain"), Generations(1, 1))
    _, drawn = collect(begun, Speaker("a", stops=False), fixed_keys())
    assert bool(drawn.extras["cut"][0, 0])
    assert drawn.discount[0][drawn.last[0]].tolist() == [0.0]
    ended = collect(source(OddWorld("plain"), Generations(1, 1)), Speaker("a"), fixed_keys())[1]
    assert not ended.extras["cut"].any()


def test_conversation_longer_than_the_context_is_truncated_with_discount_one():
    short = ChatSettings(TOKENIZER, limit=6, context=40)
    scene = worlds.find_world("try-again:copy-text").begin(1, 0)
    lines = play_scenes(Speaker("zz"), [[scene]], short, fixed_keys())[0]
    made = to_record([GroupedLines.from_groups([lines])], short, 1)
    assert bool(made.extras["cut"][0, 0])
    assert made.discount[0][made.last[0]].tolist() == [1.0]


def test_full_context_of_one_seat_truncates_the_other_seats_too():
    narrow = ChatSettings(TOKENIZER, limit=6, context=64)
    scene = Duet()
    first, second = play_scenes(Speaker("a"), [[scene]], narrow, fixed_keys())[0]
    assert scene.turn is not None
    made = to_record([GroupedLines.from_groups([[first, second]])], narrow, 2)
    assert made.discount[0][made.last[0]].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "kind", ["raises", "hangs", "nonsense", "judges twice", "judges nobody", "never begins"]
)
def test_conversation_rollout_masks_the_row_of_a_failing_scene(kind):
    begun = time.monotonic()
    world = OddWorld("plain", kind, "plain", "plain")
    after, record = collect(source(world, Generations(2, 2)), Speaker("a"), fixed_keys())
    assert time.monotonic() - begun < 120.0  # of the 600 that it hangs for
    np.testing.assert_array_equal(record.extras["valid"][0], [True, False, True, True])
    assert not record.mask[0, 1].any()
    assert (int(after.tally.invalid[0]), int(after.tally.episodes[0])) == (1, 3)
    ((scene, why),) = after.host.failures
    assert scene == 1
    assert "\n" not in why
    assert why.split(":")[0] in ("RuntimeError", "TimeoutError", "ValueError")


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, bool])
def test_conversation_verdict_rewards_may_be_numbers_of_any_library(kind):
    check_verdicts([[SimpleNamespace(reward=kind(1))], [Verdict(0.5, "partly")]])
    with pytest.raises(ValueError, match="without a finite reward"):
        check_verdicts([[SimpleNamespace(reward=np.float32("nan"))]])


def test_conversation_rollout_stops_if_every_scene_fails():
    with pytest.raises(
        Mistake, match="every scene of odd failed, the first with: RuntimeError: the verifier is"
    ):
        collect(source(OddWorld("raises"), Generations(2, 2)), Speaker("a"), fixed_keys())


def test_conversation_groups_of_equal_rewards_are_sampled_again():
    words = ["a", "a", "b", "b", "a", "b", "a", "b"]  # two flat groups, then two that tell
    _, once = collect(source(OddWorld("plain"), Generations(2, 2)), Speaker(*words), fixed_keys())
    assert once.extras["score"][0].tolist() == [1.0, 1.0, 0.0, 0.0]
    after, twice = collect(
        source(OddWorld("plain"), Generations(2, 2, rounds=2)), Speaker(*words), fixed_keys()
    )
    assert twice.extras["score"][0].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert twice.extras["group"][0].tolist() == [0, 0, 1, 1]
    assert int(after.tally.episodes[0]) == 8  # what was asked and thrown away counts too


def test_conversation_resampling_rounds_ask_other_curriculum_levels():
    class Asked(OddWorld):
        levels = range(50)

        def begin(self, seed, level):
            asked.append(level)
            return super().begin(seed, level)

    asked: list[int] = []
    needs = Generations(8, 1, rounds=3)  # one answer tells nothing, so there is always a next
    collect(source(Asked("plain"), needs, tuple(range(50))), Speaker("a"), fixed_keys())
    rounds = np.reshape(asked, (3, 8))
    assert len(np.unique(rounds, axis=0)) == 3


def test_last_resampling_round_prefers_groups_with_unequal_rewards():
    words = ["a", "a", "b", "b", "a", "b", "b", "b", "a", "a", "b", "a"]
    needs = Generations(3, 2, rounds=2)
    _, drawn = collect(source(OddWorld("plain"), needs), Speaker(*words), fixed_keys())
    # the first round has one that tells, its third; the second round's third tells, and then
    # there is room for one that does not
    assert drawn.extras["score"][0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    _, once = collect(source(OddWorld("plain"), Generations(3, 2)), Speaker(*words), fixed_keys())
    assert once.extras["score"][0].tolist() == [1.0, 1.0, 0.0, 0.0, 1.0, 0.0]  # in their order


def test_game_group_won_by_the_same_seat_is_uninformative():
    lines = [
        Transcript(game, seat, verdicts=(Verdict(float(seat), ""),))
        for game in (0, 1)
        for seat in (0, 1)
    ]
    assert not _is_informative(lines)
    lines[0].verdicts = (Verdict(1.0, ""),)
    assert _is_informative(lines)  # though the other seat's are all the same


def test_game_seats_are_rows_in_separate_groups():
    voice = ChatSettings(TOKENIZER, limit=6, context=256)
    host = ConversationHost(worlds.find_world("game:nim"), voice, Generations(2, 3), (0,))
    begun = Conversation.create(host, 1)
    _, record = collect(begun, Speaker("!"), fixed_keys())  # an illegal move loses
    assert record.mask.shape[1] == 12
    valid = np.asarray(record.extras["valid"][0])
    groups = np.asarray(record.extras["group"][0])[valid]
    assert set(np.bincount(groups)[np.unique(groups)]) == {3}


def test_curriculum_probabilities_follow_the_recorded_answers():
    asked = jnp.array([[0, 0, 1, 1, -1]])
    worth, none = jnp.array([[0.0, 0.0, 1.0, 1.0, 9.0]]), jnp.zeros((1, 2))
    right, sound = np.array([[2.0, 1.0]]), np.array([[2.0, 2.0]])
    for kind in ("advantage", "learnable"):
        arms = Curriculum.create(kind, 1, 2)
        np.testing.assert_allclose(arms.probabilities()[0], [0.5, 0.5])
        for _ in range(20):
            arms = arms.record_answers(right, sound).heed(asked, worth, none)
        assert arms.count[0].tolist() == [40, 40]
        assert arms.probabilities()[0, 1] > 0.75
        chosen = arms.choose(fixed_keys(), 200)
        assert 0.6 < chosen.mean() <= 1.0
    even = Curriculum.create("uniform", 1, 2).record_answers(right, sound).heed(asked, worth, none)
    np.testing.assert_allclose(even.probabilities()[0], [0.5, 0.5])
    with pytest.raises(Mistake, match="did you mean uniform"):
        Curriculum.create("unifrom", 1, 2)


class Known(BaseScene):
    """Of level 0 "a" is right; of level 1 nothing is, of level 2 everything is worth a half."""

    def __init__(self, level):
        super().__init__()
        self.level = level
        self.ask(0, Message("user", "say"))

    def hear(self, seat, text):
        worth = [float(text == "a"), 0.0, 0.5][self.level]
        self.judge(seat, worth, "heard")


class Levels:
    name, seats, turns, levels = "levels", 1, 1, range(3)

    def begin(self, seed, level):
        if level == 2 and seed % 5 == 0:
            raise ValueError("no scene")
        return Known(level)


SAID = Generations(1, 1).feeds[0]


def begun_draws(source, record):
    """What a source, bare or one whose batches wait, lets be learned from."""
    return getattr(source, "source", source).draws_of(record)


def taught(kind, rounds, wrap=lambda source: source, count=40):
    """A source that was told by a learner whose advantages are a pair's distance."""
    begun = wrap(source(Levels(), Generations(6, 2, rounds=rounds), (0, 1, 2), kind))
    for number in range(count):
        keys = jax.random.split(jax.random.key(number), 1)
        begun, drawn = collect(begun, Speaker("a", "b", "b"), keys)
        score, valid = (drawn.extras[name][0].reshape(-1, 2) for name in ("score", "valid"))
        worth = jnp.abs(score[:, 0] - score[:, 1]) * valid.all(1).astype(jnp.float32)
        told = {"advantage": jnp.repeat(worth, 2)[None], "score": drawn.extras["score"]}
        begun = tell(begun, begun_draws(begun, drawn), drawn, told, SAID)
    return begun


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["learnable", "advantage"])
@pytest.mark.parametrize("rounds", [1, 4])
def test_curriculum_seldom_asks_a_level_that_is_never_solved(kind, rounds):
    """Also where groups that are all alike are asked anew, and never reach the learner."""
    arms = taught(kind, rounds).curriculum
    assert arms.value[0, 1] < 0.05
    assert arms.value[0, 2] < 0.05  # half of the reward is not right
    assert arms.probabilities()[0, 0] > 0.75


@pytest.mark.parametrize("kind", [pytest.param("learnable", marks=pytest.mark.slow), "advantage"])
def test_curriculum_learns_from_the_arms_of_delayed_batches(kind):
    """What a learner finds out late is told of the arms of the batch that it learned from."""
    begun = source(Levels(), Generations(6, 2), (0, 1, 2))
    shape = collect(begun, Speaker("a", "b", "b"), fixed_keys())[1]
    blank = jax.tree.map(jnp.zeros_like, shape)
    late = taught(kind, 1, lambda source: DelayedSource.create(source, 2, blank)).source.curriculum
    assert late.probabilities()[0, 0] > 0.75
    asked = source(Levels(), Generations(6, 2), (0, 1, 2), kind)
    drawn = [DelayedSource.create(asked, 1, blank)]
    for number in range(3):
        drawn.append(
            collect(drawn[-1], Speaker("a"), jax.random.split(jax.random.key(number), 1))[0]
        )
    np.testing.assert_array_equal(drawn[3].source.asked, drawn[2].waiting[-1][1][0])
    assert (drawn[3].source.asked != drawn[3].waiting[-1][1][0]).any()


def test_language_settings_refuse_curriculum_or_pool_with_replay():
    needs, said = Generations(2, 2), LanguageSettings(replay="somewhere")
    check_language_settings("grpo", said, needs)
    with pytest.raises(Mistake, match="Leave out pool, curriculum"):
        check_language_settings(
            "grpo", dataclasses.replace(said, pool="elsewhere", curriculum="learnable"), needs
        )


def test_language_settings_refuse_options_no_conversation_has():
    with pytest.raises(Mistake, match="Leave out texts, examples"):
        check_language_settings(
            "grpo", LanguageSettings(texts="some.jsonl", examples=3), Generations(2, 2)
        )
    with pytest.raises(Mistake, match="grpo has no envs"):
        resolve_settings("grpo", "arithmetic", updates=1, envs=3)
    with pytest.raises(Mistake, match="counted in updates\. Give updates=N"):
        resolve_settings("grpo", "arithmetic")
    with pytest.raises(Mistake, match="counted in updates\. Leave out steps"):
        resolve_settings("grpo", "arithmetic", updates=1, steps=9)


def test_resampling_for_another_seed_is_not_recorded_in_the_curriculum():
    """A seed that has its groups would not have been asked again, were it alone."""
    needs, words = Generations(1, 2, rounds=2), ["a", "b", "b", "b", "a", "b", "a", "a"]
    host = ConversationHost(OddWorld("plain"), VOICE, needs, (0,))
    many = Conversation.create(host, 2, "learnable")
    drawn, _ = collect(many, Speaker(*words, seeds=2), jax.random.split(jax.random.key(0), 2))
    assert drawn.curriculum.count[:, 0].tolist() == [2, 4]
    assert drawn.tally.episodes.tolist() == [2, 4]


def test_advantage_signals_reach_the_curriculum_arms_that_were_asked():
    needs = Generations(8, 1)
    begun = source(OddWorld("plain"), needs, levels=(0, 1, 2), curriculum="advantage")
    drawn, record = collect(begun, Speaker("a"), fixed_keys())
    worth = (drawn.asked == 2).astype(jnp.float32)
    found = {"advantage": worth, "score": record.extras["score"]}
    after = tell(drawn, begun_draws(drawn, record), record, found, SAID)
    assert after.curriculum.count[0].tolist() == np.bincount(drawn.asked[0], minlength=3).tolist()
    assert int(jnp.argmax(after.curriculum.value[0])) == 2


def batches(number, wrap):
    """What a wrapped source hands on, and what it drew."""
    drawn = wrap(source(OddWorld("plain"), Generations(2, 2)))
    found = []
    for word in ("a", "b", "aa", "bb")[:number]:
        drawn, record = collect(drawn, Speaker(word, "b"), fixed_keys())
        found.append(record)
    return found


def test_delayed_batches_are_passed_on_unchanged():
    plain = batches(4, lambda source: source)
    late = batches(
        4, lambda source: DelayedSource.create(source, 2, jax.tree.map(jnp.zeros_like, plain[0]))
    )
    for number, expected in enumerate([plain[0], plain[1], plain[0], plain[1]]):
        for one, other in zip(
            jax.tree.leaves(late[number]), jax.tree.leaves(expected), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_recorded_batches_are_read_as_written(tmp_path):
    none = jnp.zeros((), jnp.int32)
    written = batches(3, lambda source: BatchRecorder(source, none, tmp_path))
    again = RecordedBatches(none, tmp_path)
    for expected in written:
        again, found = collect(again, None, fixed_keys())
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(Mistake, match="has no batch 000003"):
        collect(again, None, fixed_keys())
    with pytest.raises(Mistake, match=r"folder .*nowhere does not exist"):
        collect(RecordedBatches(none, tmp_path / "nowhere"), None, fixed_keys())
    path = tmp_path / "000001.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(Mistake, match="is damaged"):
        read_batch(path)


def test_recorded_batches_hold_the_answers_of_a_pool_beside_fresh_ones(tmp_path):
    """As they are learned from, so that a replay learns from the same rows, and a pool of them has
    the groups of both."""
    none, stored, written = jnp.zeros((), jnp.int32), tmp_path / "stored", tmp_path / "written"
    batches(4, lambda source: BatchRecorder(source, none, stored))
    keys = jax.random.split(jax.random.key(0), 2)
    host = ConversationHost(OddWorld("plain"), VOICE, Generations(2, 2), (0,))
    pool = SolvedGroups.load_folder(stored, 3, 2, 1, VOICE.context - 1)
    mixed = Mix((Conversation.create(host, 2, "uniform"), pool))
    _, draws = BatchRecorder(mixed, none, written).collect(Speaker("a", seeds=2), keys)
    learned = batches_of(draws, keys, SAID)
    _, replayed = collect(RecordedBatches(none, written), None, keys)
    assert jax.tree.structure(replayed) == jax.tree.structure(learned)
    jax.tree.map(np.testing.assert_array_equal, replayed, learned)
    both = SolvedGroups.load_folder(written, 1, 2, 1, VOICE.context - 1)
    assert both.groups.mask.shape[0] == 2 * (2 + 3)


def test_recorded_batches_refuse_another_number_of_seeds(tmp_path):
    none = jnp.zeros((), jnp.int32)
    batches(1, lambda source: BatchRecorder(source, none, tmp_path))
    with pytest.raises(Mistake, match="was written with 1 seeds, and this run has 2; set seeds=1"):
        collect(RecordedBatches(none, tmp_path), None, jax.random.split(jax.random.key(0), 2))


def test_recorded_batches_without_cut_infer_it_from_the_last_discount(tmp_path):
    """Before ``cut`` was written a line whose scene was over ended in a discount of 0."""
    none = jnp.zeros((), jnp.int32)
    (batch,) = batches(1, lambda source: source)
    discount = jnp.ones_like(batch.discount).at[:, 1].set(0.0)
    extras = {name: x for name, x in batch.extras.items() if name != "cut"}
    old = dataclasses.replace(batch, discount=discount, extras=extras)
    write_batch(tmp_path / "000000.safetensors", old)
    _, found = collect(RecordedBatches(none, tmp_path), None, fixed_keys())
    assert batch.last.any(-1).all()
    assert found.extras["cut"][0].tolist() == [True, False, True, True]


def test_solved_answer_pool_keeps_right_answers_in_their_groups(tmp_path):
    none = jnp.zeros((), jnp.int32)
    tokens = batches(4, lambda source: BatchRecorder(source, none, tmp_path))[0].mask.shape[-1]
    pool = SolvedGroups.load_folder(tmp_path, 3, 2, 1, tokens)
    assert pool.groups.mask.shape[0] == 2  # only the first batch had right answers
    mixed = Mix((source(OddWorld("plain"), Generations(2, 2)), pool))
    after, draws = mixed.collect(Speaker("b"), fixed_keys())
    record = batches_of(draws, fixed_keys(), SAID)
    assert record.extras["score"][0].tolist() == [0, 0, 0, 0, 1, 0, 1, 0, 1, 0]
    assert record.extras["group"][0].tolist() == [0, 0, 1, 1, 4, 4, 5, 5, 6, 6]
    np.testing.assert_array_equal(record.extras["source"][0, :, 0], [0] * 4 + [1] * 6)
    found = {"advantage": jnp.ones((1, 10)), "score": jnp.ones((1, 10))}
    heard = tell(after, draws, record, found, SAID)
    assert jax.tree.structure(heard) == jax.tree.structure(after)
    with pytest.raises(Mistake, match=r"folder .*nowhere does not exist"):
        SolvedGroups.load_folder(tmp_path / "nowhere", 1, 2, 1, tokens)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Mistake, match="no group with a right answer"):
        SolvedGroups.load_folder(tmp_path / "empty", 1, 2, 1, tokens)
    with pytest.raises(Mistake, match="has groups of 2 answers, not 3; set group=2"):
        SolvedGroups.load_folder(tmp_path, 1, 3, 1, tokens)
    with pytest.raises(Mistake, match=f"have {tokens + 1} tokens; set context={tokens + 1}"):
        SolvedGroups.load_folder(tmp_path, 1, 2, 1, tokens - 1)
    longer = SolvedGroups.load_folder(tmp_path, 1, 2, 1, tokens + 5)
    assert longer.groups.mask.shape[-1] == tokens + 5
    np.testing.assert_array_equal(longer.groups.mask[..., :tokens], pool.groups.mask)


def test_solved_answer_pool_keeps_game_seats_in_separate_groups(tmp_path):
    """Two questions of two games each; a line of the second question's is missing."""
    number = jnp.array([[0, 1, 0, 1, 2, 3, 2, 7]])  # question * seats + seat, and what fills up
    lines = jnp.tile(jnp.arange(8)[None, :, None], (1, 1, 3))
    valid, numbers = number != 7, jnp.zeros((1, 8, 3))
    mask = jnp.tile(valid[..., None], (1, 1, 3))
    flat = {"score": jnp.ones((1, 8)), "group": number, "valid": valid}
    batch = Record(
        *(lines, lines, numbers, numbers, None, mask, mask),
        extras=flat | {"log_prob": numbers, "turn": lines},
    )
    write_batch(tmp_path / "000000.safetensors", batch)
    pool = SolvedGroups.load_folder(tmp_path, 2, 2, 2, 3)
    _, record = collect(pool, None, fixed_keys())
    assert record.obs[0, :, 0].tolist() == [0, 1, 2, 3] * 2
    assert record.extras["group"][0].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]


def test_demonstrations_are_the_solutions_of_the_text_environment(tmp_path):
    world = worlds.find_world("tools:arithmetic")
    voice = ChatSettings(Tokenizer.characters(), limit=24, context=128)
    texts = Demonstrations.from_transcripts(
        make_demonstrations(world, (0,), voice, 8), voice, Texts(4, 3)
    )
    assert (texts.texts.extras["score"] == 1.0).all()
    assert int(texts.texts.extras["turn"].max()) >= 1  # a call, and then the answer
    _, record = collect(texts, None, jax.random.split(jax.random.key(1), 2))
    assert record.mask.shape == (2, 3, 4, 127)
    path = tmp_path / "texts.jsonl"
    path.write_text('{"prompt": "ab", "response": "ba"}\n{"prompt": "c", "response": "c"}\n')
    lines = read_demonstrations(path, VOICE)
    assert (
        TOKENIZER.decode([i for i, own in zip(lines[0].ids, lines[0].own, strict=True) if own])
        == "ba"
    )
    long = ChatSettings(TOKENIZER, limit=6, context=4)
    with pytest.raises(Mistake, match="no text is left to imitate"):
        Demonstrations.from_transcripts(read_demonstrations(path, long), long, Texts(4))
    with pytest.raises(
        Mistake, match="has no solutions to imitate; give a file of texts: texts=FILE"
    ):
        make_demonstrations(OddWorld("plain"), (0,), voice, 1)


def test_verdict_refuses_a_non_finite_reward():
    with pytest.raises(Mistake):
        Verdict(float("nan"), "nonsense")
