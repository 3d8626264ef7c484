"""Families pose reproducible tasks, and judge right and wrong answers as they should."""

import dataclasses
import itertools
import json
import re
from collections import Counter

import pytest
from every_case import every

from sterling.language import tasks
from sterling.language.sandbox import Limits
from sterling.language.task import RIGHT, Task, Verdict
from sterling.language.tasks import arithmetic_text
from sterling.language.tasks.program_tasks import Program
from sterling.types import Mistake

NAMES = tasks.family_names()
LEVELS = [(name, level) for name in NAMES for level in tasks.find_family(name).levels]
CHEAP = [(name, level) for name, level in LEVELS if name != "program"]
SEEDS = range(50)


def sampled(name, level, seeds=SEEDS):
    family = tasks.find_family(name)
    return family, [family.sample(seed, level) for seed in seeds]


@every("name, level", LEVELS)
def test_task_family_samples_are_reproducible_json_and_distinct(name, level):
    _, first = sampled(name, level)
    _, second = sampled(name, level)
    assert first == second
    for seed, task in zip(SEEDS, first, strict=True):
        assert (task.family, task.seed, task.level) == (name, seed, level)
        assert Task(**json.loads(json.dumps(dataclasses.asdict(task)))) == task
        assert task.prompt == task.prompt.strip() != ""
    if name != "knights-and-knaves" or level > 0:  # two people can say few things
        assert len({task.prompt for task in first}) > 30


@every("name, level", CHEAP)
def test_task_family_solutions_are_right(name, level):
    family, sample = sampled(name, level)
    assert {family.verify(task, family.solve(task)) for task in sample} == {RIGHT}


@every("name, level", CHEAP)
def test_task_family_rejects_solutions_of_other_tasks(name, level):
    family, sample = sampled(name, level)
    taken = [
        family.verify(task, family.solve(other)).reward == 1.0
        for task, other in itertools.pairwise(sample)
        if task.answer != other.answer
    ]
    assert len(taken) >= 15
    # a small remainder, or a text that keeps one constraint, is often another's as well
    assert sum(taken) / len(taken) < {"instructions": 0.5, "chain": 0.25}.get(name, 0.1)


@every("name", NAMES)
def test_unknown_levels_are_refused(name):
    family = tasks.find_family(name)
    with pytest.raises(Mistake, match=f"{name} has levels 0 to {family.levels[-1]}, not 99"):
        family.sample(0, 99)


@pytest.mark.parametrize("name", ["arithmetic", "copy-text", "countdown-mini", "chain"])
def test_easiest_task_level_has_short_prompts_and_answers(name):
    family, sample = sampled(name, 0, range(300))
    assert max(len(task.prompt) for task in sample) <= 18
    assert max(len(family.solve(task)) for task in sample) <= 8


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("reverse-text", lambda word: word[::-1]),
        ("sort-letters", lambda word: "".join(sorted(word))),
        ("copy-text", str),
    ],
)
def test_word_tasks_apply_their_string_operation(name, change):
    family, sample = sampled(name, 2)
    for task in sample:
        verb, word = task.prompt.split()
        assert verb == name.split("-")[0]
        assert family.solve(task) == change(word)
        assert family.verify(task, change(word).upper()).reason == "malformed"


@pytest.mark.parametrize("name", ["arithmetic", "chain", "modular-addition"])
def test_number_task_answers_equal_python(name):
    for level in tasks.find_family(name).levels:
        family, sample = sampled(name, level)
        for task in sample:
            truth = eval(task.prompt.removesuffix("="))  # our own prompt
            assert family.verify(task, str(truth)) == RIGHT
            assert family.verify(task, str(truth + 1)).reason == "wrong"
            assert family.verify(task, f"it is {truth}").reason == "malformed"


def test_chain_task_solution_lists_intermediate_remainders():
    family = tasks.find_family("chain")
    task = next(t for t in (family.sample(s, 0) for s in SEEDS) if "*" in t.prompt)
    inner = re.fullmatch(r"\((\(.*?\)).*\)%(\d+)=", task.prompt)
    steps = family.solve(task).split("####")[0].split(",")
    assert int(steps[0]) == eval(inner[1]) % int(inner[2])
    assert family.verify(task, f"0,0####{steps[-1]}") == RIGHT


