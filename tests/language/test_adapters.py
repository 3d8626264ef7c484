"""Tasks from files, from the user's code and from other packages; faults cost one verdict."""

import importlib.util
import inspect
import json
import os
import threading
import time
import tracemalloc
import types
from collections import Counter

import pytest

import sterling
from sterling.language import tasks, worlds
from sterling.language.adapters import math_answers, reasoning_gym_tasks
from sterling.language.adapters.answer_worker import Worker, WorkerFault
from sterling.language.adapters.math_answers import compare_answers
from sterling.language.engine.ask import Said
from sterling.language.jsonl_records import read_records
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.task import NO_ANSWER, RIGHT, WRONG, Family, Task, Verdict
from sterling.language.time_limits import time_limit
from sterling.language.tokenizer import Tokenizer
from sterling.types import Mistake

QUESTIONS = [{"prompt": f"{x}+1=", "answer": str(x + 1)} for x in range(5)]


def written(path, *lines):
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return str(path)


def told(call, *given):
    with pytest.raises(Mistake) as raised:
        call(*given)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("fields", [("prompt", "response"), ("prompt", "chosen", "rejected")])
def test_jsonl_error_shows_an_example_with_the_required_fields(tmp_path, fields):
    for text in ("", "{oops", "[1]"):
        said = told(read_records, written(tmp_path / "it.jsonl", text), fields)
        assert json.loads(said[said.index("{", said.index("such as")) :]).keys() == set(fields)


def test_jsonl_records_of_demonstrations_and_preferences_are_read(tmp_path):
    path = written(tmp_path / "a.jsonl", {"prompt": "a", "response": "b", "more": [1]}, "", "")
    assert read_records(path, ("prompt", "response")) == [
        {"prompt": "a", "response": "b", "more": [1]}
    ]
    (tmp_path / "b.jsonl").write_bytes(
        b'\xef\xbb\xbf{"prompt": "\xc3\xa9", "chosen": "1", "rejected": "2"}\r\n'
    )
    found = read_records(tmp_path / "b.jsonl", ("prompt", "chosen", "rejected"))
    assert found == [{"prompt": "é", "chosen": "1", "rejected": "2"}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "a", "answer": "b"', "is not JSON .* write one JSON object in each line"),
        ('["a", "b"]', "is not a JSON object"),
        ("prompt,answer", "is not JSON"),
        ('{"prompt": "a"}', "has no 'answer'; each line needs prompt, answer"),
        ('{"prompt": "a", "answers": "b"}', r"has no 'answer' \(but 'answers'\)"),
        ('{"prompt": ["a"], "answer": "b"}', r"'prompt' is \[\"a\"\]; it must be a non-empty text"),
        ('{"prompt": "a", "answer": ""}', "'answer' is \"\"; it must be a non-empty text"),
        ('{"prompt": "a", "answer": true}', "'answer' is true"),
        ('{"prompt": "a", "answer": null}', "'answer' is null"),
        ('{"prompt": "a", "answer": NaN}', "NaN is not a number"),
        (r'{"prompt": "a \ud83d", "answer": "b"}', "'prompt' holds half a character"),
        (r'{"prompt": "a", "answer": "\ude00"}', "'answer' holds half a character"),
        (r'{"prompt": "a", "answer": "b", "system": "\ud83d"}', "'system' holds half a character"),
        ('{"prompt": "a", "prompt": "b", "answer": "c"}', "has 'prompt' twice; keep one"),
        ("[" * 100_000, "is not JSON"),
        ('{"prompt": "a", "answer": ' + "9" * 5000 + "}", "is not JSON"),
    ],
)
def test_malformed_jsonl_line_is_named(tmp_path, line, said):
    path = written(tmp_path / "bad.jsonl", QUESTIONS[0], "", line)
    message = told(read_records, path, ("prompt", "answer"))
    assert message.startswith("bad.jsonl, line 3")
    with pytest.raises(Mistake, match=said):
        tasks.find_family(path)


