"""What training leaves: agents that act, and a result that can be looked at."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from sterling.channels import columns
from sterling.notice import say
from sterling.references.bounds import return_bounds
from sterling.statistics import headline
from sterling.statistics.declared import Bounds, worst
from sterling.statistics.scores import Failed
from sterling.training import checkpoint, folder
from sterling.training.agent import Agent
from sterling.training.checks import check_again
from sterling.training.judge import Judge
from sterling.training.logbook import Unlived
from sterling.training.phases import iterations, last, parts
from sterling.training.player import Player
from sterling.training.programs import remember_programs
from sterling.training.settings import Settings
from sterling.training.start import create_agent, make_world
from sterling.training.stored import read_settings
from sterling.types import Mistake, Spec

if TYPE_CHECKING:
    from sterling.language.model import LanguageModel
    from sterling.language.tokenizer import Tokenizer


class TrainedRun:
    """A run that was trained or loaded: its settings, its agents (one per seed), its result."""

    def __init__(self, settings: Settings, agent: Agent, result: dict[str, Any], path: Path | None):
        self.settings, self.agent, self.result, self.path = settings, agent, result, path
        self.asked = itertools.count()  # actions so far, of all players: each has its own chance
        self._world: Any = None

    def __repr__(self) -> str:
        measured = self.result.get("final", {}).get("return")
        return f"TrainedRun({self.settings.title}, {self.settings.name}, return={measured})"

    def policy(self, obs: Any, seed: int | None = None, explore: bool = False) -> Any:
        """The action for one observation, both as a Gymnasium environment gives and takes them, or
        the actions for several, ``(n, ...)``.

        ``seed`` chooses which seed's agent acts (default: the first). Where the run stacks frames,
        ``obs`` must hold them. Raises :class:`Mistake` for agents that remember, as ``dt``'s do.
        """
        self.agent.needs_no_memory("let run.player() act")
        return self.player(seed, explore)(obs)

    def player(self, seed: int | None = None, explore: bool = False) -> Player:
        """One seed's agent (default: the first) at play, with what it remembers of an episode."""
        return Player(self, seed, explore)

    def language_model(self, seed: int | None = None) -> tuple[LanguageModel, Tokenizer]:
        """What one seed (default: the first) was taught, as ``sterling.language.load`` gives it:
        in the type of the folder that it began with, though float32 is what learns.

        Raises :class:`Mistake` for a run that taught no language model.
        """
        if self.settings.speech is None:
            raise Mistake(f"{self.path or 'the run'} taught no language model")
        from sterling.language.weights import typed
        from sterling.training import speech

        at = self.place(seed)
        model = jax.tree.map(lambda x: x[at], self.agent.state.model)
        begun = speech.start(self.settings.speech.model)
        return typed(model, begun.dtype), begun.tokenizer

    def place(self, seed: int | None = None) -> int:
        """Which of the run's seeds that is (default: the first); a Mistake where it is none."""
        seeds = self.settings.seeds
        if seed is not None and seed not in seeds:
            raise Mistake(f"the run has no seed {seed}; it has {', '.join(map(str, seeds))}")
        return 0 if seed is None else seeds.index(seed)

    def evaluate(
        self,
        episodes: int | float = 20,
        *,
        limit: int | None = None,
        failed: Failed = None,
        return_within: Bounds | None = None,
    ) -> dict[str, Any]:
        """Deterministic episodes, the same ones every time: each seed's mean return, and their
        estimate with interval; likewise of every channel that the environment reports; under
        "unended" how many episodes of each seed had not come to their end within ``limit`` steps
        (None: as the run was asked). They count as they stood.

        ``failed``: what a failed seed counts as (a number, "worst", "exclude"); None: as the run
        was asked. ``return_within``: the bounds of returns, where they are not those of the run.
        """
        judge = Judge(self.settings, episodes, limit)
        try:
            every = judge(self.agent)
            channels = columns(judge.channels)
        finally:
            judge.close()
        lost = self.result.get("failed_seeds", [])
        within = bounds(self.settings) if return_within is None else return_within
        rule = self.settings.failed if failed is None else failed
        seeds, found = self.settings.seeds, {name: x.mean(1) for name, x in every.items()}
        unended = (~every["ended"]).sum(1) if "ended" in every else [0] * len(seeds)
        made: dict[str, Any] = {"unended": [int(count) for count in unended]}
        scores = [float(x) for x in found["return"]]
        made["return"] = final(scores, seeds, lost, within, rule)
        for name, channel in channels.items():
            scores = [float(x) for x in found[name]]
            how = (channel.within, of_channel(rule, channel.within, channel.better))
            made[name] = final(scores, seeds, lost, *how, better=channel.better)
        return made

    def world(self) -> Any:
        """The run's world, of which only the forms of observations and actions are to be asked."""
        if self._world is None:
            spaces = self.settings.spaces
            self._world = Unlived(spaces) if spaces else make_world(self.settings, "evaluate", 1)
        return self._world


