"""A trained run: its agents, which can act and be evaluated, and its result."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from sterling.lookup.peer_attributes import AnswersPeerNames
from sterling.problem.channels import Channel, channel_columns, channels_to_json
from sterling.references.return_bounds import return_bounds
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule
from sterling.training.agent import Agent
from sterling.training.assembly.agent_template import agent_template
from sterling.training.assembly.build_run import make_world
from sterling.training.assembly.run_dataset import SpacesWorld
from sterling.training.config.evaluation_interval import needs_evaluations
from sterling.training.config.option_checks import check_load_arguments
from sterling.training.config.settings import Settings
from sterling.training.config.stored_settings import read_settings
from sterling.training.evaluation.evaluate_policy import BEFORE
from sterling.training.evaluation.evaluator import Evaluator
from sterling.training.evaluation.final_estimate import channel_failed_score, final_estimate
from sterling.training.evaluation.metric_rows import episode_means, is_named_reward
from sterling.training.evaluation.save_episodes import save_episodes
from sterling.training.phases.phase_sequence import (
    last_phase,
    plan_phases,
)
from sterling.training.policy_player import Player
from sterling.training.runtime import program_store
from sterling.training.runtime.compilation import enable_compilation_cache
from sterling.training.saving import checkpoint, run_folder
from sterling.training.saving.run_text import run_text
from sterling.training.steering.stop_conditions import TIME_IS_UP
from sterling.types import Mistake

if TYPE_CHECKING:
    from sterling.language.models.causal_lm import LanguageModel
    from sterling.language.tokenizer import Tokenizer
    from sterling.training.evaluation.film_policy import Film


class TrainedRun(AnswersPeerNames):
    """A run that was trained or loaded: its settings, its agents (one per seed), its result."""

    def __init__(
        self,
        settings: Settings,
        agent: Agent,
        result: dict[str, Any],
        path: Path | None,
        best_agent: Agent | None = None,  # of a run that keeps its best policy
    ):
        self.best_agent = best_agent
        self.settings, self.agent, self.result, self.path = settings, agent, result, path
        self.asked: Iterator[int] = itertools.count()  # actions of all players: counts their keys
        self._world: Any = None
        self._players: dict[Any, tuple[Agent, Player]] = {}  # of `policy`, by seed and explore

    def __repr__(self) -> str:
        return run_text(self.settings, self.result, self.path)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the summary, the learning curve and the newest film."""
        from sterling.report.live.live_progress import summary_lines
        from sterling.report.live.notebook_html import summary_html

        return summary_html(summary_lines(self.result, self.path) if self.result else [], self.path)

    def film(
        self, path: str | Path | None = None, *, seed: int | None = None, steps: int = 500
    ) -> Film:
        """Film ``steps`` environment steps of a seed's policy (default: the first's) into ``path``,
        .mp4 or .gif (default: ``play.mp4`` in the run's folder). Notebooks show the result."""
        from sterling.training.evaluation.film_policy import film_policy

        if path is None and self.path is None:
            raise Mistake("The run has no folder. Name a file, as in run.film('play.mp4').")
        where = Path(path) if path is not None else Path(self.path or ".") / "play.mp4"
        return film_policy(self, where, seed=seed, steps=steps)

    def policy(self, obs: Any, seed: int | None = None, explore: bool = False) -> Any:
        """Return the action for one observation, in the forms of a Gymnasium environment, or the
        actions for several, ``(n, ...)``. A language model answers a text, or a list of texts.

        ``seed`` chooses which seed's agent acts (default: the first). If the run stacks frames,
        ``obs`` must contain them. A planner's plan is a new one for every action. Raise
        :class:`Mistake` for other agents with a memory, such as ``dt``.
        """
        if self.settings.speech is not None:
            from sterling.training.language.answer_texts import answer_texts

            return answer_texts(self, obs, seed, explore)
        known = self._players.get((seed, explore))
        if known is None or known[0] is not self.agent:
            if not self.agent.forgetful:
                self.agent.check_memoryless("use run.player()")
            known = self._players[seed, explore] = self.agent, self.player(seed, explore)
        return known[1](obs)

    def player(self, seed: int | None = None, explore: bool = False) -> Player:
        """Return a Player with one seed's agent (default: the first), and its memory."""
        return Player(self, seed, explore)

    @property
    def best(self) -> TrainedRun:
        """Return the run with the policies of each seed's best periodic evaluation in place of the
        last ones. Raise :class:`Mistake` for a run that did not keep them."""
        if self.best_agent is None:
            remedy = "Train with keep='best' (--keep best)."
            raise Mistake(f"{self.path or 'the run'} kept no best policy. {remedy}")
        return TrainedRun(self.settings, self.best_agent, self.result, self.path, self.best_agent)

    def best_policy(self, obs: Any, seed: int | None = None, explore: bool = False) -> Any:
        """Return the action of the best policy: see :meth:`policy` and :attr:`best`."""
        return self.best.policy(obs, seed, explore)

    @property
    def prior(self) -> TrainedRun:
        """Return the run acting without planning, as in ``run.prior.evaluate()``; it has no folder.
        Raise :class:`Mistake` if its algorithm does not plan."""
        if not self.agent.has_prior:
            raise Mistake(f"{self.settings.title} has no prior: it does not plan. Use the run.")
        return TrainedRun(self.settings, self.agent.without_planning(), self.result, None)

    def language_model(self, seed: int | None = None) -> tuple[LanguageModel, Tokenizer]:
        """Return one seed's language model (default: the first) and its tokenizer, in the forms of
        ``sterling.language.load``. The model has the base model's type, though training uses
        float32.

        Raise :class:`Mistake` for a run that trained no language model.
        """
        if self.settings.speech is None:
            raise Mistake(
                f"{self.path or 'the run'} trained no language model. Name a run that did."
            )
        from sterling.language.models.model_weights import with_dtype
        from sterling.training.language.base_model import starting_model

        at = self.place(seed)
        model = jax.tree.map(lambda x: x[at], self.agent.state.model)
        base = starting_model(self.settings.speech.model)
        return with_dtype(model, base.dtype), base.tokenizer

    def place(self, seed: int | None = None) -> int:
        """Return the index of a seed (default: the first); raise Mistake if the run lacks it."""
        seeds = self.settings.seeds
        if seed is not None and seed not in seeds:
            raise Mistake(f"the run has no seed {seed}; it has {', '.join(map(str, seeds))}")
        return 0 if seed is None else seeds.index(seed)

    def evaluate(
        self,
        episodes: int | float = 20,
        *,
        limit: int | None = None,
        failed: FailedRule = None,
        return_within: Bounds | None = None,
        keep: bool = False,
    ) -> dict[str, Any]:
        """Evaluate with deterministic policies, in the same episodes every time. If periodic
        evaluations decided when the run stopped or which policy is the best, the episodes are
        others than theirs, so that the result is not chosen by its own luck. Return each seed's
        mean return and an estimate with its interval; the same for every channel and summary (None:
        no value); for an agent that adapts "return.before", its return without adaptation; and
        "unended": each seed's number of episodes that had not ended after ``limit`` steps (None:
        the run's setting), which count with their return so far.

        ``failed``: what a failed seed counts as (a number, "worst", "exclude"); None: the run's
        setting. ``return_within``: bounds of returns, if not those of the run. ``keep``: write the
        episodes to the run's folder, if it has one, for `sterling show`.
        """
        fresh = self.needs_fresh_episodes
        judge = Evaluator(self.settings, episodes, limit, record=keep, fresh=fresh)
        try:
            with program_store.opened(self.settings):
                every = judge(self.agent)
            if keep and self.path is not None:
                save_episodes(self.path, judge.kept(every, **self._policy_facts()))
            if keep and judge.world is not None and (told := judge.world.spec.channels):
                self.result.setdefault("channels", channels_to_json(told))  # of runs from logs
            declared: dict[str, Any] = {**channel_columns(judge.channels), **judge.summaries}
            declared |= {name: Channel() for name in every if is_named_reward(name)}
        finally:
            judge.close()
        failed_seeds = self.result.get("failed_seeds", [])
        within = run_return_bounds(self.settings) if return_within is None else return_within
        rule = self.settings.failed if failed is None else failed
        seeds, found = self.settings.seeds, {k: episode_means(k, x) for k, x in every.items()}
        unended = (~every["ended"]).sum(1) if "ended" in every else [0] * len(seeds)
        made: dict[str, Any] = {"unended": [int(count) for count in unended]}
        for name in (each for each in ("return", BEFORE) if each in found):
            scores = [float(x) for x in found[name]]
            made[name] = final_estimate(scores, seeds, failed_seeds, within, rule)
        for name, said in declared.items():
            scores = [float(x) for x in found[name]]
            how = (said.within, channel_failed_score(rule, said.within, said.better))
            made[name] = final_estimate(scores, seeds, failed_seeds, *how, better=said.better)
        return made

    @property
    def needs_fresh_episodes(self) -> bool:
        """Whether periodic evaluations, or a callback, decided when the run stopped or which policy
        is the best."""
        stopped = self.result.get("stopped")
        by_callback = stopped is not None and stopped["by"] != TIME_IS_UP
        return bool(needs_evaluations(self.settings)) or by_callback

    def close(self) -> None:
        """Release the world in which policies act, if one was built."""
        if self._world is not None and hasattr(self._world, "close"):
            self._world.close()
        self._world = None

    def _policy_facts(self) -> dict[str, Any]:
        """Return what the file of evaluation episodes says about the final policies."""
        known = {name: self.result.get(name) for name in ("steps", "updates", "failed_seeds")}
        return {"final": True, "step": known["steps"], "update": known["updates"],
                "failed_seeds": known["failed_seeds"] or []}  # fmt: skip

    def world(self) -> Any:
        """Return the run's world, for the forms of its observations and actions only."""
        if self._world is None:
            spaces = self.settings.spaces
            self._world = (
                SpacesWorld(spaces) if spaces else make_world(self.settings, "evaluate", 1)
            )
        return self._world