def test_unusable_jsonl_file_is_named(tmp_path):
    assert "holds no records" in told(
        read_records, written(tmp_path / "no.jsonl", "\n"), ("prompt",)
    )
    written(tmp_path / "questions.jsonl", *QUESTIONS)
    said = told(tasks.find_family, str(tmp_path / "question.jsonl"))
    assert "cannot be read (No such file or directory); did you mean questions.jsonl?" in said
    assert "cannot be read (Is a directory)" in told(read_records, tmp_path, ("prompt",))
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "a"}\n{"prompt": "\xe9"}\n')
    assert "latin.jsonl, line 2 is not UTF-8" in told(
        read_records, tmp_path / "latin.jsonl", ("prompt",)
    )
    said = told(tasks.find_family, str(tmp_path / "questions.jsonl:maths"))
    assert said == "answers cannot be compared as 'maths'; did you mean math?"
    path = written(tmp_path / "mark.jsonl", {"prompt": "a", "answer": "because ####"})
    assert "record 1: its 'answer' is empty after the mark" in told(tasks.find_family, path)
    path = written(tmp_path / "system.jsonl", {"prompt": "a", "answer": "b", "system": 3})
    assert "'system' must be a text" in told(tasks.find_family, path)


def test_jsonl_questions_become_a_task_family(tmp_path):
    family = tasks.find_family(written(tmp_path / "questions.jsonl", *QUESTIONS))
    assert isinstance(family, Family)
    for start in (0, 5, 1000):  # each record once in as many seeds
        prompts = [family.sample(start + x, 0).prompt for x in range(5)]
        assert sorted(prompts) == [each["prompt"] for each in QUESTIONS]
    task = family.sample(3, 0)
    assert task == family.sample(3, 0)
    assert family.verify(task, family.solve(task)) == RIGHT
    assert family.verify(task, "9") == WRONG
    assert family.verify(task, "") == NO_ANSWER
    assert "has levels 0 to 0, not 1" in told(family.sample, 0, 1)


