"""Check an exported policy against the run's own: the same actions on recorded observations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys
from sterling.deploy.formats.tensor_files import describe_graph
from sterling.deploy.graph import world_conversion
from sterling.deploy.graph.policy_graph import PolicyGraph
from sterling.deploy.graph.policy_trace import sampling_reference
from sterling.deploy.policy_numpy import Policy, entry
from sterling.problem.action_choices import ACTION_MASK, masked_choices, without_option
from sterling.training.assembly.build_run import make_world
from sterling.training.trained_run import TrainedRun
from sterling.types import Mistake

DEFAULT_STEPS = 300
TOLERANCE = 1e-4  # of actions, relative to their size where that is above 1
TIE = 1e-4  # choices whose scores differ by less are equally good

Runner = Callable[[dict[str, Any]], dict[str, Any]]  # inputs by name -> outputs by name


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One step: what the policy was given, and the action it chose."""

    obs: Any  # in the environment's own form
    agent_obs: Any  # in the agent's form
    action: Any
    reward: float  # of the action before
    begins: bool  # the episode begins here


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How far a file's actions are from the run's own."""

    steps: int
    largest: float  # difference of an action's entries; of choices: 1 where they differ
    ties: int  # steps in which a choice differs from an equally good one
    source: str  # where the observations come from

    def to_json(self) -> dict[str, Any]:
        """Return it for a file's metadata."""
        return dataclasses.asdict(self)


def record_steps(run: TrainedRun, seed: int | None, steps: int) -> tuple[list[Recorded], str]:
    """Return what the run's policy does in its own environment, and where that was; random
    observations of its space if the run names no environment."""
    if not run.settings.environment:
        return _random_steps(run, seed, steps), "random observations of the space"
    settings = dataclasses.replace(run.settings, seeds=(run.settings.seeds[run.place(seed)],))
    world = make_world(settings, "evaluate", 1)
    try:
        return list(_played(run, seed, world, steps)), settings.name
    finally:
        world.close()


def _played(run: TrainedRun, seed: int | None, world: Any, steps: int) -> Any:
    player, seeds = run.player(seed), jnp.asarray([0], jnp.int32)
    step = jax.jit(world.step) if world.traced else world.step
    reset = jax.jit(world.reset) if world.traced else world.reset
    state, obs = reset(random_keys.for_seeds(seeds, "export-reset", 0))
    reward, begins = 0.0, True
    for at in range(steps):
        one = jax.tree.map(lambda x: np.asarray(x)[0, 0], obs)
        action = player.act(one)
        every = jax.tree.map(lambda x: np.asarray(x)[None, None], action)
        own = world.to_world(every) if hasattr(world, "to_world") else every
        seen = world_conversion.to_env_obs(world, one)
        chosen = jax.tree.map(lambda x: np.asarray(x)[0, 0], own)
        yield Recorded(seen, one, chosen, reward, begins)
        keys = random_keys.for_seeds(seeds, "export-step", at)
        state, answer = step(state, every, keys)
        reward, begins = float(np.ravel(answer.reward)[0]), bool(np.ravel(answer.last)[0])
        player.notice(reward, begins)
        if begins:  # the next step resets, and ignores its action
            state, answer = step(state, every, random_keys.fold_each(keys, "reset"))
            reward = 0.0
        obs = answer.obs


def _random_steps(run: TrainedRun, seed: int | None, steps: int) -> list[Recorded]:
    """Return the actions for random observations, one episode."""
    player, space = run.player(seed), world_conversion.env_obs_space(run.world())
    space.seed(0)
    made = []
    for at in range(steps):
        obs = _with_options(run.world(), jax.tree.map(_within_reach, space.sample()))
        made.append(Recorded(obs, obs, player(obs), 0.0, at == 0))
        player.notice(0.0, False)
    return made


def _with_options(world: Any, obs: Any) -> Any:
    """Return a sampled observation; a choice that its action mask leaves without an option may
    choose freely."""
    if not (isinstance(obs, dict) and ACTION_MASK in obs):
        return obs
    mask = obs[ACTION_MASK]
    sizes = masked_choices(world_conversion.env_action_space(world), mask.shape)
    free = np.repeat(without_option(mask.ravel(), sizes), sizes).reshape(mask.shape)
    return {**obs, ACTION_MASK: np.where(free, 1, mask).astype(mask.dtype)}


