"""Data sets of the ``reasoning_gym`` package as task families.

Levels are steps of a data set's curriculum: at level k each of its settings has its k-th value, or
its last. Steps that the data set itself calls invalid are left out; if some lie between valid ones,
the longest run of valid steps is kept. A data set without a curriculum has one level, its defaults.

Some data sets judge an answer by *executing* it (``eval``, or SymPy's ``parse_expr``, which
evaluates). A response is a model's text, so such an answer is judged only if it is a plain
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

from sterling.language.adapters.answer_worker import Worker, WorkerFault
from sterling.language.task import (
    NO_ANSWER,
    Task,
    Verdict,
    check_level,
    fault_verdict,
    final_answer,
)
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake

SECONDS = 5.0  # time limit of a score
POSE_SECONDS = 60.0  # time limit of a task
MEMORY = 4 * 2**30  # bytes
MAX_CHARACTERS = 2_000  # of an answer that is executed

# without parentheses, dots and braces there is no call and no attribute, so it can do no harm
_LITERAL = re.compile(r"[A-Za-z0-9 ,'\"\[\]\n_+-]*")
# a formula; it can call SymPy's functions alone
_FORMULA = re.compile(
    r"(?:(?:sin|cos|tan|exp|log|sqrt|asin|acos|atan|sinh|cosh|tanh|pi|[A-Za-z])(?![A-Za-z_\d])"
    r"|\d{1,12}(?:\.\d{1,12})?(?![.\w])|[-+*/(), \n])*"
)
EXECUTED_ANSWERS = {
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _LITERAL),
    **dict.fromkeys(("simple_integration", "intermediate_integration"), _FORMULA),
    **dict.fromkeys(("polynomial_multiplication", "puzzle24", "countdown"), _FORMULA),
}
# data sets that execute only what they made themselves
EXECUTES_OWN_CODE = {
    *("basic_arithmetic", "bitwise_arithmetic", "gsm_symbolic", "number_sorting", "codeio"),
    "propositional_logic",
}
EXECUTES = re.compile(
    r"(?<![\w.])(?:eval|exec|parse_expr|sympify|compile)\(|\.(?:parse_expr|sympify)\("
)


class ReasoningGym:
    """One data set of the package, e.g. ``ReasoningGym("chain_sum")``.

    The reward is the data set's own score of the final answer ("partly" between 0 and 1); some data
    sets reward a right form alone. Tasks and scores are made in a process of their own, because
    some data sets hang, and some depend on the order of a set: "timeout" after 5 seconds;
    "forbidden" for an answer that would execute more than a formula.
    """

    def __init__(self, dataset: str):
        gym = import_package()
        known = sorted(gym.factory.DATASETS)
        if dataset not in known:
            near = did_you_mean(dataset, known, "see reasoning_gym.factory.DATASETS")
            raise Mistake(f"reasoning_gym has no data set {dataset!r}{near}")
        if (
            dataset not in EXECUTED_ANSWERS
            and dataset not in EXECUTES_OWN_CODE
            and _executes_answers(dataset)
        ):
            detail = "it may execute answers and is not known to be safe; choose another"
            raise Mistake(f"reasoning-gym:{dataset} is refused: {detail}")
        self.dataset = dataset
        self.name = f"reasoning-gym:{dataset}"
        self.levels = _valid_levels(dataset)

    def sample(self, seed: int, level: int) -> Task:
        """Return the data set's first entry under this seed and level, as a task."""
        check_level(self.name, self.levels, level)
        try:
            question, answer = _worker().ask([self.dataset, seed, level], POSE_SECONDS)
        except WorkerFault as fault:
            detail = f"{self.name} cannot pose a task (seed {seed}, level {level})"
            raise Mistake(f"{detail}: {fault.detail}; try another level") from fault
        return Task(self.name, seed, level, question, answer)

    def verify(self, task: Task, response: str) -> Verdict:
        """Judge the final answer by the data set's score."""
        answer = final_answer(response)
        if not answer:
            return NO_ANSWER
        allowed = EXECUTED_ANSWERS.get(self.dataset)
        if allowed is not None and answer != task.answer and not _is_harmless(answer, allowed):
            return Verdict(0.0, "forbidden")
        try:
            score = _worker().ask([self.dataset, task.seed, task.level, answer], SECONDS)
        except WorkerFault as fault:
            return fault_verdict(fault.kind, fault.detail)
        if not 0.0 <= score <= 1.0:
            return Verdict(0.0, f"verifier nonsense: it answered {score}")
        return Verdict(score, "right" if score == 1.0 else "partly" if score > 0.0 else "wrong")

    def solve(self, task: Task) -> str:
        """Return the data set's own answer; Mistake if it gives none."""
        if not isinstance(task.answer, str):
            raise Mistake(f"{self.name} gives no answers to imitate; give a file: texts=FILE")
        return task.answer


def import_package() -> Any:
    """Return the package; raises Mistake if it is not installed."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise Mistake(
            'reasoning-gym tasks need more packages: pip install "sterling-rl[reasoning]"'
        )
    return importlib.import_module("reasoning_gym")


@functools.cache
def _worker() -> Worker:
    return Worker(f"{__name__}:make_answerer", None, SECONDS, MEMORY)


def make_answerer(_: None) -> Callable[[list[Any]], Any]:
    """Return the function that makes the task ``[dataset, seed, level]``, or scores an answer that
    follows these; called in the worker's process."""
    factory = import_package().factory

    @functools.lru_cache(maxsize=256)
    def entry(dataset: str, seed: int, level: int) -> tuple[Any, dict[str, Any]]:
        settings = {"size": 1, "seed": seed}
        if dataset in factory.CURRICULA:
            made = factory.DATASETS[dataset][0](_level_config(dataset, level, settings))
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


def _valid_levels(dataset: str) -> range:
    """Return the levels whose settings the data set accepts; Mistake if it accepts none."""
    curricula = import_package().factory.CURRICULA
    if dataset not in curricula:
        return range(1)
    knobs = curricula[dataset]().attributes.values()
    count = max((len(knob.levels) for knob in knobs), default=1)
    faults = [_level_fault(dataset, level) for level in range(count)]
    rows = [range(first, last) for first in range(count) for last in range(first + 1, count + 1)]
    valid = [row for row in rows if not any(faults[level] for level in row)]
    if not valid:
        detail = f"its own curriculum gives settings that it does not accept ({faults[0]})"
        raise Mistake(f"reasoning-gym:{dataset} is refused: {detail}; choose another data set")
    return max(valid, key=len)  # of equally long ones the first, which is the easiest


def _level_fault(dataset: str, level: int) -> str:
    """Return why the data set does not accept a level's settings; empty if it accepts them."""
    try:
        config = _level_config(dataset, level, {"size": 1, "seed": 0})
        getattr(config, "validate", lambda: None)()  # two data sets have none
    except Exception as error:  # an AssertionError, mostly
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _level_config(dataset: str, level: int, settings: dict[str, Any]) -> Any:
    curriculum = import_package().factory.CURRICULA[dataset]()
    curriculum.set_global_level(level)
    return curriculum.generate_configuration(settings)


def _executes_answers(dataset: str) -> bool:
    module = inspect.getmodule(import_package().factory.DATASETS[dataset][0])
    return module is None or bool(EXECUTES.search(inspect.getsource(module)))


def _is_harmless(answer: str, allowed: re.Pattern[str]) -> bool:
    return len(answer) <= MAX_CHARACTERS and "__" not in answer and bool(allowed.fullmatch(answer))