@pytest.mark.slow
def test_long_jsonl_file_is_shuffled_once(tmp_path):
    family = tasks.find_family(written(tmp_path / "long.jsonl", *QUESTIONS * 20_000))
    tracemalloc.start()
    for seed in range(0, 10**9, 10**8):
        family.sample(seed, 0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000  # bytes: an order of so many questions takes more


def test_jsonl_answers_accept_numbers_markers_and_system_messages(tmp_path):
    lines = [{"prompt": "6*7?", "answer": "6*7 is\n#### 42", "system": "be brief"}]
    family = tasks.find_family(written(tmp_path / "marks.jsonl", *lines))
    task = family.sample(0, 0)
    assert task.system == "be brief"
    assert family.verify(task, "so \\boxed{42}") == RIGHT
    assert family.verify(task, family.solve(task)) == RIGHT
    family = tasks.find_family(written(tmp_path / "number.jsonl", {"prompt": "a b", "answer": 2.5}))
    assert family.verify(family.sample(0, 0), "2.5") == RIGHT


def test_jsonl_answer_that_is_a_json_number_is_compared_as_a_number(tmp_path):
    same = {
        "42.0": "42 42.0 42. 4.2e1",
        "1e3": "1000 1000.0 1e3",
        "0.1": "0.10 .1",
        "1e-7": "0.0000001",
    }
    for number, answers in same.items():
        path = written(tmp_path / "numbers.jsonl", f'{{"prompt": "a", "answer": {number}}}')
        task = (family := tasks.find_family(path)).sample(0, 0)
        assert {family.verify(task, each) for each in [*answers.split(), task.answer]} == {RIGHT}
        assert {family.verify(task, each) for each in ("41", "43.0", "a", "1e999")} == {WRONG}
    text = tasks.find_family(written(tmp_path / "text.jsonl", {"prompt": "a", "answer": "1.10"}))
    assert text.verify(text.sample(0, 0), "1.1") == WRONG
    infinite = written(tmp_path / "infinite.jsonl", '{"prompt": "a", "answer": 1e400}')
    assert "write it as a text" in told(tasks.find_family, infinite)


def test_jsonl_file_compares_letters_as_algebra_if_it_says_so(tmp_path):
    path = written(tmp_path / "letters.jsonl", {"prompt": "area?", "answer": "ab"})
    for comparison, verdict in (("math", WRONG), ("algebra", RIGHT)):
        family = tasks.find_family(f"{path}:{comparison}")
        assert family.verify(family.sample(0, 0), "ba") == verdict


def test_jsonl_file_mixes_with_a_task_family(tmp_path):
    family = tasks.find_family(f"{written(tmp_path / 'q.jsonl', *QUESTIONS)}*2+arithmetic")
    counts = Counter(family.sample(seed, 0).family for seed in range(60))
    assert counts["arithmetic"] == 60 - counts[str(tmp_path / "q.jsonl")]
    assert 10 <= counts["arithmetic"] <= 30


SAME = [
    *[("0.5", "1/2"), (r"\frac12", "0.5"), ("$x^2+2x+1$", "(x+1)^2"), (r"2\sqrt{3}", r"\sqrt{12}")],
    *[("(1, 2)", "(1,2)"), ("1,000", "1000"), (r"\boxed{7}", "7"), (r"\{2,1\}", r"\{1,2\}")],
    *(("42.", "42"), ("x = 42.", "42"), (r"\boxed{42.}", "42"), ("$42.$", "42"), ("42", "42.")),
]
DIFFERENT = [("0.51", "1/2"), ("x+1", "x"), ("(2,1)", "(1,2)"), ("-7", "7"), ("", "7")]


def test_math_answers_are_compared_symbolically():
    assert [compare_answers(*pair) for pair in SAME] == [RIGHT] * len(SAME)
    assert not any(compare_answers(*pair).reward for pair in DIFFERENT)
    assert compare_answers("\\frac{", "1/2").reason in ("malformed", "wrong")
    assert compare_answers("1" * 3000, "1").reason == "malformed"
    assert compare_answers("\ud800\0", "1").reward == 0.0
    assert "cannot be read as mathematics" in told(compare_answers, "1", "?!")


NUMBERS = [
    *(
        "42",
        "42.0",
        r"\$42",
        r"\text{42}",
        r"42 \text{ cm}^2",
        "42 km",
        "x=42",
        "6*7=42",
        r"\{42\}",
    ),
    *("(42)", r"4200\%", r"42^\circ", r"n = 42 \text{ apples}", r"4.2\cdot10^{1}", "+42", "$42$"),
]
SUMS = [
    *("6*7", r"6 \cdot 7", "42=6*7", "6*7=1", "84/2", r"\frac{84}{2}", "40+2", "21 21", "(21)(21)"),
    *(r"\binom{42}{1}", "-(-42)", r"\sqrt{1764}", r"40+2 \text{ cm}", "6*7=6*7"),
]


def test_math_answer_must_be_a_number_not_an_unevaluated_sum():
    question = "What is 6*7, or 84/2, or 40+2?"
    assert {each: compare_answers(each, "42", question) for each in NUMBERS} == dict.fromkeys(
        NUMBERS, RIGHT
    )
    assert {each: compare_answers(each, "42", question) for each in SUMS} == dict.fromkeys(
        SUMS, WRONG
    )
    written = [("3/4", r"\frac34"), (r"1\frac12", "1.5"), ("-50%", "-1/2"), ("1{,}000", "1000")]
    assert [compare_answers(*pair) for pair in written] == [RIGHT] * len(written)


def test_math_answer_that_repeats_the_question_is_wrong():
    asked = {
        "Simplify $\\frac{6}{8}$": (r"\frac34", r"\frac{6}{8}", "3/4"),
        "He ate 1/2, what is left?": ("0.5", "2/4+0", "1/2"),
        "Write $3 \\times 10^2$ out": ("300", r"3\times 10^2", "300.0"),
        "Factor x^2 + 2x + 1.": ("(x+1)^2", "x^2+2x+1", "(1+x)^2"),
        "1024 as a power of 2?": ("2^{10}", "1024", "2^10"),
        "Is it (1,2), or (2,1)?": (r"\left(1,2\right)", "(2,1)", "(1,2)"),
        "In terms of $\\pi$, or A?": ("\u03c0", "3.14", r"\pi"),
        "Say an identity.": ("7=7", "5=5", "7=7"),
    }
    for prompt, (truth, wrong, right) in asked.items():
        assert compare_answers(wrong, truth, prompt) == WRONG
        assert compare_answers(right, truth, prompt) == RIGHT


def test_math_answer_comparison_times_out_in_any_thread(monkeypatch):
    worker, found = math_answers._worker(), {}

    def ask(question, seconds):  # only what never ends meets the limit, also on a busy machine
        return worker.ask(question, 1.0 if "!" in question[0] else 60.0)

    monkeypatch.setattr(math_answers, "_worker", lambda: types.SimpleNamespace(ask=ask))
    names = {"right": ("1/2", "0.5"), "late": ("100000000!", "1")}
    before = time.perf_counter()
    threads = [
        threading.Thread(
            target=lambda name=name: found.update({name: compare_answers(*names[name])})
        )
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"right": RIGHT, "late": Verdict(0.0, "timeout")}
    assert time.perf_counter() - before < 60.0
    assert compare_answers("1/2", "0.5") == RIGHT


def test_jsonl_answers_are_compared_as_mathematics(tmp_path):
    path = written(tmp_path / "math.jsonl", {"prompt": "half?", "answer": r"#### \frac{1}{2}"})
    family = tasks.find_family(f"{path}:math")
    task = family.sample(0, 0)
    assert task.family == f"{path}:math"
    assert family.verify(task, "#### 0.5") == family.verify(task, family.solve(task)) == RIGHT
    assert family.verify(task, "2") == WRONG
    lines = [{"prompt": "What is 12*7+3?", "answer": "87"}]
    family = tasks.find_family(f"{written(tmp_path / 'sum.jsonl', *lines)}:math")
    assert family.verify(family.sample(0, 0), "12*7+3") == WRONG
    lines = [{"prompt": "Simplify 2x+3x.", "answer": "5x"}]
    family = tasks.find_family(f"{written(tmp_path / 'copy.jsonl', *lines)}:math")
    assert family.verify(family.sample(0, 0), "2x+3x") == WRONG
    assert family.verify(family.sample(0, 0), "x5") == RIGHT


def missing(monkeypatch, package):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else found(name)
    )