@pytest.mark.parametrize("name", ["countdown", "countdown-mini"])
def test_countdown_uses_each_number_at_most_once(name):
    for level in tasks.find_family(name).levels:
        family, sample = sampled(name, level)
        for task in sample:
            target, *numbers = map(int, re.findall(r"\d+", task.prompt))
            value, used = arithmetic_text.evaluate_text(family.solve(task))
            assert value == target
            assert Counter(used) == Counter(numbers)
            assert family.verify(task, str(target)).reason == "forbidden"


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("(25-3)", ("right", 1.0)),
        ("50/2-3", ("right", 1.0)),
        ("25-3-3+3", ("forbidden", 0.0)),
        ("25-3 = 22", ("malformed", 0.0)),
        ("25+3", ("wrong", 0.0)),
        ("25/(3-3)", ("forbidden", 0.0)),
        ("25/(50-2*25)", ("forbidden", 0.0)),
        ("2/(50-25-25)", ("forbidden", 0.0)),
        ("__import__('os').system('true')", ("malformed", 0.0)),
        ("(lambda: 22)()", ("malformed", 0.0)),
        ("25-3 if 1 else 0", ("malformed", 0.0)),
        ("25-3#", ("malformed", 0.0)),
    ],
)
def test_countdown_reads_only_expressions(response, verdict):
    answer = {"numbers": [25, 3, 50, 2], "target": 22, "solution": "25-3"}
    task = Task("countdown", 0, 0, "make 22 from 25 3 50 2", answer)
    found = tasks.find_family("countdown").verify(task, response)
    assert (found.reason, found.reward) == verdict


def test_countdown_division_by_zero_is_wrong():
    answer = {"numbers": [5, 3, 3], "target": 0, "solution": "3-3"}
    task = Task("countdown", 0, 0, "make 0 from 5 3 3", answer)
    assert tasks.find_family("countdown").verify(task, "5/(3-3)").reason == "wrong"


