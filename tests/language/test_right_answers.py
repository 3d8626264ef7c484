"""Which answers are right: the usual rule, and a condition on a named reward."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from sterling.algorithms.language.token_credit import learned_tokens
from sterling.evaluation.language.sampled_answers import Candidate, is_solved
from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.experience.offline.batch_files import read_batch, write_batch
from sterling.experience.offline.recorded_batches import SolvedGroups
from sterling.language.engine.ask import Said
from sterling.language.engine.transcript import Transcript
from sterling.language.named_rewards import RewardRule, RightRule
from sterling.language.scene import BaseScene, Message
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.task import Task, Verdict
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.retry_with_feedback import TryAgain
from sterling.language.worlds.reward_model_world import JudgedVerdict
from sterling.training.api import settings_from_arguments as settings_of
from sterling.training.config.settings import Settings
from sterling.training.language.text_world import make_voice, text_world
from sterling.training.saving import tensor_file
from sterling.types import Mistake

TOKENIZER = Tokenizer.characters("abc ,twrongyifh=0.5")
VOICE = ChatSettings(TOKENIZER, limit=6, context=200, right_if=RightRule("format>=0.5"))


def named(**rewards):
    return Verdict.of_rewards(rewards)


@pytest.mark.parametrize(
    ("condition", "verdicts", "right"),
    [
        ("format>=0.5", [named(right=1.0, format=0.0)], False),  # whatever "right" says
        ("format>=0.5", [named(right=0.0, format=0.5)], True),
        ("format >= 0.3", [named(format=0.1), Verdict(0.0, "call"), named(format=0.2)], True),
        ("format>0.3", [named(format=0.1), named(format=0.2)], False),  # up to rounding
        ("length<-1", [named(length=-2.0)], True),
        ("length<=-2e0", [named(length=-1.0)], False),
        ("length<1", [named(right=1.0)], False),  # it does not apply
        ("length<1", [], False),
        ("format>=0.5", [dataclasses.replace(named(format=0.4), right=True)], True),
        ("", [named(right=1.0)], True),
        ("", [dataclasses.replace(named(right=1.0), right=False)], False),
    ],
)
def test_condition_on_a_named_reward_says_which_answers_are_right(condition, verdicts, right):
    assert RightRule(condition)(verdicts) is right


@pytest.mark.parametrize("text", ["format", "format=1", ">=1", "a+b>1", "a>b", "a>=nan", "1>=a"])
def test_what_is_no_condition_is_refused_with_the_form(text):
    with pytest.raises(Mistake, match=r"Cannot read right_if=.*as in format>=0.5"):
        RightRule(text)


class Judged(BaseScene):
    """One answer, whose number of letters is its format."""

    def __init__(self):
        super().__init__()
        self.ask(0, Message("user", "a"))

    def hear(self, seat, text):
        self.judge(seat, {"right": 1.0 - len(text), "format": 0.5 * len(text)})


def played(scenes, words, voice=VOICE):
    batch, said = SceneBatch(scenes, voice), iter(words)
    while waiting := batch.waiting():
        for line in waiting:
            ids = [*TOKENIZER.encode(next(said)), TOKENIZER.end]
            batch.add_answer(line, Said(ids, [0.0] * len(ids), True))
    return batch.finish()


def test_right_answers_of_a_record_are_learned_from_and_replayed(tmp_path):
    """Of "" and "a" the first has the score 1, and the second is right."""
    lines = played([Judged() for _ in range(4)], ["", "", "", "a"])
    assert [(line.reward, line.right, is_solved(line)) for line in lines[2:]] == [
        (1.0, False, False),
        (0.5, True, True),
    ]
    record = to_record([GroupedLines(lines, [0, 0, 1, 1])], VOICE, 4)
    one = SimpleNamespace(extras={name: x[0] for name, x in record.extras.items()})
    config = SimpleNamespace(truncated=True, solved=True)
    learned = learned_tokens(config, one, record.mask[0])
    assert learned.any(1).tolist() == one.extras["right"].tolist() == [False, False, False, True]
    write_batch(tmp_path / "000000.safetensors", record)
    pool = SolvedGroups.load_folder(tmp_path, 1, 2, 1, record.mask.shape[-1])
    assert pool.groups.extras["score"].tolist() == [[1.0, 0.5]]  # of the second question alone
    one.extras.pop("right")
    assert learned_tokens(config, one, record.mask[0]).any(1).tolist() == [True] * 3 + [False]
    extras = {name: x for name, x in record.extras.items() if name != "right"}
    write_batch(tmp_path / "000000.safetensors", dataclasses.replace(record, extras=extras))
    old = read_batch(tmp_path / "000000.safetensors")
    assert old.extras["right"].tolist() == [[True] * 3 + [False]]


def test_condition_that_names_no_reward_of_the_answers_is_refused():
    voice = dataclasses.replace(VOICE, right_if=RightRule("fromat>=1"))
    with pytest.raises(Mistake, match=r"right_if='fromat>=1' names no reward .* mean format"):
        played([Judged()], ["a"], voice)


class Formats:
    """Tasks whose answers have a format: half of their letters."""

    name, levels = "formats", range(1)

    def sample(self, seed, level):
        return Task("formats", seed, level, "a", "")

    def verify(self, task, response):
        return named(right=float(response == "a"), format=0.5 * len(response) - 0.5)


@pytest.mark.parametrize(
    ("words", "rewards", "right"),
    [
        (["a", "bb"], [0.0, 0.25], True),  # right, but not in the format; then the other way
        (["bb"], [0.5], True),
        (["a", "a"], [0.0, 0.5], False),
    ],
)
def test_try_again_world_goes_by_the_condition_before_it_discounts(words, rewards, right):
    world = TryAgain(Formats(), attempts=2, keep=0.5)
    world.right_if = VOICE.right_if
    (line,) = played([world.begin(0, 0)], words)
    assert [each.reward for each in line.verdicts] == rewards
    assert line.right is right
    if len(words) == 2:
        assert "wrong, try again" in TOKENIZER.decode(line.ids)


def test_gold_verdict_decides_by_the_condition_in_a_scored_world():
    gold = named(right=0.0, format=1.0)
    line = Transcript(0, 0, verdicts=(JudgedVerdict(0.1, "wrong", gold),))
    assert not is_solved(line)
    assert is_solved(dataclasses.replace(line, right_if=VOICE.right_if))


def asked(environment="try-again:copy-text", **more):
    return settings_of({"algorithm": "grpo", "environment": environment, "updates": 1, **more})


def test_condition_is_stored_with_a_run_and_reaches_its_worlds():
    settings = Settings.from_json(asked(right_if="format>=0.5", model="nano").to_json())
    world = text_world(settings)
    assert world.right_if.text == "format>=0.5"
    assert make_voice(settings, world, TOKENIZER).right_if.text == "format>=0.5"
    other = Candidate("other", None, asked(model="nano"))
    found = other.with_questions("try-again:copy-text", "", settings.speech)
    assert found.settings.speech.right_if == "format>=0.5"  # both are judged alike
    with pytest.raises(Mistake, match="Cannot read right_if='format'"):
        asked(right_if="format")
    with pytest.raises(Mistake, match="Leave out right_if"):
        asked(right_if="format>=1", replay="folder")


def test_checkpoint_whose_waiting_batches_lack_right_answers_goes_by_the_score(tmp_path):
    lines = played([Judged(), Judged()], ["", "a"])
    now = {"waiting": to_record([GroupedLines(lines, [0, 0])], VOICE, 2)}
    extras = {name: x for name, x in now["waiting"].extras.items() if name != "right"}
    old = {"waiting": dataclasses.replace(now["waiting"], extras=extras)}
    written = tensor_file.write(tmp_path / "a", old, tensor_file.describe_leaves(old))
    found = tensor_file.read(tmp_path / "a", written, now)["waiting"].extras
    assert found["right"].tolist() == [[True, False]]
    np.testing.assert_array_equal(found["score"], extras["score"])


def test_batch_without_a_rules_name_is_refused_only_before_it_was_seen():
    for rule in (RewardRule("rare + 1"), RightRule("rare>=1")):
        with pytest.raises(Mistake, match="names no reward that answers get"):
            rule.check_names(["right"])
        rule.check_names(["rare", "right"])
        rule.check_names(["right"])