def test_missing_math_verify_or_reasoning_gym_names_the_pip_extra(monkeypatch, tmp_path):
    path = written(tmp_path / "math.jsonl", *QUESTIONS)
    remedy = 'pip install "sterling-rl[reasoning]"'
    missing(monkeypatch, "math_verify")
    assert told(tasks.find_family, f"{path}:math").endswith(remedy)
    assert told(compare_answers, "1", "1").endswith(remedy)
    missing(monkeypatch, "reasoning_gym")
    assert told(tasks.find_family, "reasoning-gym:chain_sum").endswith(remedy)


MODULE = """
levels = range(2)
seconds = 5.0

def sample(seed, level):
    return {"prompt": f"{seed}+{level}=", "answer": seed + level}

def verify(task, response):
    import os, sys, time
    print("a verifier may print", flush=True)
    actions = {
        "raise": lambda: 1 / 0,
        "hang": lambda: time.sleep(600),
        "die": lambda: os._exit(3),
        "exit": lambda: sys.exit(3),
        "none": lambda: None,
        "text": lambda: "1.0",
        "nan": lambda: float("nan"),
        "list": lambda: [1],
        "two": lambda: 2,
        "half": lambda: 0.5,
    }
    if response in actions:
        return actions[response]()
    return response == str(task.answer)

def solve(task):
    return str(task.answer)
"""