OPERATIONS = {
    "max": max,
    "min": min,
    "sum": sum,
    "first": lambda v: v[0],
    "range": lambda v: max(v) - min(v),
    "median": lambda v: sorted(v)[len(v) // 2],
    "sort": sorted,
    "reverse": lambda v: v[::-1],
    "unique": lambda v: sorted(set(v), key=v.index),
    "evens": lambda v: [x for x in v if not x % 2],
}


def test_list_operation_task_answers_equal_python():
    seen = set()
    for level in tasks.find_family("list-operations").levels:
        family, sample = sampled("list-operations", level, range(100))
        for task in sample:
            what, _, rest = task.prompt.rpartition(" in ")
            name, *given = (what or task.prompt).split()
            numbers = [int(x) for x in (rest.split() if what else given)]
            found = getattr(numbers, name) if what else OPERATIONS[name]
            truth = found(int(given[0])) if what else found(numbers)
            seen.add(name)
            assert family.verify(task, str(truth)) == RIGHT  # with brackets and commas
            other = truth[1:] if isinstance(truth, list) else truth + 1
            assert family.verify(task, str(other)).reward == 0.0
    assert seen == {*OPERATIONS, "count", "index"}


HOLDS = [
    (r"(\w) is a (knight|knave)", lambda k, m: k[m[1]] == (m[2] == "knight")),
    (r"(\w) and (\w) are alike", lambda k, m: k[m[1]] == k[m[2]]),
    (r"(\w) and (\w) differ", lambda k, m: k[m[1]] != k[m[2]]),
    (r"(\w) and (\w) are knights", lambda k, m: k[m[1]] and k[m[2]]),
    (r"(\w) and (\w) are knaves", lambda k, m: not (k[m[1]] or k[m[2]])),
    (r"(\w) or (\w) is a knight", lambda k, m: k[m[1]] or k[m[2]]),
]


def solved(prompt):
    """Every set of knights that fits the prompt's words, read on their own."""
    said = [
        part.split(" says ") for part in prompt.removesuffix(" knights?").rstrip(".").split(". ")
    ]
    found = []
    for kinds in itertools.product((False, True), repeat=len(said)):
        knights = dict(zip("abcdef", kinds, strict=False))
        holds = {
            speaker: next(
                test(knights, m) for form, test in HOLDS if (m := re.fullmatch(form, words))
            )
            for speaker, words in said
        }
        if all(bool(holds[speaker]) == knights[speaker] for speaker in holds):
            found.append([name for name in knights if knights[name]])
    return found


def test_knights_and_knaves_have_exactly_one_solution():
    for level in tasks.find_family("knights-and-knaves").levels:
        family, sample = sampled("knights-and-knaves", level, range(30))
        for task in sample:
            assert solved(task.prompt) == [task.answer]
            answer = ", ".join(reversed(task.answer)) or "none"
            assert family.verify(task, answer) == RIGHT
            wrong = "none" if task.answer else "a"
            assert family.verify(task, wrong).reason == "wrong"
            assert family.verify(task, "a is a knight").reason == "malformed"


def test_boolean_circuit_task_answers_equal_python():
    family, sample = sampled("boolean-circuit", 4)
    for task in sample:
        *parts, asked = task.prompt.split()
        values = {}
        for part in parts:
            name, formula = part.split("=")
            values[name] = int(eval(formula.replace("!", "1-"), {}, values))  # our own prompt
        bits = "".join(str(values[name]) for name in asked.rstrip("?"))
        assert family.verify(task, " ".join(bits)) == RIGHT
        flipped = bits[:-1] + str(1 - int(bits[-1]))
        assert family.verify(task, flipped).reason == "wrong"


def test_any_shortest_path_is_right():
    edges = ["ab", "bd", "ca", "dc", "de"]
    answer = {"edges": edges, "start": "a", "goal": "d", "path": "abd"}
    task, family = Task("graph-path", 0, 0, "", answer), tasks.find_family("graph-path")
    reasons = {
        **{"abd": "right", "a-c-d": "right", "a -> c -> d": "right", "a, b, d": "right"},
        **{"acded": "wrong", "ad": "wrong", "ab": "wrong", "aed": "wrong", "dba": "wrong"},
        **{"abdd": "wrong", "aabd": "wrong", "via b": "wrong", "ABD": "malformed"},
        **{"a1d": "malformed", "-": "malformed", "abd-": "malformed"},
    }
    assert {each: family.verify(task, each).reason for each in reasons} == reasons


def test_graph_paths_are_shortest():
    _, sample = sampled("graph-path", 3)
    for task in sample:
        known = task.answer
        nodes = set("".join(known["edges"]))
        edges = {frozenset(edge) for edge in known["edges"]}
        for steps in range(2, len(known["path"])):
            for middle in itertools.permutations(
                nodes - {known["start"], known["goal"]}, steps - 2
            ):
                path = [known["start"], *middle, known["goal"]]
                assert not all(frozenset(pair) in edges for pair in itertools.pairwise(path))


def test_a_query_must_be_right_on_hidden_tables():
    family = tasks.find_family("sql")
    task = next(t for t in (family.sample(s, 1) for s in SEEDS) if "sum(" in t.answer["query"])
    query = task.answer["query"]
    assert family.verify(task, f"{query};".replace("select", "SELECT\n")) == RIGHT
    assert family.verify(task, f"SELECT * FROM ({query})") == RIGHT
    assert family.verify(task, query.replace("sum(", "max(")).reason == "wrong"
    assert family.verify(task, query.replace("sum(", "1, sum(")).reason == "wrong"
    assert family.verify(task, query.split(" where")[0]).reason == "wrong"
    for value in range(700):  # a constant is right on one table at best
        assert family.verify(task, f"select {value}").reason == "wrong"


NEARLY = {
    "no condition": lambda query: query.partition(" where ")[0],
    "at the threshold": lambda query: re.sub(r"([<>])", r"\1=", query),
    "below it": lambda query: re.sub(r"([<>])(\d+)", lambda m: f"{m[1]}{int(m[2]) - 1}", query),
    "above it": lambda query: re.sub(r"([<>])(\d+)", lambda m: f"{m[1]}{int(m[2]) + 2}", query),
    "another sum": lambda query: query.replace("sum(", "max("),
}


@pytest.mark.parametrize("level", tasks.find_family("sql").levels)
def test_sql_task_rejects_nearly_right_queries(level):
    family, sample = sampled("sql", level)
    asked = [(task, change(task.answer["query"])) for task in sample for change in NEARLY.values()]
    asked = [(task, query) for task, query in asked if query != task.answer["query"]]
    assert len(asked) >= (5 if level == 2 else 100)
    assert [query for task, query in asked if family.verify(task, query).reward] == []


def test_sql_task_row_order_counts_only_where_asked():
    family, sample = sampled("sql", 2)
    ordered = next(task for task in sample if task.answer["ordered"])
    query = ordered.answer["query"]
    assert family.verify(ordered, f"select name from ({query}) order by name desc").reward == 0.0
    grouped = next(task for task in sample if not task.answer["ordered"])
    backwards = f"select * from ({grouped.answer['query']}) order by 1 desc"
    assert family.verify(grouped, backwards) == RIGHT


def test_instructions_give_partial_credit():
    asked = [["words", 3], ["include", "red"], ["case", "upper"], ["end", "!"]]
    task = Task("instructions", 0, 3, "", {"constraints": asked, "solution": ""})
    credit = {"BIG RED SUN!": 1.0, "BIG RED SUN": 0.75, "big sun!": 0.25, "redder": 0.25, "no": 0.0}
    family = tasks.find_family("instructions")
    assert {text: family.verify(task, text).reward for text in credit} == credit
    assert family.verify(task, "BIG RED SUN").reason == "partly"


def test_program_task_hidden_tests_pass_for_the_solution():
    for level in Program.levels:
        family, sample = sampled("program", level)
        for task in sample:
            exec(family.solve(task) + "\n" + task.answer["tests"], {})  # our own, not a model's
            place = {}
            exec(family.solve(task), place)
            examples = task.prompt.rpartition(". ")[2]
            shown = re.findall(r"f\((.*?)\)=(.+?)(?= f\(|$)", examples)
            assert len(shown) == 2
            assert all(repr(place["f"](eval(given))) == said for given, said in shown)
            assert task.answer["tests"].count("assert") == 8


def passes(code, tests):
    try:
        exec(f"{code}\n{tests}", {})  # our own, not a model's
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("level", [2, 3])
def test_program_task_hidden_tests_reject_nearly_right_programs(level):
    lists = [[-1], [0], [1], [-2, -1], [7], [8], [4, 7], [30, -20], [11, -9], [-9, 8]]
    lists += [[over + by, -20] for over in range(-5, 21) for by in (0, 1)]
    asked = 0
    _, sample = sampled("program", level, range(150))
    for task in sample:
        code = task.answer["solution"]
        changed = [re.sub(r"if x([<>])", r"if x\1=", code), re.sub(r" if [^\]]*", "", code)]
        changed += [re.sub(r"x>(-?\d+)", lambda m: f"x>{int(m[1]) + 1}", code)]
        for wrong in changed:
            places = {}, {}
            exec(code, places[0])
            exec(wrong, places[1])
            if all(places[0]["f"](each) == places[1]["f"](each) for each in lists):
                continue  # it means the same: the smallest of those below 0, or up to 0
            asked += 1
            assert not passes(wrong, task.answer["tests"]), (task.prompt, wrong)
    assert asked > 200


@pytest.mark.parametrize("level", Program.levels)
def test_programs_run_in_the_sandbox(level):
    family, (task,) = sampled("program", level, [7])
    assert family.verify(task, f"Sure!\n```python\n{family.solve(task)}\n```") == RIGHT


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(v): return None", "wrong"),
        ("f = lambda v: 1 / 0", "error"),
        ("def f(v: return", "error"),
        ("def f(v):\n while True: pass", "timeout"),
        ("class A:\n def __eq__(s, o): return True\ndef f(v): return A()", "wrong"),
        ("import os\ndef f(v): os._exit(0)", "error"),
        ("def g(v): return v", "malformed"),
        ("f(3)", "malformed"),
        ("def f(v): '\ud800'", "malformed"),
        ("def f(v): '\0'", "malformed"),
    ],
)
def test_program_task_verdicts_of_wrong_programs(code, reason):
    _, (task,) = sampled("program", 0, [0])
    family = Program(Limits(seconds=1.0 if reason == "timeout" else 30.0))
    assert family.verify(task, code) == Verdict(0.0, reason)


