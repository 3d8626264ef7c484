"""Join the runs of several processes into one: their agents, and their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from sterling.report.runs.checked_run_files import check_part_result
from sterling.training.agent import Agent
from sterling.training.config.settings import Settings
from sterling.training.evaluation.save_episodes import save_merged_episodes
from sterling.training.in_process import complete_run
from sterling.training.phases.phase_sequence import last_phase
from sterling.training.processes.merge_results import interleave, merge_results
from sterling.training.saving import checkpoint, run_folder
from sterling.training.trained_run import TrainedRun, load, run_return_bounds


def join_runs(
    settings: Settings, path: Path, paths: list[Path], start: float, *, keep: bool
) -> TrainedRun:
    """Merge the parts' runs into one run, and write it to disk if it is to be kept; ``start``: the
    monotonic time at which they were started."""
    again = None if isinstance(settings.environment, str) else settings.environment
    parts = [load(each, environment=again) for each in paths]
    agent = _join_agents([part.agent for part in parts])
    kept = [part.best_agent for part in parts if part.best_agent is not None]
    best = _join_agents(kept) if kept else None
    results, seconds = [part.result for part in parts], time.monotonic() - start
    for each, part in zip(paths, parts, strict=True):
        check_part_result(run_folder.result_path(each), part.result, len(part.settings.seeds))
    result = merge_results(
        results, settings.envs, seconds, run_return_bounds(settings), settings.failed
    )
    number = result.get("updates", result["steps"])
    agents = {"agent": agent} | ({} if best is None else {"best": best})
    written = checkpoint.save(run_folder.checkpoints_path(path), number, agents, {})
    if keep:
        save_merged_episodes(path, paths, result["seeds"])
        complete_run(path, result, written is not None)
    where = last_phase(settings, result.get("stopped"))
    return TrainedRun(where, agent, result, path if keep else None, best)


def _join_agents(parts: Sequence[Agent]) -> Agent:
    """Return the agents of all parts, in the order of the seeds."""
    stacked: Agent = jax.tree.map(
        lambda *leaves: jnp.stack(interleave([list(leaf) for leaf in leaves])), *parts
    )
    return stacked