def test_user_module_becomes_a_task_family(tmp_path):
    family = tasks.find_family(written(tmp_path / "plus.py", MODULE))
    assert isinstance(family, Family)
    task = family.sample(3, 1)
    assert task == Task(str(tmp_path / "plus.py"), 3, 1, "3+1=", 4)
    assert family.verify(task, family.solve(task)) == RIGHT
    assert family.verify(task, "half") == Verdict(0.5, "partly")
    assert family.verify(task, "\ud800") == WRONG
    assert "has levels 0 to 1, not 2" in told(family.sample, 0, 2)
    family.close()


@pytest.mark.slow
def test_failing_user_verifier_costs_one_response(tmp_path):
    family = tasks.find_family(written(tmp_path / "plus.py", MODULE))
    task = family.sample(3, 1)
    nonsense = {"none": "None", "text": "'1.0'", "nan": "nan", "list": "[1]"}
    reasons = {
        "raise": "verifier raised: ZeroDivisionError: division by zero",
        "hang": "verifier hung: no answer after 5 seconds",
        "die": "verifier died: its process ended",
        "exit": "verifier raised: SystemExit: 3",
        **{name: f"verifier nonsense: verify returned {said}" for name, said in nonsense.items()},
    }
    for response, reason in reasons.items():
        assert family.verify(task, response) == Verdict(0.0, reason)
        assert family.verify(task, response).verifier_failed
        assert family.verify(task, "4") == RIGHT
    assert family.verify(task, "two") == Verdict(2.0, "right")
    family.close()


@pytest.mark.slow
@pytest.mark.parametrize("world", ["", "try-again:"])
def test_failing_user_verifier_fails_the_scene_instead_of_a_reward(tmp_path, world):
    """The scene is given up, as any that fails, and the result says why."""
    place = worlds.find_world(world + written(tmp_path / "plus.py", MODULE))
    scenes = [place.begin(seed, 0) for seed in range(2)]
    talk = SceneBatch(
        scenes, ChatSettings(tokenizer := Tokenizer.characters(), limit=9, context=400)
    )
    for line, said in zip(talk.waiting(), ("half", "raise"), strict=True):
        talk.add_answer(line, Said([*tokenizer.encode(said), tokenizer.end], [0.0] * 9, True))
    good, bad = talk.finish()
    assert (good.failed, bad.verdicts) == ("", ())
    assert bad.failed == "verifier raised: ZeroDivisionError: division by zero"
    place.family.close()


FAULTY = """
count = 8

def sample(seed, level):
    return {"prompt": f"{seed}=", "answer": seed}

def verify(task, response):
    return 0.5 if task.answer % 2 else task.answer / 0
"""


@pytest.mark.slow
def test_grpo_counts_verifier_failures_and_excludes_their_scenes(tmp_path, capsys):
    file, few = written(tmp_path / "odd.py", FAULTY), {"prompts": 8, "group": 2, "limit": 2}
    result = sterling.train("grpo", file, model="nano", updates=1, evaluate_episodes=8, **few,
                            out=tmp_path / "run").result  # fmt: skip
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (row["data/invalid"], row["data/return"]) == ([8], [0.5])
    failures = {line.partition(": ")[2] for line in result["world_failures"]}
    assert failures == {"verifier raised: ZeroDivisionError: division by zero"}
    assert result["final"]["return"]["per_seed"] == [0.25]
    assert "4 of 8 answers count 0: their scenes failed" in capsys.readouterr().err


MAKER = """
from sterling.language.task import Task, Verdict
from beside import WORD

class Shout:
    name, levels = "shout", range(1)
    def sample(self, seed, level):
        return Task("another", 0, 9, f"shout {WORD}{seed}", [WORD.upper()], system="be loud")
    def verify(self, task, response):
        if response == "long":
            return Verdict(0.0, "x" * 100)
        return Verdict(1.0, "loud") if response == task.answer[0] else Verdict(0.25, "quiet")

def make():
    return Shout()
"""