def _within_reach(x: Any) -> Any:
    """Return a sampled entry, not further than 10 from 0: samples of wide boxes are huge."""
    x = np.asarray(x)
    return np.clip(x, -10.0, 10.0).astype(x.dtype) if x.dtype.kind == "f" else x


def compare_actions(
    graph: PolicyGraph, runner: Runner, rows: list[Recorded], source: str, sampled: Any = None
) -> Agreement:
    """Return how far the outputs of ``runner`` are from recorded actions.

    A choice between scores that are equal up to rounding may differ. ``sampled``: returns the
    action to expect and the noise, for a row, its inputs and its number.
    """
    largest, ties = 0.0, 0
    state: dict[str, Any] = {}
    exact = numpy_policy(graph)
    for at, row in enumerate(rows):
        if row.begins or not state:
            state = {name: np.asarray(x)[None] for name, x in graph.initial_state.items()}
        inputs, expected = named_inputs(graph, row, state), row.action
        if sampled:
            expected, noise = sampled(row, inputs, at)
            inputs |= {
                port.tensor.name: noise[port.tensor.name] for port in graph.with_role("noise")
            }
        outputs = runner(inputs)
        off = max(_difference(port, outputs, expected) for port in _actions(graph))
        if off > TOLERANCE and _is_tie(graph, exact, inputs):
            ties, off = ties + 1, 0.0
        largest = max(largest, off)
        state = {k.removeprefix("next_"): x for k, x in outputs.items() if k.startswith("next_")}
    return Agreement(len(rows), largest, ties, source)


def _is_tie(graph: PolicyGraph, exact: Policy, inputs: dict[str, Any]) -> bool:
    """Whether the two best scores of a choice are equal up to rounding."""
    values = exact.every_value(inputs)
    for node in graph.nodes:
        if node.operation in ("argmax", "argmin"):
            scores = np.moveaxis(values[node.inputs[0]], node.attributes["axis"], -1)
            scores = -scores if node.operation == "argmin" else scores
            best = np.sort(scores, -1)[..., ::-1]
            size = np.maximum(1.0, np.abs(best[..., :1]))
            if best.shape[-1] > 1 and ((best[..., 0] - best[..., 1]) < TIE * size[..., 0]).any():
                return True
    return False


def numpy_policy(graph: PolicyGraph, metadata: dict[str, Any] | None = None) -> Policy:
    """Return a graph as a policy that NumPy runs, without writing a file."""
    start = {f"initial/{name}": np.asarray(x) for name, x in graph.initial_state.items()}
    parts = describe_graph(graph, metadata or {}), {**graph.constants, **start}
    return Policy(None, parts)


def sampled_actions(run: TrainedRun, seed: int | None) -> Any:
    """Return what :func:`compare_actions` expects of sampled actions."""
    draw, world = sampling_reference(run, seed), run.world()

    def expected(row: Recorded, inputs: dict[str, Any], at: int) -> tuple[Any, dict[str, Any]]:
        action, noise = draw(row.agent_obs, inputs, jax.random.key(at))
        own = world.to_world(action) if hasattr(world, "to_world") else action
        return jax.tree.map(lambda x: np.asarray(x)[0], own), noise

    return expected


def named_inputs(graph: PolicyGraph, row: Recorded, state: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a step by name, as a batch of one."""
    made = dict(state)
    for port in graph.inputs:
        if port.role == "obs":
            leaf = np.asarray(entry(row.obs, port.path), port.tensor.dtype)
            made[port.tensor.name] = leaf[None]
        elif port.role == "reward":
            made[port.tensor.name] = np.asarray([row.reward], np.float32)
    return made


def _actions(graph: PolicyGraph) -> list[Any]:
    return [port for port in graph.outputs if port.role == "action"]


def _difference(port: Any, outputs: dict[str, Any], action: Any) -> float:
    """Return the largest difference of an action's entries, relative where they are above 1."""
    mine = np.asarray(outputs[port.tensor.name], np.float64)[0]
    own = np.asarray(entry(action, port.path), np.float64)
    if mine.shape != own.shape:
        raise Mistake(f"the exported policy's actions have shape {mine.shape}, not {own.shape}")
    gap = np.abs(mine - own) / np.maximum(1.0, np.abs(own))
    return float(gap.max(initial=0.0)) if np.isfinite(mine).all() else float("inf")
