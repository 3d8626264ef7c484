"""Named rewards of stored batches: a replay, or a pool, combines them by another rule."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scripted_agent import ScriptedAgent

import sterling
from sterling.experience.language.conversation_host import ConversationHost
from sterling.experience.language.conversation_rollout import Conversation
from sterling.experience.language.delayed_batches import DelayedSource
from sterling.experience.language.raw_rewards import MOST_NAMES, RawRewards
from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.experience.offline.batch_files import read_batch, write_batch
from sterling.experience.offline.recorded_batches import (
    BatchRecorder,
    RecordedBatches,
    SolvedGroups,
)
from sterling.language.engine.ask import Said
from sterling.language.named_rewards import RewardRule
from sterling.language.scene import BaseScene, Message
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.task import Verdict
from sterling.language.tokenizer import Tokenizer
from sterling.training.saving import tensor_file
from sterling.types import Generations, Mistake

TOKENIZER = Tokenizer.characters("abc ")
WORDS = [("ab", "b"), ("b", "cc"), ("", "c"), ("aaa", "")]  # of each scene's two turns
RULES = ["", "right + 0.25*format", "length - 2*right", "b"]


class Twice(BaseScene):
    """Two answers; the second's verdict is one number if it begins with c."""

    def __init__(self, fresh_context=False):
        super().__init__()
        self.fresh_context = fresh_context
        self.ask(0, Message("user", "a"))

    def hear(self, seat, text):
        if not self.verdicts[0]:
            if text == "aaa":
                raise ValueError("a verifier's error")
            parts = {"right": 0.5, "format": len(text)}
            self.judge(seat, parts | ({"b": 1.0} if "b" in text else {}))
            return self.ask(0, Message("user", "b"), fresh_context=self.fresh_context)
        self.judge(seat, -3.0 if text[:1] == "c" else {"length": -len(text), "right": 0.5})


class TwiceWorld:
    name, seats, turns, levels = "twice", 1, 2, range(1)

    def begin(self, seed, level):
        return Twice()


def voice(rule):
    return ChatSettings(TOKENIZER, limit=6, context=60, rule=RewardRule(rule))


def played(rule, words=WORDS, fresh_context=False):
    batch = SceneBatch([Twice(fresh_context) for _ in words], voice(rule))
    while waiting := batch.waiting():
        for line in waiting:
            ids = [*TOKENIZER.encode(words[line.scene][line.turns]), TOKENIZER.end]
            batch.add_answer(line, Said(ids, [-1.0] * len(ids), True))
    return GroupedLines(batch.finish(), [0, 0, 1, 1][: len(words)])


def record(rule, raw=None, words=WORDS, fresh_context=False):
    seeds = [played(rule, words, fresh_context) for _ in range(2)]
    return to_record(seeds, voice(rule), 9 if fresh_context else 5, raw)


def assert_same(found, expected):
    assert found.extras.keys() == expected.extras.keys()
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    ("written", "fresh"), [*((rule, {}) for rule in RULES), ("b", {"fresh_context": True})]
)
def test_replay_with_a_rule_has_the_rewards_that_the_rule_would_have_given(
    tmp_path, written, fresh
):
    path, raw = tmp_path / "000000.safetensors", RawRewards(2)
    write_batch(path, record(written, raw, **fresh), 0.0, raw)
    assert_same(read_batch(path), record(written, **fresh))  # as recorded
    for rule in RULES[1:]:
        replay = RecordedBatches.open_folder(tmp_path, 1, RewardRule(rule))
        found = replay.collect(None, jnp.zeros(2))[1].record
        assert_same(found, record(rule, **fresh))
    with pytest.raises(Mistake, match=r"rewards=.rihgt. names no reward .* mean right"):
        RecordedBatches.open_folder(tmp_path, 1, RewardRule("rihgt"))


def test_file_has_an_array_of_every_turn_for_each_name(tmp_path):
    from safetensors.numpy import load_file

    raw = RawRewards(2)
    write_batch(tmp_path / "a.safetensors", record("right", raw), 0.0, raw)
    found, none = load_file(tmp_path / "a.safetensors"), np.nan
    expected = {
        "right": [[0.5, 0.5], [0.5, none], [0.5, none], [none, none], [none, none]],
        "format": [[2.0, none], [1.0, none], [0.0, none], [none, none], [none, none]],
        "length": [[none, -1.0]] + [[none, none]] * 4,
        "b": [[1.0, none], [1.0, none]] + [[none, none]] * 3,
    }
    for name, rows in expected.items():
        np.testing.assert_array_equal(found[f"reward/{name}"], [rows, rows])
    assert {name for name in found if name.startswith("reward/")} == {
        f"reward/{name}" for name in expected
    }
    assert "extras.named" not in found


class Speaker(ScriptedAgent):
    """Answers whatever is asked with the next of its words."""

    def __init__(self, *words):
        self.words = list(words)

    def answer(self, ask, seed, row):
        return [*TOKENIZER.encode(self.words.pop(0)), TOKENIZER.end]


