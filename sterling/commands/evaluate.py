"""``sterling evaluate FOLDER``: what a trained policy is worth, in the world or from a log."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands import evaluate_language, readers, train

EPISODES = 20  # per seed
METHODS = ("fqe", "model", "is", "wis", "pdis", "wpdis", "dr", "wdr")
OF_MODELS = ("fqe", "model", "dr", "wdr")  # methods that learn


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="of the run")
    add("--episodes", type=readers.integer, metavar="N", help=f"per seed ({EPISODES})")
    ends = "steps after which an episode counts as it stands (those of the run)"
    add("--evaluate-limit", type=readers.integer, metavar="N", help=ends)
    which = "in whose world, of a run of several phases, from 1 on (the last)"
    add("--phase", type=readers.integer, metavar="K", help=which)
    train.judging_options(add)
    log = "a log to compare with (the run's own, if it has learned from one)"
    add("--data", type=Path, metavar="FILE", help=log)
    group = parser.add_argument_group(
        "without a world", "estimates from the log alone; see docs/offpolicy.md"
    )
    add = group.add_argument
    add("--method", choices=METHODS, help="how: fqe suits every policy")
    add("--gamma", type=readers.number, default=0.99, metavar="X", help="discount per step (0.99)")
    learned = "gradient updates of what a method learns (fqe, dr, wdr: 10_000, model: 5000)"
    add("--updates", type=readers.integer, metavar="N", help=learned)
    which = "the policy as it acts by chance, or its mode (fqe, model: mode; others: sampled)"
    add("--policy", choices=("sampled", "mode"), help=which)
    known = "where importance sampling has the log's probabilities from (its log_prob, if it has)"
    add("--behaviour", choices=("logged", "cloned"), help=known)
    evaluate_language.options(parser)


def carry_out(chosen: argparse.Namespace) -> int:
    """Print each seed's number, and what they are to be compared with."""
    import sterling
    from sterling.types import Mistake

    run = sterling.load(chosen.folder, phase=chosen.phase)
    evaluate_language.refuse(chosen, run)
    if evaluate_language.asked(chosen):
        return evaluate_language.carry_out(chosen, run)
    episodes = EPISODES if chosen.episodes is None else chosen.episodes
    path = chosen.data or _own_log(chosen.folder)
    if chosen.method is None:
        for name in ("updates", "policy", "behaviour"):
            if getattr(chosen, name) is not None:
                raise Mistake(f"--{name} is for judging without a world; say --method as well")
        if path is None or (chosen.data is None and not path.exists()):
            if path is not None:
                print(f"its log, {path}, is not there any more; --data FILE says where it is")
            return _plain(run, episodes, chosen)
        return _beside(run, path, episodes, chosen.evaluate_limit)
    if chosen.evaluate_limit is not None:
        raise Mistake("--evaluate-limit is of episodes in the world; leave out it or --method")
    if path is None:
        raise Mistake(f"--method {chosen.method} judges from a log; give --data FILE")
    return _without_world(run, path, chosen)


def _plain(run: Any, episodes: int, chosen: argparse.Namespace) -> int:
    """Each seed's return, and all seeds' with its interval; likewise of the world's channels."""
    from sterling.statistics import Headline

    how = {"failed": chosen.failed, "return_within": chosen.return_within}
    how["limit"] = chosen.evaluate_limit
    found = run.evaluate(episodes, **how)
    scores = found["return"]
    for seed, score in zip(run.settings.seeds, scores["per_seed"], strict=True):
        print(f"seed {seed:<5} {'failed' if score is None else f'{score:.6g}'}")
    made = Headline.from_json(scores)
    print(f"return     {made.explained()}, {episodes} episodes each")
    for name, channel in found.items():
        if name not in ("return", "unended"):
            print(f"{name:<10} {Headline.from_json(channel).explained()}")
    return 0


def _beside(run: Any, path: Path, episodes: int, limit: int | None) -> int:
    """In the world: the agent, the imitated behaviour by chance and in its mode, the log."""
    import sterling
    from sterling.judging import beside_behaviour

    data = sterling.Dataset(path)
    found = beside_behaviour(run, data, episodes, limit=limit)
    for seed, score in zip(run.settings.seeds, found.per_seed, strict=True):
        print(f"seed {seed:<5} {score:.6g}")
    lines = [
        (f"{run.settings.title} (mode)", found.agent),
        ("behaviour (sampled)", found.sampled),
        ("behaviour (mode)", found.deterministic),
        ("log, all episodes", found.dataset),
        ("log, best tenth", found.best),
    ]
    print(f"\nreturn, {episodes} episodes a seed, and of {path} ({len(data)} episodes)")
    _table(lines)
    return 0


def _without_world(run: Any, path: Path, chosen: argparse.Namespace) -> int:
    """From the log: every seed's policy, and the one that made the log."""
    import sterling
    from sterling.judging import Trained, behaviour, judge
    from sterling.judging.policies import same_problem
    from sterling.training.logbook import in_world

    method, world = chosen.method, run.world()
    data = in_world(sterling.Dataset(path), world, run.settings.name or "the run", checked=False)
    same_problem(world.spec, data.spec)
    given = {"updates": chosen.updates, "behaviour": chosen.behaviour}
    asked = {name: value for name, value in given.items() if value is not None}
    word = chosen.policy or ("mode" if method in ("fqe", "model") else "sampled")
    failed = run.result.get("failed_seeds", [])
    lines = []
    for seed in (seed for seed in run.settings.seeds if seed not in failed):
        policy = Trained.of(run, data.spec, seed, sampled=word == "sampled")
        kind = "sampled" if policy.sampled else "mode"
        found = judge(policy, data, method, gamma=chosen.gamma, seed=seed, **asked)
        lines.append((f"seed {seed} ({kind})", found))
    beyond = method in OF_MODELS
    learned = {"updates": chosen.updates} if beyond and chosen.updates else {}
    of_log = behaviour(data, gamma=chosen.gamma, beyond=beyond, **learned)
    lines.append(("behaviour", of_log))
    print(f"return discounted by {chosen.gamma:g} a step, by {method} from {path}")
    _table(lines)
    return 0


def _own_log(folder: Path) -> Path | None:
    """The log that a run has learned from, as its configuration says."""
    from sterling.training.folder import read_config

    said = read_config(folder).get("data")
    said = said.get("path") if isinstance(said, dict) else said
    return Path(said) if said else None


def _table(lines: list[tuple[str, Any]]) -> None:
    """Names, estimates, and what their intervals are."""
    left, middle = (max(len(str(line[at])) for line in lines) for at in (0, 1))
    for name, found in lines:
        print(f"{name:<{left}}  {found!s:<{middle}}  {found.level:.0%}, {found.method}")
