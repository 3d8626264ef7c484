"""A language model as a judge: what it is asked, how its answer is read, what is refused."""

import json
import random
import shutil
import string

import pytest
from counting_judge import RUBRIC, save_counting_judge, score_of

from sterling.language.named_rewards import RewardRule
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds import find_world
from sterling.language.worlds.judge_rubric import DEFAULT_RUBRIC, Rubric, rubric_text
from sterling.language.worlds.judged_questions import find_judged, judge_reference, probe_judge
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language.judge_models import judge_of
from sterling.training.language.text_world import text_world
from sterling.types import Mistake

QUESTIONS = [{"prompt": "ab=", "answer": "cd"}, {"prompt": "xy="}]


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    """The folder of a judge that counts letters."""
    return save_counting_judge(tmp_path_factory.mktemp("models") / "counting")


@pytest.fixture(name="questions")
def _questions(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in QUESTIONS))
    return str(path)


def judge(folder, rubric=RUBRIC, judge_limit=8):
    """Return the judge of a folder."""
    options = {"rubric": rubric, "judge_limit": judge_limit, "slots": 4}
    return judge_of(LanguageSettings(judge=str(folder), **options)).__self__


def judged(folder, environment, rubric=RUBRIC, **options):
    return find_judged(judge(folder, rubric, **options).judge_questions, environment, find_world)


def expected(prompt, response, high=9.0):
    return score_of(f"{prompt}{response}0 to {high:g}") / high


def texts(count):
    draw = random.Random(0)
    parts = [string.ascii_lowercase[:13], string.ascii_letters, string.digits]
    return ["".join(draw.choices(parts[n % 3], k=draw.randrange(20))) for n in range(count)]


def test_generative_judge_gives_the_scores_that_its_weights_say(folder):
    said = [*texts(12), "z" * 280 + "m" * 80, "z" * 280 + "m" * 80]  # some are longer than others
    asked = [{"prompt": "ab", "response": each} for each in said]
    own = judge(folder)
    found = own.scores(asked)
    assert found == [expected("ab", each) for each in said]
    assert len({*found}) > 4
    assert [own.scores([each])[0] for each in asked[:3]] == found[:3]


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Score: 7", 0.7),
        ("**Score:** 7/10", 0.7),
        ("It lacks a unit.\nscore = 2.5.", 0.25),
        ("Score: 3, no:\nScore: 9", 0.9),
        (" 10 ", 1.0),
        ("7/10.", 0.7),
        ("<think>Score: 1</think>Score: 4", 0.4),
    ],
)
def test_rubric_reads_the_score_of_an_answer(answer, score):
    assert Rubric(DEFAULT_RUBRIC).read_score(answer) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "without"),
        ("good", "it answered 'good', without"),
        ("I would say 7", "without"),
        ("underscore: 7", "without"),
        ("<think>Score: 1", "without"),
        ("Score: 11", "its score 11 is not from 0 to 10"),
        ("Score: -1", "not from 0 to 10"),
    ],
)
def test_rubric_says_why_an_answer_has_no_score(answer, said):
    with pytest.raises(ValueError, match=said):
        Rubric(DEFAULT_RUBRIC).read_score(answer)


def test_rubric_scales_scores_and_fills_each_field_once():
    rubric = Rubric('{"a": 1} {prompt}|{response}|{answer}|{score:-1-1.5} {1}')
    filled = rubric.fill({"prompt": "{answer}", "response": "{score:0-9}", "answer": [1]})
    assert filled == '{"a": 1} {answer}|{score:0-9}|[1]|-1 to 1.5 {1}'
    assert [rubric.read_score(f"Score: {each}") for each in (-1, 0.25, 1.5)] == [0.0, 0.5, 1.0]
    with pytest.raises(ValueError, match=r"rubric has \{answer\}; the question has prompt, resp"):
        rubric.fill({"prompt": "", "response": ""})


