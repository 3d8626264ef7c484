"""Judges of whole batches: which answers they get together, what one bad answer costs."""

import json
from pathlib import Path

import jax
import pytest
from scripted_agent import ScriptedAgent

from sterling.checking import check_tasks
from sterling.language import away_services
from sterling.language.adapters.user_tasks import UserTasks
from sterling.language.engine.ask import Said
from sterling.language.engine.played_scenes import play_scenes
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.task_names import names_tasks
from sterling.language.tasks import find_family
from sterling.language.tasks.task_mixture import Mixture
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds import find_world
from sterling.language.worlds.held_out_questions import HeldOutSplit
from sterling.language.worlds.judged_questions import find_judged, judge_reference, probe_judge
from sterling.language.worlds.retry_with_feedback import TryAgain
from sterling.language.worlds.reward_model_world import ScoredWorld
from sterling.language.worlds.single_question import SingleTurn
from sterling.language.worlds.tool_use import ToolUse
from sterling.language.worlds.world_solutions import demonstrate
from sterling.types import Mistake

TOKENIZER = Tokenizer.characters()
VOICE = ChatSettings(TOKENIZER, limit=40, context=400, patience=0.5)

# Longer answers than others to the same question are better.
RANKED = """
import json, os, time
from pathlib import Path
import sterling
from sterling.language.task import Verdict

seconds = 0.4

def sample(seed, level):
    return {"prompt": "abcd"[seed % 4], "answer": ""}

async def verify_batch(tasks, responses):
    asked = Path(__file__).with_suffix(".asked")
    before = asked.read_text() if asked.exists() else ""
    pairs = [[task.prompt, response] for task, response in zip(tasks, responses)]
    asked.write_text(before + json.dumps(pairs) + chr(10))
    if "away" in responses and before.count("away") < 4:
        raise sterling.Away("restarting")
    if "slow" in responses:
        time.sleep(0.25 * len(tasks))
    if "raise" in responses:
        raise ValueError(f"odd among {len(tasks)}")
    if "die" in responses:
        os._exit(3)
    if "short" in responses:
        return [1.0]
    if "number" in responses:
        return 1.0
    others = [[len(r) for p, r in pairs if p == prompt] for prompt, _ in pairs]
    ranks = [float(sum(len(r) > n for n in own)) for own, r in zip(others, responses)]
    special = {"none": None, "nan": float("nan"), "named": {"right": 1, "short": 0.5}}
    special["verdict"] = Verdict(0.25, "partly")
    return [special.get(r, rank) for r, rank in zip(responses, ranks)]

def solve(task):
    return task.prompt * 2
"""
BOTH = RANKED + "\ndef verify(task, response):\n    return -1.0\n"


@pytest.fixture(name="ranked", scope="module")
def _ranked(tmp_path_factory):
    """Tasks that are judged in batches; their judge's process is kept from test to test."""
    path = tmp_path_factory.mktemp("ranked") / "ranked.py"
    path.write_text(RANKED)
    family = UserTasks(path)
    yield family
    family.close()


@pytest.fixture(name="family")
def _family(ranked):
    calls(ranked)
    return ranked


@pytest.fixture(name="both")
def _both(tmp_path):
    (tmp_path / "both.py").write_text(BOTH)
    family = UserTasks(tmp_path / "both.py")
    yield family
    family.close()


def calls(family):
    """The questions and answers of each call."""
    path = Path(family.name).with_suffix(".asked")
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def played(scenes, said):
    """The transcripts of scenes whose answers are given by scene, one for each turn."""
    batch = SceneBatch(scenes, VOICE)
    while waiting := batch.waiting():
        for line in waiting:
            ids = [*TOKENIZER.encode(said[line.scene][line.turns]), TOKENIZER.end]
            batch.add_answer(line, Said(ids, [0.0] * len(ids), True))
    return batch.finish()


def rewards(lines):
    return [line.failed or [verdict.reward for verdict in line.verdicts] for line in lines]


def answered(world, *answers, questions=2):
    """The rewards of the same answers to each of some questions."""
    scenes = [world.begin(seed, 0) for seed in range(questions) for _ in answers]
    return rewards(played(scenes, [[each] for each in answers] * questions))