def test_task_mixture_keeps_its_shares_and_delegates_verification():
    family = tasks.find_family("arithmetic*3+reverse-text")
    sample = [family.sample(seed, 1) for seed in range(400)]
    counts = Counter(task.family for task in sample)
    assert set(counts) == {"arithmetic", "reverse-text"}
    assert 270 <= counts["arithmetic"] <= 330
    assert {family.verify(task, family.solve(task)) for task in sample} == {RIGHT}
    assert sample[0] == family.sample(0, 1)
    member = tasks.find_family(sample[0].family)
    assert sample[0] == member.sample(0, 1)


def test_task_mixture_has_the_levels_of_its_longest_member():
    family = tasks.find_family("countdown-mini + program")
    assert family.levels == range(6)
    levels = {task.family: task.level for task in (family.sample(seed, 5) for seed in SEEDS)}
    assert levels == {"countdown-mini": 3, "program": 5}
    with pytest.raises(Mistake, match="has no family chain"):
        family.verify(tasks.find_family("chain").sample(0, 0), "1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("aritmetic", "did you mean arithmetic"),
        ("Reverse-Text", "did you mean reverse-text"),
        ("zzzzzz", "give a family, reasoning-gym:NAME"),
        ("chain+aritmetic", "did you mean arithmetic"),
        ("chain+chain", r"names a family twice; give it a weight instead: chain\*2"),
        ("chain*x+sql", "'x' in .* is not a weight; write a positive number"),
        ("chain*0+sql", "'0' in .* is not a weight"),
        ("chain*nan+sql", "'nan' in .* is not a weight"),
        ("chain+", "no task is called ''"),
    ],
)
def test_unknown_task_family_names_and_weights_are_refused(name, said):
    with pytest.raises(Mistake, match=said) as raised:
        tasks.find_family(name)
    assert "\n" not in str(raised.value)