def test_user_factory_function_makes_a_task_family(tmp_path):
    written(tmp_path / "beside.py", 'WORD = "hey"')
    family = tasks.find_family(f"{written(tmp_path / 'shout.py', MAKER)}:make")
    task = family.sample(2, 0)
    assert task == Task(family.name, 2, 0, "shout hey2", ["HEY"], "be loud")
    assert family.verify(task, "HEY") == Verdict(1.0, "loud")
    assert family.verify(task, "hey") == Verdict(0.25, "quiet")
    assert family.verify(task, "long") == Verdict(0.0, "x" * 40)
    assert "shout.py has no solve; demonstrations need a solve(task)" in told(family.solve, task)
    family.close()


PLAIN = "def verify(task, response): return 1.0\ndef sample(seed, level): return "


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("x = (", "", "broken.py raised SyntaxError"),
        ("import no_such_package", "", "broken.py raised ModuleNotFoundError: No module named"),
        ("sample = verify = len", ":make", "broken.py has no function 'make'"),
        ("def made(): pass", ":make", "has no function 'make'; did you mean made?"),
        ("def make(): return 1 / 0", ":make", r"make\(\) raised ZeroDivisionError"),
        ("import sys; sys.exit(3)", "", "broken.py raised SystemExit: 3"),
        ("def make(): raise SystemExit", ":make", r"make\(\) raised SystemExit"),
        ("def make(): return 3", ":make", r"what make\(\) returns has no sample"),
        ("sample = len", "", "the file has no verify"),
        ("def make(): return 3", "", r"or name what makes the tasks, as \w+.py:make"),
        (f"levels = 3\n{PLAIN}{{}}", "", r"'levels' must be a range such as range\(3\)"),
        (f"seconds = 0\n{PLAIN}{{}}", "", "'seconds' must be a number over 0"),
        (f"count = 1.5\n{PLAIN}{{}}", "", "'count' must be a number of tasks, such as 100"),
        (f"processes = 0\n{PLAIN}{{}}", "", "'processes' must be a whole number of at least 1"),
        (f"processes = True\n{PLAIN}{{}}", "", "'processes' must be a whole number of at least 1"),
    ],
)
def test_broken_user_task_file_is_refused(tmp_path, text, name, said):
    path = written(tmp_path / "broken.py", text)
    with pytest.raises(Mistake, match=said):
        tasks.find_family(path + name)


def test_user_solve_that_indexes_a_task_is_told_to_use_attributes(tmp_path):
    text = f"{PLAIN}{{}}\ndef solve(task): return task['answer']"
    family = tasks.find_family(written(tmp_path / "broken.py", text))
    task = Task("own", 0, 0, prompt="a", answer="b")
    with pytest.raises(Mistake, match=r"solve raised .*write task.prompt and task.answer"):
        family.solve(task)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1 / 0", "broken.py: sample raised ZeroDivisionError: division by zero"),
        ("exit(3)", "broken.py: sample raised SystemExit: 3"),
        ("None", "sample must return a Task or .*, not None"),
        ('{"prompt": "a"}', "sample must return a Task or"),
        ('{"prompt": "a", "answer": 1, "sistem": ""}', "'sistem'; did you mean system?"),
        ('{"prompt": 1, "answer": 1}', r"sample\(0, 0\): prompt and system must be texts"),
        ('{"prompt": "a", "answer": {1}}', "the answer plain JSON"),
        (r'{"prompt": "\ud83d", "answer": 1}', "must not hold half a character"),
        (r'{"prompt": "a", "answer": "\ud83d"}', "must not hold half a character"),
        ('{"prompt": "a", "answer": (1, 2)}', "the answer plain JSON"),
    ],
)
def test_invalid_user_sample_is_refused(tmp_path, value, said):
    family = tasks.find_family(written(tmp_path / "broken.py", PLAIN + value))
    with pytest.raises(Mistake, match=said):
        family.sample(0, 0)