def load(
    path: str | Path, *, environment: Any = None, algorithm: Any = None, phase: int | None = None
) -> TrainedRun:
    """Load a run's agents and result from its folder. ``environment`` and ``algorithm``: the user's
    objects again, if the run was made with ones that cannot be imported. ``phase``: the phase in
    whose world to evaluate, from 1 on (None: the last); the agents are the same in all phases."""
    check_load_arguments(path=path, environment=environment, algorithm=algorithm)
    path = Path(path)
    settings = read_settings(path, environment, algorithm)
    if settings.speech is not None:
        from sterling.training.language.base_model import with_kept_base

        settings = with_kept_base(settings, path)
    enable_compilation_cache()
    folder, result = run_folder.checkpoints_path(path), run_folder.read_result(path) or {}
    stopped = result.get("stopped")
    template = agent_template(settings, stopped)
    agent, _ = checkpoint.load_subtree(folder, "agent", template)
    best = checkpoint.load_subtree(folder, "best", template)[0] if settings.keep else None
    where = last_phase(settings, stopped)
    if phase is not None:
        found = plan_phases(settings)
        if not 0 < phase <= len(found):
            raise Mistake(f"phase={phase}: {path} has phases 1 to {len(found)}.")
        where = found[phase - 1].settings
    return TrainedRun(where, agent, result, path, best)


def run_return_bounds(settings: Settings) -> Bounds | None:
    """Return the bounds of returns ``(low, high)``: the user's, or those of the environment; None
    if unknown."""
    if settings.return_within is not None or not settings.environment:
        return settings.return_within
    if settings.speech is None:
        return return_bounds(settings.environment, settings.env_options)
    from sterling.training.language.text_world import text_reward_bounds, text_world

    if settings.algorithm == "reward":
        return 0.0, 1.0
    if settings.speech.judge or settings.speech.rewards or settings.speech.agent:
        return None
    return text_reward_bounds(text_world(settings))
