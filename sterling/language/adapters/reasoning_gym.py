"""The generators of the ``reasoning_gym`` package as task families.

Levels are steps of a data set's curriculum: at level k each of its knobs is at its k-th setting,
or its last. Steps that the data set itself calls invalid are left out; where some lie between
valid ones, the longest row of valid ones is kept. A data set without a curriculum has one level,
its defaults.

Some of its data sets judge an answer by *executing* it (``eval``, or SymPy's ``parse_expr``,
which evaluates). A response is a model's text, so such an answer is judged only if it is a plain
expression that can do nothing but compute. Data sets not known to be safe are refused.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable
from typing import Any

from sterling.language.adapters.worker import Fault, Worker
from sterling.language.task import NOTHING, Task, Verdict, check_level, final_answer, unjudged
from sterling.naming import hint
from sterling.types import Mistake

SECONDS = 5.0  # for a score
POSE = 60.0  # for a task
MEMORY = 4 * 2**30  # bytes
LONGEST = 2_000  # characters of an answer that is executed

# without parentheses, dots and braces there is no call and no attribute: nothing to do harm with
_LITERAL = re.compile(r"[A-Za-z0-9 ,'\"\[\]\n_+-]*")
# words of a formula; all that they can call are SymPy's functions
_FORMULA = re.compile(
    r"(?:(?:sin|cos|tan|exp|log|sqrt|asin|acos|atan|sinh|cosh|tanh|pi|[A-Za-z])(?![A-Za-z_\d])"
    r"|\d{1,12}(?:\.\d{1,12})?(?![.\w])|[-+*/(), \n])*"
)
EXECUTED = {
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _LITERAL),
    **dict.fromkeys(("simple_integration", "intermediate_integration"), _FORMULA),
    **dict.fromkeys(("polynomial_multiplication", "puzzle24", "countdown"), _FORMULA),
}
# these execute only what they made themselves
OWN = {
    *("basic_arithmetic", "bitwise_arithmetic", "gsm_symbolic", "number_sorting", "codeio"),
    "propositional_logic",
}
EXECUTES = re.compile(
    r"(?<![\w.])(?:eval|exec|parse_expr|sympify|compile)\(|\.(?:parse_expr|sympify)\("
)


class ReasoningGym:
    """One data set of the package, e.g. ``ReasoningGym("chain_sum")``.

    The reward is the data set's own score of the final answer ("partly" between 0 and 1), which
    some give for a right form alone. Tasks and scores are made in a process of their own, as some
    data sets hang, and some depend on the order of a set: "timeout" after 5 seconds; "forbidden"
    for an answer that would execute more than a formula.
    """

    def __init__(self, dataset: str):
        gym = package()
        known = sorted(gym.factory.DATASETS)
        if dataset not in known:
            said = hint(dataset, known, "see reasoning_gym.factory.DATASETS")
            raise Mistake(f"reasoning_gym has no data set {dataset!r}{said}")
        if dataset not in EXECUTED and dataset not in OWN and _executes(dataset):
            said = "it may judge answers by executing them; Sterling does not know it"
            raise Mistake(f"reasoning-gym:{dataset} is refused: {said}")
        self.dataset = dataset
        self.name = f"reasoning-gym:{dataset}"
        self.levels = _levels(dataset)

    def sample(self, seed: int, level: int) -> Task:
        """The data set's first entry under this seed and level."""
        check_level(self.name, self.levels, level)
        try:
            question, answer = _worker().ask([self.dataset, seed, level], POSE)
        except Fault as fault:
            said = f"{self.name} cannot pose a task (seed {seed}, level {level})"
            raise Mistake(f"{said}: {fault.detail}; try another level") from fault
        return Task(self.name, seed, level, question, answer)

    def verify(self, task: Task, response: str) -> Verdict:
        """The data set's score of the final answer."""
        answer = final_answer(response)
        if not answer:
            return NOTHING
        allowed = EXECUTED.get(self.dataset)
        if allowed is not None and answer != task.answer and not _harmless(answer, allowed):
            return Verdict(0.0, "forbidden")
        try:
            score = _worker().ask([self.dataset, task.seed, task.level, answer], SECONDS)
        except Fault as fault:
            return unjudged(fault.kind, fault.detail)
        if not 0.0 <= score <= 1.0:
            return Verdict(0.0, f"verifier nonsense: it answered {score}")
        return Verdict(score, "right" if score == 1.0 else "partly" if score > 0.0 else "wrong")

    def solve(self, task: Task) -> str:
        """The data set's own answer; Mistake where it gives none."""
        if not isinstance(task.answer, str):
            raise Mistake(f"{self.name} gives no answers, so there are no demonstrations of it")
        return task.answer


def package() -> Any:
    """The package; raises Mistake where it is not installed."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise Mistake(
            'reasoning-gym tasks need a package more: pip install "sterling-rl[reasoning]"'
        )
    return importlib.import_module("reasoning_gym")


@functools.cache
def _worker() -> Worker:
    return Worker(f"{__name__}:answering", None, SECONDS, MEMORY)


def answering(_: None) -> Callable[[list[Any]], Any]:
    """In the worker: what poses ``[dataset, seed, level]`` and scores an answer behind these."""
    factory = package().factory

    @functools.lru_cache(maxsize=256)
    def entry(dataset: str, seed: int, level: int) -> tuple[Any, dict[str, Any]]:
        settings = {"size": 1, "seed": seed}
        if dataset in factory.CURRICULA:
            made = factory.DATASETS[dataset][0](_configured(dataset, level, settings))
        else:
            made = factory.create_dataset(dataset, **settings)
        return made, made[0]

    def answer(question: list[Any]) -> Any:
        dataset, seed, level, *response = question
        made, posed = entry(dataset, seed, level)
        if not response:
            return posed["question"], posed["answer"]
        return float(made.score_answer(response[0], posed))

    return answer


def _levels(dataset: str) -> range:
    """The levels whose settings the data set accepts; Mistake where it accepts none."""
    curricula = package().factory.CURRICULA
    if dataset not in curricula:
        return range(1)
    knobs = curricula[dataset]().attributes.values()
    count = max((len(knob.levels) for knob in knobs), default=1)
    faults = [_invalid(dataset, level) for level in range(count)]
    rows = [range(first, last) for first in range(count) for last in range(first + 1, count + 1)]
    valid = [row for row in rows if not any(faults[level] for level in row)]
    if not valid:
        said = f"its own curriculum gives settings that it does not accept ({faults[0]})"
        raise Mistake(f"reasoning-gym:{dataset} is refused: {said}; choose another data set")
    return max(valid, key=len)  # of rows as long as each other the first, which is the easiest


def _invalid(dataset: str, level: int) -> str:
    """What the data set says against a level's settings; empty where it accepts them."""
    try:
        config = _configured(dataset, level, {"size": 1, "seed": 0})
        getattr(config, "validate", lambda: None)()  # two have none
    except Exception as error:  # asserted, for the most part
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _configured(dataset: str, level: int, settings: dict[str, Any]) -> Any:
    curriculum = package().factory.CURRICULA[dataset]()
    curriculum.set_global_level(level)
    return curriculum.generate_configuration(settings)


def _executes(dataset: str) -> bool:
    module = inspect.getmodule(package().factory.DATASETS[dataset][0])
    return module is None or bool(EXECUTES.search(inspect.getsource(module)))


def _harmless(answer: str, allowed: re.Pattern[str]) -> bool:
    return len(answer) <= LONGEST and "__" not in answer and bool(allowed.fullmatch(answer))