def test_answers_to_a_question_are_compared_in_one_call_in_the_order_of_scenes(family):
    world = SingleTurn(family)
    assert answered(world, "xx", "x", "xxx") == [[1.0], [0.0], [2.0]] * 2
    assert calls(family) == [[[p, r] for p in "ab" for r in ("xx", "x", "xxx")]]
    assert answered(world, "none", "nan", "named", "verdict", "", questions=1) == [
        "verifier nonsense: verify_batch returned None",
        "verifier nonsense: verify_batch returned nan",
        *([1.5], [0.25], [0.0]),
    ]
    calls(family)
    scene = world.begin(0, 0)
    scene.say("by hand")  # a verdict is due at once
    assert ([each.reward for each in scene.verdicts[0]], calls(family)) == (
        [0.0],
        [[["a", "by hand"]]],
    )
    (line,) = demonstrate(world, [world.begin(2, 0)], VOICE)
    assert (line.reward, calls(family)) == (0.0, [[["c", "cc"]]])


def test_call_that_fails_is_asked_again_about_each_question_alone(family):
    world = SingleTurn(family)
    for word, said in (
        ("raise", "verifier raised: ValueError: odd among 2"),
        ("die", "verifier died: its process ended"),
    ):
        scenes = [world.begin(seed, 0) for seed in (0, 1, 0, 1, 2, 2)]
        lines = played(scenes, [["x"], ["x"], ["xx"], [word], ["xx"], ["x"]])
        assert rewards(lines) == [[0.0], said, [1.0], said, [1.0], [0.0]]
        assert [len(call) for call in calls(family)] == [6, 2, 2, 2]
    assert (
        answered(world, "raise", "x", questions=1)
        == ["verifier raised: ValueError: odd among 2"] * 2
    )
    assert len(calls(family)) == 1
    short = "verifier nonsense: verify_batch returned [1.0] for a list of 4 responses, which"
    assert answered(world, "short", "x") == [f"{short} has length 1"] * 4
    number = "verifier nonsense: verify_batch returned 1.0 for a list of 2 responses"
    assert answered(world, "number", "x", questions=1) == [number] * 2
    assert len(calls(family)) == 2


def test_batch_has_a_time_limit_for_each_answer_and_is_asked_again_while_away(family, monkeypatch):
    waits = []
    monkeypatch.setattr(away_services.time, "sleep", waits.append)
    world = SingleTurn(family)
    assert answered(world, "away", "x") == [[1.0], [0.0]] * 2
    assert (waits, [len(call) for call in calls(family)]) == ([1.0, 2.0], [4, 4, 4])
    assert answered(world, "slow", "x", "x", questions=1) == [[2.0], [0.0], [0.0]]  # 0.75 of 1.2 s


def test_scenes_of_other_worlds_wait_for_their_verdicts_together(family):
    tools = ToolUse(family, "calc")
    said = [["x"], ["<calc>1+1</calc>", "xx"], ["<calc>1</calc>", "<calc>2</calc>", "xxx"]]
    lines = played([tools.begin(0, 0) for _ in said], said)
    assert rewards(lines) == [[0.0], [0.0, 1.0], [0.0, 0.0, 2.0]]
    assert len(calls(family)) == 1
    again = TryAgain(family, attempts=2, keep=0.5)
    lines = played([again.begin(0, 0) for _ in "12"], [["x", "x"], ["xx"]])
    assert rewards(lines) == [[0.0, 0.0], [1.0]]
    assert [[r for _, r in call] for call in calls(family)] == [["x", "xx"], ["x"]]
    scored = ScoredWorld(SingleTurn(family), lambda asked: [0.0 for _ in asked])
    lines = played([scored.begin(0, 0) for _ in "12"], [["x"], ["xx"]])
    assert [[each.gold.reward for each in line.verdicts] for line in lines] == [[0.0], [1.0]]
    assert rewards(lines) == [[0.5], [0.5]]
    assert len(calls(family)) == 1


def test_member_of_a_mixture_is_asked_about_its_own_answers_alone(family, both):
    mixture = Mixture("mixed", [family, both, find_family("reverse-text")], [1.0, 1.0, 1.0])
    mixed = HeldOutSplit(SingleTurn(mixture), 0.5, judging=False)
    scenes = [mixed.begin(seed, 0) for seed in range(24)]
    names = [scene.task.family for scene in scenes]
    lines = played(scenes, [["x" * (number + 1)] for number in range(24)])
    assert all(line.verdicts for line in lines)
    for member in (family, both):
        own = [s.task.prompt for s, n in zip(scenes, names, strict=True) if n == member.name]
        assert [[prompt for prompt, _ in call] for call in calls(member)] == [own]
    assert names.count("reverse-text") > 0