def test_missing_user_task_file_suggests_a_name(tmp_path):
    written(tmp_path / "mine.py", MODULE)
    said = told(tasks.find_family, str(tmp_path / "main.py:make"))
    assert said.endswith("main.py is not a file; did you mean mine.py?")


def test_answer_worker_close_leaves_no_process():
    worker = Worker("operator:itemgetter", 1, 10.0)
    assert worker.ask(["a", "b"]) == "b"
    with pytest.raises(WorkerFault, match="raised: IndexError"):
        worker.ask([])
    server, child = worker._server.process, worker._channels[0].process
    worker.close()
    assert server.returncode is not None
    for process in (server.pid, child):
        with pytest.raises(ProcessLookupError):
            os.killpg(process, 0)


SLOW = """
seconds = 60

def sample(seed, level):
    return {"prompt": "say a number", "answer": "1"}

def verify(task, response):
    import time
    time.sleep(2.0 if response == "0.5" else 0.0)
    return float(response)
"""


@pytest.mark.slow
def test_slow_user_verifier_outlasts_the_scene_time_limit(tmp_path):
    """Its limit is the file's own: a scene's patience, which is shorter, does not cut it off."""
    family = tasks.find_family(written(tmp_path / "slow.py", SLOW))
    task = family.sample(0, 0)
    found = []
    for said in ("0.5", "0.25", "0.5", "0.75"):
        with time_limit(1.0):
            found.append(family.verify(task, said).reward)
    assert found == [0.5, 0.25, 0.5, 0.75]


def test_scene_time_limit_resumes_after_a_user_verdict(tmp_path):
    family = tasks.find_family(written(tmp_path / "slow.py", SLOW))
    found = []

    def judged_and_then_idle():
        with time_limit(1.0):
            found.append(family.verify(family.sample(0, 0), "0.5").reward)
            time.sleep(60.0)

    with pytest.raises(TimeoutError, match=r"longer than 1 s"):
        judged_and_then_idle()
    assert found == [0.5]


def test_answer_worker_refuses_a_reply_to_another_request():
    worker = Worker("operator:itemgetter", 1, 10.0)
    assert worker.ask("ab") == "b"
    worker._channels[0]._connection.sendall(json.dumps([9, 10.0, "cd"]).encode() + b"\n")
    with pytest.raises(WorkerFault, match="it answered another question"):
        worker.ask("ef")
    assert worker.ask("gh") == "h"
    worker.close()


@pytest.mark.parametrize("name", ["chain_sum", "letter_counting", "gsm_symbolic", "n_queens"])
def test_reasoning_gym_dataset_samples_and_verifies(name):
    family = tasks.find_family(f"reasoning-gym:{name}")
    assert isinstance(family, Family)
    for level in (family.levels[0], family.levels[-1]):
        task = family.sample(5, level)
        assert task == family.sample(5, level)
        assert task.prompt != family.sample(6, level).prompt
        assert family.verify(task, f"I think <answer>{family.solve(task)}</answer>") == RIGHT
        assert family.verify(task, "no idea").reward < 1.0
        assert family.verify(task, "") == NO_ANSWER


def test_answer_worker_that_cannot_start_reports_the_error():
    worker = Worker("no_such_module:make", None, 10.0)
    for _ in range(2):
        with pytest.raises(WorkerFault, match="raised: ModuleNotFoundError"):
            worker.ask(1)
        assert worker._server is None


@pytest.mark.slow
def test_reasoning_gym_poses_the_same_task_in_another_process():
    family = tasks.find_family("reasoning-gym:ransom_note")  # whose texts come from a set
    first = [family.sample(seed, 0) for seed in range(5)]
    reasoning_gym_tasks._worker().close()
    assert [family.sample(seed, 0) for seed in range(5)] == first


