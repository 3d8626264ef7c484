"""Evaluate one run, in its environment or from a dataset: the parts of ``sterling.evaluate``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.statistics import Estimate, Headline
from sterling.statistics.scores.headline import cautions_of
from sterling.system.mistake import Mistake
from sterling.training.trained_run import TrainedRun, load

if TYPE_CHECKING:
    from sterling.data import Dataset

DEFAULT_EPISODES = 20  # per seed
POLICIES = ("last", "best", "prior")  # of a run; prior: a planner's, without planning
METHODS = ("fqe", "model", "is", "wis", "pdis", "wpdis", "dr", "wdr")
LEARNED_METHODS = ("fqe", "model", "dr", "wdr")  # methods that learn a function or a model
ESTIMATOR_OPTIONS = ("updates", "policy", "behaviour")  # options of --method only
LANGUAGE_OPTIONS = ("beside", "samples", "problems", "levels")  # for language models only


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation measured or estimated."""

    title: str  # what the numbers are
    per_seed: Mapping[int, float | None]  # each seed's mean return; empty for estimates from a log
    estimates: Mapping[str, Headline | Estimate]  # by what is estimated, with intervals
    log: str | None = None  # the dataset, if one was used

    def __repr__(self) -> str:
        seeds = [f"seed {seed}: {'failed' if score is None else f'{score:.6g}'}"
                 for seed, score in self.per_seed.items()]  # fmt: skip
        lines = [f"{name}: {_full_text(found)}" for name, found in self.estimates.items()]
        lines += [f"note: {each}" for each in self.cautions]
        return "\n".join([f"Evaluation: {self.title}", *(f"  {line}" for line in seeds + lines)])

    @property
    def cautions(self) -> list[str]:
        """What the seeds of a run cannot exclude; empty for estimates from a log."""
        return cautions_of(each for each in self.estimates.values() if isinstance(each, Headline))

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "title": self.title,
            "log": self.log,
            "per_seed": {str(seed): score for seed, score in self.per_seed.items()},
            "estimates": {name: found.to_json() for name, found in self.estimates.items()},
        }


def _full_text(found: Headline | Estimate) -> str:
    if isinstance(found, Headline):
        return found.full_text()
    return f"{found} ({found.level:.0%}, {found.method})"


def open_run(run: TrainedRun | str | Path, phase: int | None) -> TrainedRun:
    """Return a run, loaded if it is a folder or if it is evaluated in a phase."""
    if isinstance(run, TrainedRun) and phase is None:
        return run
    path = run.path if isinstance(run, TrainedRun) else Path(run)
    if path is None:
        raise Mistake("phase=K needs a run with a folder: train it with out=FOLDER.")
    return load(path, phase=phase)


def chosen_policies(run: TrainedRun, options: dict[str, Any]) -> tuple[TrainedRun, dict[str, Any]]:
    """Return the run with the policies that ``policy`` names, one of ``POLICIES``, and the other
    options; the other words of ``policy`` are for off-policy evaluation."""
    word = options.get("policy")
    if word not in POLICIES:
        return run, options
    return (run if word == "last" else getattr(run, word)), {**options, "policy": None}


def check_options(run: TrainedRun, options: Mapping[str, Any]) -> None:
    """Raise Mistake for options that do not belong together or to this kind of run."""
    given = [name for name, value in options.items() if value is not None]
    if run.settings.speech is None:
        for name in LANGUAGE_OPTIONS:
            if name in given:
                raise Mistake(f"--{name} is for runs that train a language model. Leave it out.")
        _check_estimator_options(options, given)
        return
    if "evaluate_limit" in given:
        raise Mistake("--evaluate-limit does not apply to language models. Leave it out.")
    for name in ("data", "method"):
        if name in given:
            raise Mistake(f"--{name} does not apply to language models. Use --samples N instead.")
    if "episodes" in given and any(name in given for name in LANGUAGE_OPTIONS):
        raise Mistake("--episodes cannot be combined with --samples. Use --problems N instead.")


def _check_estimator_options(options: Mapping[str, Any], given: Sequence[str]) -> None:
    if "method" not in given:
        for name in ESTIMATOR_OPTIONS:
            if name in given:
                raise Mistake(
                    f"--{name} is for off-policy evaluation. Add --method, or leave it out."
                )
        return
    if options["method"] not in METHODS:
        raise Mistake(f"Unknown method {options['method']!r}. Use {', '.join(METHODS)}.")
    if "evaluate_limit" in given:
        raise Mistake(
            "--evaluate-limit is for episodes in the environment, but --method uses none. Leave "
            "out one of them."
        )