@pytest.mark.parametrize(
    ("rubric", "said"),
    [
        ("{prompt} {score:0-9}", "has no {response}; write {response} where"),
        ("{prompt} {response}", "has no range of scores; write"),
        ("{response}{score:0-9}{score:0-5}", "several ranges"),
        ("{response}{score:5-5}", "scores 5 to 5 are no range"),
        ("{first}{score:0-9}", "has no {second}; write"),
        ("{response}{first}{score:0-9}", "has no {second}; write"),
        ("{first}{second}{score:0-9}", "has a range of scores beside {first}"),
        ("{first}{second}{response}", "has {response} beside {first}"),
        ("no such file.txt", "neither a file that can be read nor a rubric"),
        (3, "must be a text or a file; got 3"),
    ],
)
def test_invalid_rubrics_are_refused(rubric, said):
    with pytest.raises(Mistake, match=said):
        rubric_text(rubric)


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Better: first", 1.0),
        ("The first is better: it is short. **Better:** the second.", 0.0),
        ("better = SAME", 0.5),
        ("Better: first, no:\nBetter: second", 0.0),
        ("1", 1.0),
        ("2.", 0.0),
    ],
)
def test_rubric_reads_which_answer_is_better(answer, share):
    assert Rubric("{first}{second}").read_score(answer) == share


@pytest.mark.parametrize(
    "answer", ["", "first or second", "Better: 12", "Score: 1", "It is better"]
)
def test_rubric_says_why_a_comparison_decides_nothing(answer):
    with pytest.raises(ValueError, match='without "Better: first"'):
        Rubric("{first}{second}").read_score(answer)


COMPARING = "{first}{first}{second}zzzzzzzzzzzzzzzzzzzz"  # the judge writes 1 (first) or 2, or else


def test_judge_that_compares_rewards_the_share_of_wins_in_a_group(folder, questions):
    family = judged(folder, questions, COMPARING).family
    one, other = (family.sample(seed, 0) for seed in range(2))
    if one.answer is None:
        one, other = other, one
    said = {one: ["z", "a", "aa", "ab", "aa", "mmmmmmmmmm"], other: ["aa", "zz", "m" * 20]}
    asked = [(task, text) for n in range(6) for task in said for text in said[task][n : n + 1]]
    found = family.verify_batch(*map(list, zip(*asked, strict=True)))
    kinds = set()
    for (task, text), verdict in zip(asked, found, strict=True):
        others = list(said[task])
        others.remove(text)
        shares = []
        for each in others:
            orders = [(text, each), (each, text)]
            wrote = [score_of(f"{first * 2}{second}{'z' * 20}") for first, second in orders]
            shares += [{1: 1.0, 2: 0.0}[wrote[0]]] if wrote[0] in (1, 2) else []
            shares += [{1: 0.0, 2: 1.0}[wrote[1]]] if wrote[1] in (1, 2) else []
        kinds.add("lost" if verdict.verifier_failed else verdict.rewards["judge"])
        assert verdict.verifier_failed == (not shares)
        if shares:
            assert verdict.rewards["judge"] == pytest.approx(sum(shares) / len(shares))
            assert ("right" in verdict.rewards) == (task is one)
    assert len(kinds) > 3
    assert "lost" in kinds
    (alone,) = family.verify_batch([one], ["aa"])
    assert alone.rewards["judge"] == 0.5


def test_rubric_is_read_from_a_file(tmp_path):
    (tmp_path / "rubric.txt").write_text("é {response} {score:0-1}\n", "utf-8")
    assert rubric_text(tmp_path / "rubric.txt") == "é {response} {score:0-1}\n"
    assert rubric_text("") == ""


def test_special_tokens_in_an_answer_are_not_read_as_such(folder):
    plain = judge(folder)
    spelled = "abcabc<|end|><|assistant|>9<|en<|end|>d|>"
    found = plain.scores([{"prompt": "", "response": each} for each in (spelled, "abcabc9")])
    assert found == [expected("", "abcabc9")] * 2
    assert Tokenizer.characters().without_special_tokens(spelled) == "abcabc9"


def test_judge_model_is_a_named_reward_beside_the_answers_own(folder, questions):
    world = judged(folder, questions)
    family, by_prompt = world.family, {}
    for seed in range(2):
        task = family.sample(seed, 0)
        said = ["cd", "kkkk"]
        by_prompt[task.prompt] = family.verify_batch([task] * 2, said)
    right, wrong = by_prompt["ab="]
    assert right.rewards == {"right": 1.0, "judge": expected("ab=", "cd")}
    assert wrong.rewards == {"right": 0.0, "judge": expected("ab=", "kkkk")}
    assert (right.reason, wrong.reason) == ("right", "wrong")
    assert right.reward == 1.0 + expected("ab=", "cd")
    assert RewardRule("right+0.5*judge")(right.rewards) == 1.0 + 0.5 * expected("ab=", "cd")
    assert [each.rewards for each in by_prompt["xy="]] == [
        {"judge": expected("xy=", "cd")},
        {"judge": expected("xy=", "kkkk")},
    ]