def test_levels_of_reasoning_gym_are_those_of_its_curriculum():
    family = tasks.find_family("reasoning-gym:chain_sum")
    assert family.levels == range(11)  # 2 to 12 terms
    lengths = [[len(family.sample(seed, level).prompt) for seed in range(9)] for level in (0, 10)]
    assert max(lengths[0]) < max(lengths[1])
    said = told(tasks.find_family, "reasoning-gym:chain_sums")
    assert said.endswith("no data set 'chain_sums'; did you mean chain_sum?")
    assert "cannot pose a task (seed 0, level 0): AssertionError" in told(
        tasks.find_family("reasoning-gym:composite").sample, 0, 0
    )
    graph = tasks.find_family("reasoning-gym:graph_color")
    assert "gives no answers" in told(graph.solve, graph.sample(0, 0))


def test_levels_that_reasoning_gym_itself_refuses_are_left_out():
    levels = {"caesar_cipher": range(2), "rubiks_cube": range(4), "survo": range(2)}
    levels |= {"modulo_grid": range(2, 6), "power_function": range(5), "chain_sum": range(11)}
    assert {name: tasks.find_family(f"reasoning-gym:{name}").levels for name in levels} == levels
    for name in ("caesar_cipher", "modulo_grid"):
        family = tasks.find_family(f"reasoning-gym:{name}")
        for level in family.levels:
            task = family.sample(0, level)
            assert family.verify(task, family.solve(task)) == RIGHT
    said = told(tasks.find_family, "reasoning-gym:knight_swap")
    assert "curriculum gives settings that it does not accept (min_nodes must be >= 6)" in said


@pytest.mark.parametrize("name", sorted(reasoning_gym_tasks.EXECUTED_ANSWERS))
def test_reasoning_gym_executable_answers_are_forbidden(name, tmp_path):
    family = tasks.find_family(f"reasoning-gym:{name}")
    task = family.sample(1, 0)
    made = tmp_path / "made"
    for attack in (
        f"__import__('os').system('touch {made}')",
        f"open('{made}', 'w').close()",
        f"[open('{made}', 'w')]",
        f"(lambda: open('{made}', 'w'))()",
        f'S(\'open("{made}", "w")\')',
    ):
        assert family.verify(task, attack) == Verdict(0.0, "forbidden")
    assert not made.exists()
    assert family.verify(task, family.solve(task)).reward == 1.0


def test_reasoning_gym_formula_answers_are_verified(monkeypatch):
    family = tasks.find_family("reasoning-gym:simple_integration")
    task = family.sample(1, 0)
    answer = family.solve(task)
    assert family.verify(task, f"{answer} - 3 + 1*2") == RIGHT  # any constant
    assert family.verify(task, "sin(x)/2 + C").reason == "wrong"
    monkeypatch.setattr(reasoning_gym_tasks, "SECONDS", 1.0)
    assert family.verify(task, "9**9**9**9**9").reward == 0.0


def test_reasoning_gym_datasets_that_execute_answers_are_all_listed():
    gym = reasoning_gym_tasks.import_package()
    found = {
        name for name in gym.factory.DATASETS if reasoning_gym_tasks._executes_answers(name)
    } - reasoning_gym_tasks.EXECUTES_OWN_CODE
    assert found == set(reasoning_gym_tasks.EXECUTED_ANSWERS)
    for name in reasoning_gym_tasks.EXECUTES_OWN_CODE:
        score = inspect.getsource(gym.factory.DATASETS[name][0].score_answer)
        assert not reasoning_gym_tasks.EXECUTES.search(score.replace('eval(entry["answer"])', ""))


def test_reasoning_gym_unlisted_dataset_that_executes_answers_is_refused(monkeypatch):
    monkeypatch.setattr(reasoning_gym_tasks, "EXECUTED_ANSWERS", {})
    said = told(tasks.find_family, "reasoning-gym:n_queens")
    assert said.endswith("it may execute answers and is not known to be safe; choose another")