def training_log(run: TrainedRun) -> Path | None:
    """Return the dataset that a run was trained from; None if there is none."""
    return None if run.settings.data is None else Path(run.settings.data.path)


def existing(path: Path | None) -> Path | None:
    """Return the path if there is such a file or folder, else None."""
    return path if path is not None and path.exists() else None


def evaluate_returns(run: TrainedRun, episodes: int, how: Mapping[str, Any]) -> Evaluation:
    """Evaluate in the environment: each seed's return, and the mean return and the other channels
    with their intervals."""
    found = run.evaluate(episodes, **how)
    scores = found["return"]["per_seed"]
    estimates = {name: Headline.from_json(one) for name, one in found.items() if name != "unended"}
    where = run.settings.name or "its environment"
    title = f"return of {run.settings.title} in {where}, {episodes} episodes per seed"
    return Evaluation(title, dict(zip(run.settings.seeds, scores, strict=True)), estimates)


def compare_with_log(run: TrainedRun, path: Path, episodes: int, limit: int | None) -> Evaluation:
    """Evaluate in the environment, beside the returns of the dataset and of its cloned behaviour
    policy, sampled and in its mode."""
    from sterling.data import Dataset
    from sterling.evaluation import compare_with_behaviour

    data = Dataset(path)
    found = compare_with_behaviour(run, data, episodes, limit=limit)
    estimates = {
        f"{run.settings.title} (mode)": found.agent,
        "behaviour (sampled)": found.sampled,
        "behaviour (mode)": found.deterministic,
        "log, all episodes": found.dataset,
        "log, best tenth": found.best,
    }
    title = f"return, {episodes} episodes a seed, and of {path} ({len(data)} episodes)"
    per_seed = dict(zip(run.settings.seeds, found.per_seed, strict=True))
    return Evaluation(title, per_seed, estimates, str(path))


def estimate_from_log(run: TrainedRun, path: Path | None, options: Mapping[str, Any]) -> Evaluation:
    """Estimate from the dataset the return of every seed's policy, and of the behaviour policy."""
    data = log_of_run(run, path, options["method"])
    seeds = estimate_seeds(run, data, options)
    found = {f"seed {seed} ({kind})": value for (seed, kind), value in seeds.items()}
    found["behaviour"] = estimate_behaviour(data, options)
    return Evaluation(estimate_title(path, options), {}, found, str(path))


def estimate_title(path: Path | None, options: Mapping[str, Any]) -> str:
    """Return what estimates from a dataset are."""
    gamma, method = options["gamma"], options["method"]
    return f"return discounted by {gamma:g} a step, by {method} from {path}"


def log_of_run(run: TrainedRun, path: Path | None, method: str) -> Dataset:
    """Return the dataset in the spaces of the run's environment; raise Mistake without one."""
    from sterling.data import Dataset
    from sterling.evaluation.off_policy.policy_probabilities import check_same_problem
    from sterling.training.assembly.run_dataset import fit_to_world

    if path is None:
        raise Mistake(f"--method {method} estimates from a dataset. Add --data FILE.")
    world = run.world()
    data = fit_to_world(Dataset(path), world, run.settings.name or "the run", checked=False)
    check_same_problem(world.spec, data.spec)
    return data


def estimate_seeds(
    run: TrainedRun, data: Dataset, options: Mapping[str, Any]
) -> dict[tuple[int, str], Estimate]:
    """Estimate the value of each seed that did not fail: (seed, "mode" or "sampled") -> value."""
    from sterling.evaluation import TrainedPolicy, estimate_policy_value

    method, gamma = options["method"], options["gamma"]
    given = {"updates": options["updates"], "behaviour": options["behaviour"]}
    asked = {name: value for name, value in given.items() if value is not None}
    word = options["policy"] or ("mode" if method in ("fqe", "model") else "sampled")
    failed = run.result.get("failed_seeds", [])
    found: dict[tuple[int, str], Estimate] = {}
    for seed in (seed for seed in run.settings.seeds if seed not in failed):
        policy = TrainedPolicy.from_run(run, data.spec, seed, sampled=word == "sampled")
        kind = "sampled" if policy.sampled else "mode"
        value = estimate_policy_value(policy, data, method, gamma=gamma, seed=seed, **asked)
        found[seed, kind] = value
    return found


def estimate_behaviour(data: Dataset, options: Mapping[str, Any]) -> Estimate:
    """Estimate the value of the dataset's own policy."""
    from sterling.evaluation import behaviour

    beyond = options["method"] in LEARNED_METHODS
    learned = {"updates": options["updates"]} if beyond and options["updates"] else {}
    return behaviour(data, gamma=options["gamma"], beyond=beyond, **learned)