def test_stored_batches_that_waited_have_their_own_named_rewards(tmp_path):
    """Of three batches of one scene, each learned from one iteration later."""

    def begun(names=()):
        raw = RawRewards(2, list(names))
        host = ConversationHost(TwiceWorld(), voice("right"), Generations(1, 1), (0,), raw)
        blank = to_record([GroupedLines([], [])], host.voice, host.rows, raw)
        late = DelayedSource.create(Conversation.create(host, 1), 1, blank)
        return BatchRecorder(late, jnp.zeros((), jnp.int32), tmp_path)

    source, speaker = begun(), Speaker("", "c", "ab", "b", "b", "c")
    for number in range(3):
        source, _ = source.collect(speaker, jax.random.split(jax.random.key(number), 1))
    formats = [
        read_batch(path, RewardRule("format")).extras["score"][0, 0]
        for path in sorted(tmp_path.iterdir())
    ]
    assert formats == [-3.0, -3.0, 2.0]  # the first twice
    (host,) = source.worlds
    again = begun(["other"]).worlds[0]
    again.restore_counts(json.loads(json.dumps(host.counts_to_json())))
    assert again.raw.names == ["right", "format", "b", "length"]


def test_pool_combines_named_rewards_anew_and_stores_them_again(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    raw, other = RawRewards(2), RawRewards(2, ["length", "new"])
    words = [("ab", "b"), ("b", "b"), ("", "c"), ("", "c")]
    stored = record("", raw, words)
    write_batch(first / "000000.safetensors", stored, 0.0, raw)
    sizes = (1, 2, 1, stored.mask.shape[-1])
    pool = SolvedGroups.load_folder(first, *sizes, rule=RewardRule("length"), raw=other)
    assert pool.groups.extras["score"].tolist() == [[-1.0, -1.0]] * 2  # of two seeds
    write_batch(second / "000000.safetensors", stored, 0.0, other)
    drawn = pool.collect(None, jax.random.split(jax.random.key(0), 2))[1].record
    write_batch(second / "000000.safetensors", drawn, 0.0, other)
    found = read_batch(second / "000000.safetensors", RewardRule("right + format + b"))
    assert found.extras["score"].tolist() == [[4.0, 3.0]] * 2
    plain = SolvedGroups.load_folder(first, *sizes)
    assert plain.groups.extras["score"].tolist() == [[3.0, 2.0]] * 2
    assert "named" not in plain.groups.extras
    with pytest.raises(Mistake, match="pool has answers of 2 turns, and the environment 1"):
        SolvedGroups.load_folder(first, *sizes, raw=RawRewards(1))


def test_rule_for_batches_without_named_rewards_is_refused(tmp_path):
    raw, words = RawRewards(2), [("ab", "b")]
    write_batch(tmp_path / "000001.safetensors", record("", raw, words), 0.0, raw)
    write_batch(tmp_path / "000000.safetensors", record("", None, words))  # an older one
    said = re.escape(f"the batches of replay={tmp_path} hold no named rewards that rewards could")
    with pytest.raises(Mistake, match=said):
        RecordedBatches.open_folder(tmp_path, 1, RewardRule("right"))
    with pytest.raises(Mistake, match="the batches of pool="):
        SolvedGroups.load_folder(tmp_path, 1, 1, 1, 59, rule=RewardRule("right"))
    assert RecordedBatches.open_folder(tmp_path, 1, RewardRule("")).rewards == ""


def test_what_has_no_place_among_stored_rewards_is_refused():
    many = Verdict.of_rewards({f"part{n}": 1.0 for n in range(MOST_NAMES + 1)})
    raw = RawRewards(1)
    with pytest.raises(Mistake, match="dump stores at most 16 named rewards; a further one is"):
        raw.write(raw.blank(1)[0], 0, many)
    with pytest.raises(Mistake, match="a seat had 2 turns, and its world declares turns=1"):
        raw.write(raw.blank(1)[0], 1, Verdict(1.0, ""))


def test_checkpoint_whose_waiting_batches_have_no_named_rewards_is_read(tmp_path):
    now, old = {"waiting": record("", RawRewards(2))}, {"waiting": record("")}
    written = tensor_file.write(tmp_path / "a", old, tensor_file.describe_leaves(old))
    found = tensor_file.read(tmp_path / "a", written, now)["waiting"].extras["named"]
    assert found.shape == (2, 5, 2, MOST_NAMES)
    assert np.isnan(found).all()


PARTS = """
def sample(seed, level):
    return {"prompt": "abc"[seed % 3], "answer": ""}

def verify(task, response):
    return {"right": task.prompt in response, "short": 0.1 * (4 - len(response))}
"""


@pytest.mark.slow
def test_replay_with_other_weights_learns_what_a_run_with_them_learns(tmp_path):
    """The first batch is the same, so after one update the models are."""
    (tmp_path / "parts.py").write_text(PARTS)
    how = {"environment": str(tmp_path / "parts.py"), "model": "nano", "updates": 1, "seeds": 2}
    how |= {"prompts": 4, "group": 4, "limit": 3, "evaluate_episodes": 16, "log_every": 1}
    dump = str(tmp_path / "dump")
    first = sterling.train("grpo", rewards="right", dump=dump, **how)
    other = sterling.train("grpo", rewards="short - right", **how)
    replayed = sterling.train("grpo", rewards="short - right", replay=dump, **how)
    same = sterling.train("grpo", replay=dump, rewards="right", **how)

    def embedding(run):
        return np.asarray(run.agent.state.model.embedding)

    np.testing.assert_allclose(embedding(replayed), embedding(other), atol=1e-6)
    np.testing.assert_array_equal(embedding(same), embedding(first))
    assert np.abs(embedding(other) - embedding(first)).max() > 1e-5