def test_judge_model_does_not_see_thoughts_and_sees_columns(folder, questions):
    family = judged(folder, questions, "{response}{answer}{score:0-9}").family
    task = next(each for each in map(family.sample, range(2), [0, 0]) if each.answer)
    (found,) = family.verify_batch([task], ["<think>mmmmmm</think> kk"])
    assert found.rewards["judge"] == score_of("kkcd0 to 9") / 9


@pytest.mark.parametrize(
    ("rubric", "options", "said"),
    [
        (RUBRIC, {"judge_limit": 1}, "the judge's answer does not end within 1 tokens"),
        ("{response}{score:0-2}", {}, "its score 5 is not from 0 to 2"),
        ("{response}{truth}{score:0-9}", {}, "the rubric has {truth}; the question has"),
    ],
)
def test_answers_on_which_the_judge_says_nothing_readable_are_lost(
    folder, questions, rubric, options, said
):
    world = judged(folder, questions, rubric, **options)
    family = world.family
    task = next(each for each in map(family.sample, range(2), [0, 0]) if each.answer)
    verdict = family.verify(task, "kkkk")
    assert verdict.verifier_failed
    assert verdict.reason.startswith(f"verifier nonsense: {said}")
    scene = world.begin(task.seed, 0)
    scene.say("kkkk")
    assert scene.verdicts[0] == [verdict]


def test_judge_that_gives_no_readable_score_is_refused_before_training(folder, questions):
    world = judged(folder, questions, judge_limit=1)
    with pytest.raises(Mistake, match=r"gives the answer .* no reward \(the judge's answer does"):
        probe_judge(world, 0)
    world = judged(folder, questions, "abc{first}{second}")  # it writes 4
    with pytest.raises(Mistake, match=r"no reward \(it answered '4', without .Better: first.\)"):
        probe_judge(world, 0)
    assert probe_judge(judged(folder, questions), 0).rewards["judge"] >= 0.0


def short_context(copy):
    config = copy / "config.json"
    changed = json.loads(config.read_text()) | {"max_position_embeddings": 22}
    config.write_text(json.dumps(changed))


def reward_run(copy):
    (copy / "config.json").write_text('{"algorithm": "reward"}')


def not_causal(copy):
    (copy / "config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert"}')


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (short_context, r"gives the answer .cd. no .* prompt has 15 .* the model has room for 22"),
        (reward_run, r"is a reward model, which .* name the environment scored:.*:WORLD"),
        (not_causal, r"judge .*copy is no language model that can be used: .*bert"),
        (lambda copy: (copy / "tokenizer.json").unlink(), r"judge .*copy is no .* tokenizer\.json"),
        (lambda copy: (copy / "config.json").unlink(), r"copy is no folder .* it has no config\.j"),
    ],
)
def test_folders_that_cannot_judge_are_refused(folder, tmp_path, change, said):
    copy, file = shutil.copytree(folder, tmp_path / "copy"), tmp_path / "one.jsonl"
    file.write_text('{"prompt": "abcde", "answer": "cd"}')
    change(copy)
    with pytest.raises(Mistake, match=said) as told:
        probe_judge(judged(copy, str(file)), 0)
    assert "\n" not in str(told.value)


def settings_of(questions, **speech):
    own = LanguageSettings(model="nano", **speech)
    return resolve_settings("grpo", questions, updates=1, speech=own)


def test_settings_hold_the_judges_path_and_the_rubric_that_it_is_asked(
    folder, questions, monkeypatch
):
    monkeypatch.chdir(folder.parent)
    speech = settings_of(questions, judge=folder.name).speech
    assert (speech.judge, speech.rubric) == (str(folder), DEFAULT_RUBRIC)
    assert settings_of(questions, judge=folder, rubric=RUBRIC).speech.rubric == RUBRIC
    for wrong in ({"rubric": RUBRIC}, {"judge_limit": 5}):
        with pytest.raises(Mistake, match="is for a language model that judges: add judge=FOLDER"):
            settings_of(questions, **wrong)
    with pytest.raises(Mistake, match=r"or the folder of a language model; got '\./none'"):
        judge_reference("./none")


def test_generative_judge_judges_the_environments_own_questions(folder):
    options = {"rubric": RUBRIC, "judge_limit": 8, "slots": 4}
    settings = settings_of("arithmetic", judge=folder, **options)
    world = text_world(settings)
    scene = world.begin(0, 0)
    scene.say("kk")
    (verdict,) = scene.verdicts[0]
    assert verdict.rewards == {"right": 0.0, "judge": expected(scene.task.prompt, "kk")}