def load(
    path: str | Path, *, environment: Any = None, algorithm: Any = None, phase: int | None = None
) -> TrainedRun:
    """A run's agents and result, from its folder; ``environment`` and ``algorithm``: the user's own
    again, where the run was made with what cannot be imported. ``phase``: in whose world the agents
    are to be judged, from 1 on (None: the last); they are the same in any."""
    check_again(path=path, environment=environment, algorithm=algorithm)
    path = Path(path)
    settings = read_settings(path, environment, algorithm)
    if settings.speech is not None:
        from sterling.training.begun import owned

        settings = owned(settings, path)
    remember_programs()
    template = _template(settings)
    agent, _ = checkpoint.load_part(folder.checkpoints(path), "agent", template)
    where = last(settings)
    if phase is not None:
        found = parts(settings)
        if not 0 < phase <= len(found):
            raise Mistake(f"{path} has no phase {phase}; it has {len(found)}")
        where = found[phase - 1].settings
    return TrainedRun(where, agent, folder.read_result(path) or {}, path)


def _template(settings: Settings) -> Agent:
    """Agents of the right form, to be filled with what was learned."""
    if settings.speech is None:
        agent = create_agent(settings, _problem(settings))
        for part in parts(settings)[1:] if settings.phases else ():
            agent = agent.with_fields(part.settings.config, part.fields)
        return agent
    from sterling.training import speech

    return speech.template(settings)


def _problem(settings: Settings) -> Spec:
    """What the agents were made for, whether or not their log is still there."""
    known: Any = {"envs": settings.envs, "iterations": iterations(settings)}
    if settings.spaces:
        return dataclasses.replace(Unlived(settings.spaces).spec, **known)
    world = make_world(settings, "evaluate", 1)
    try:
        return dataclasses.replace(world.spec, **known)
    finally:
        world.close()


def bounds(settings: Settings) -> Bounds | None:
    """Return what returns cannot leave, ``(low, high)``; None where nothing is known: as the user
    declared, or by the rules of the environment. A verdict on a text lies between 0 and 1, and each
    turn has one."""
    if settings.return_within is not None:
        return settings.return_within
    if settings.speech is None:
        return return_bounds(settings.environment, settings.env_options)
    from sterling.training import speech

    turns = 1 if settings.algorithm == "reward" else speech.world(settings).turns
    return 0.0, float(turns)


def of_channel(failed: Failed, within: Bounds | None, better: int) -> Failed:
    """Return what a failed seed of a channel counts as, where of returns it is ``failed``: a number
    is one of returns, and the worst may not be known."""
    known = failed == "worst" and worst(within, better) is not None
    return failed if known or failed == "exclude" else None


def final(
    scores: Sequence[float | None],
    seeds: Sequence[int],
    lost: Sequence[int],
    within: Bounds | None = None,
    failed: Failed = None,
    *,
    better: int = 1,
) -> dict[str, Any]:
    """Per-seed scores and what may be said of them (``statistics/headline.py``): an estimate, or
    where seeds are ``lost`` and ``failed`` does not say what they count as, none."""
    per_seed = [None if s in lost else x for s, x in zip(seeds, scores, strict=True)]
    made = headline(per_seed, failed=failed, within=within, better=better)
    for part in made.shown.method.split("; ") if made.shown is not None else []:
        if part.startswith("declared"):
            say(f"returns: {part}")
    return made.to_json()