def test_file_with_both_verifiers_uses_each_where_it_belongs(both, tmp_path):
    task = both.sample(0, 0)
    assert both.verify(task, "x").reward == -1.0
    assert answered(SingleTurn(both), "xx", "x", questions=1) == [[1.0], [0.0]]
    (tmp_path / "none.py").write_text("def sample(seed, level): return {}\n")
    with pytest.raises(Mistake, match=r"no verify; add def verify\(task, response\) or verify_ba"):
        UserTasks(tmp_path / "none.py")


class Speaker(ScriptedAgent):
    """Answers every prompt of each of two seeds with a word as long as the row's number."""

    seeds, stops = 2, False

    def answer(self, ask, seed, row):
        return TOKENIZER.encode("x") * (row + 1)


def test_judge_in_trl_form_gets_the_batch_of_each_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [{"question": "a", "truth": 1}, {"question": "b", "truth": 2, "hint": "h"}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    heard = []

    def score(prompts, completions, truth, hint="", **columns):
        heard.append((prompts, completions, truth, hint))
        best = max(map(len, completions))
        return [float(len(each) == best) for each in completions]

    world = find_judged(judge_reference(score), "q.jsonl", find_world)
    assert probe_judge(world, 0).reward == 1.0
    assert [len(call[0]) for call in heard] == [1, 2]
    heard.clear()
    questions = {world.begin(seed, 0).task.prompt: seed for seed in range(2)}
    seeds = [questions[each] for each in "aabb"]
    scenes = [[world.begin(seed, 0) for seed in own] for own in (seeds, seeds[:2])]
    keys = jax.random.split(jax.random.key(0), 2)
    lines = play_scenes(Speaker(), scenes, VOICE, keys)
    assert [rewards(own) for own in lines] == [[[0.0], [0.0], [0.0], [1.0]], [[0.0], [1.0]]]
    first, second = heard
    assert first == ([*"aabb"], ["x", "xx", "xxx", "xxxx"], [1, 1, 2, 2], [None, None, "h", "h"])
    assert (second[0], second[2], second[3]) == (["a", "a"], [1, 1], "")


def test_judge_in_trl_form_loses_only_answers_that_it_cannot_judge(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [{"question": "a"}, {"question": "b", "truth": 2}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def score(prompts, completions, truth):
        return [float(text) for text in completions]

    world = find_judged(judge_reference(score), "q.jsonl", find_world)
    found = {scene.task.prompt: scene.task for scene in (world.begin(0, 0), world.begin(1, 0))}
    tasks = [found[each] for each in "abb"]
    verdicts = world.family.verify_batch(tasks, ["1", "0.5", "1"])
    assert verdicts[0].reason.startswith("verifier raised: it takes truth; columns of the quest")
    assert [each.reward for each in verdicts[1:]] == [0.5, 1.0]
    with pytest.raises(Mistake, match=r"no reward \(it returned \[1\] for a list of 2 compl"):
        probe_judge(
            find_judged(
                judge_reference(lambda prompts, completions: [1]), "arithmetic", find_world
            ),
            0,
        )


def test_check_reviews_a_judge_of_batches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.py").write_text(
        "def sample(seed, level):\n    return {'prompt': f'{seed}+1=', 'answer': str(seed + 1)}\n\n"
        "def verify_batch(tasks, responses):\n"
        "    return [t.answer == r for t, r in zip(tasks, responses)]\n"
    )
    found = list(check_tasks("sums.py", quick=True))
    assert [one.said for one in found if one.failed] == []
    what = "several responses at once get a verdict each"
    assert what in [one.what for one in found]
    text = (
        (tmp_path / "sums.py")
        .read_text()
        .replace("zip(tasks, responses)]", "zip(tasks, responses)][:1]")
    )
    (tmp_path / "one.py").write_text(text)
    assert names_tasks("one.py")
    (wrong,) = [one for one in check_tasks("one.py", quick=True) if one.failed]
    assert wrong.what == what
    assert "5 of 5 responses get none: verifier nonsense: verify_batch returned" in wrong.said
