"""Derive the graph of a trained policy, by tracing the algorithm's own ``act`` or ``recall``.

So every algorithm can be exported, a user's own included, if it uses no operation of JAX that the
graph lacks.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export
from jax.interpreters import partial_eval

from sterling.actor import Past
from sterling.deploy.graph import world_conversion
from sterling.deploy.graph.export_refusals import check_not_drawn, fixed_rows_text
from sterling.deploy.graph.graph_builder import BATCH, GraphBuilder, KeyValue, Value
from sterling.deploy.graph.jaxpr_lowering import lower
from sterling.deploy.graph.policy_graph import (
    PolicyGraph,
    Port,
    Tensor,
    port_name,
    pruned,
    without_needless_broadcasts,
)
from sterling.deploy.graph.sampled_reference import Drawn, evaluate_with_draws
from sterling.envs.hosted.shared_memory import arrange_leaves, space_leaves
from sterling.experience.channels_read import check_reads_no_channels
from sterling.nets.action_heads import Actions
from sterling.problem import critic_only_obs
from sterling.problem.agent_axis import unread_entries
from sterling.problem.joined_path import joined_path
from sterling.training.trained_run import TrainedRun
from sterling.types import Mistake


def trace_policy(run: TrainedRun, seed: int | None = None, sample: bool = False) -> PolicyGraph:
    """Return the graph of one seed's policy (default: the first), from the environment's own
    observations to its actions.

    ``sample``: actions are sampled as in training; the random numbers become inputs. Raise
    :class:`Mistake`, which names it, for an operation that graphs lack.
    """
    if run.settings.speech is not None:
        raise Mistake("Only control policies have a graph, and this run trained a language model.")
    graph = _Tracer(run, seed, sample).graph()
    if graph.with_role("noise") and not sample:
        raise Mistake(
            f"{run.settings.algorithm} draws random numbers for every action, even without "
            "exploring. Add --sample: the numbers become inputs of the file."
        )
    return graph


class _Tracer:
    """Traces one policy; collects the ports of its graph."""

    def __init__(self, run: TrainedRun, seed: int | None, sample: bool, batch: Any = None):
        at = run.place(seed)
        self.algorithm: Any = run.agent.algorithm
        self.world, self.sample = run.world(), sample
        self.state = jax.tree.map(lambda x: x[at], run.agent.state)
        self.builder = GraphBuilder()
        self.batch = batch or jax_export.symbolic_shape(BATCH)[0]
        self.inputs: list[Port] = []
        self.initial = self._initial_past() if hasattr(self.algorithm, "memory") else None
        own = jax.tree.map(lambda x: x[at : at + 1], run.agent)
        check_reads_no_channels(own, self.world.spec, run.settings.algorithm)

    def traced(self, obs: Any) -> Any:
        """Return the jaxpr of (observation, key[, reward, state...]) -> (action[, memory]), without
        what these outputs do not need, such as the action's log-probability."""
        try:
            made = self._act(obs) if self.initial is None else self._recall(obs, self.initial)
        except Exception as error:  # a user's algorithm may raise anything
            if "_DimExpr" in str(error) or "ymbolic dimension" in str(error):
                raise Mistake(fixed_rows_text(error)) from error
            raise
        every = [True] * len(made.jaxpr.outvars)
        needed, _ = partial_eval.dce_jaxpr(made.jaxpr, every, instantiate=True)
        return needed, list(made.consts)

    def graph(self) -> PolicyGraph:
        """Return the graph."""
        obs = self._observation()
        initial, (jaxpr, constants) = self.initial, self.traced(obs[0])
        past = self._past_inputs(initial) if initial is not None else []
        made = lower(jaxpr, constants, [*obs[1], KeyValue(), *past], self.builder)
        actions = len(space_leaves(self.world.spec.action))
        outputs = self._action_outputs(made[:actions])
        state: dict[str, Any] = {}
        if initial is not None:
            outputs += self._state_outputs(made, actions, initial)
            state = dict(zip(_names(initial), map(_row, _kept(initial)), strict=True))
        graph = PolicyGraph(
            self.inputs + self.builder.noise,
            outputs,
            self.builder.constants,
            self.builder.nodes,
            state,
        )
        return _without_unused_ports(without_needless_broadcasts(pruned(graph)))

    def _observation(self) -> tuple[Any, list[Any]]:
        """Return the observation's shapes for tracing, and its leaves in the graph."""
        own = world_conversion.env_obs_space(self.world)
        values = []
        for path, leaf in space_leaves(own):
            name = port_name("obs", path, [port.tensor.name for port in self.inputs])
            dtype = np.dtype(np.float32 if leaf.dtype == np.float64 else leaf.dtype)
            tensor = Tensor(name, (-1, *(leaf.shape or ())), str(dtype))
            limits = world_conversion.input_limits(self.world, path, leaf)
            self.inputs.append(Port(tensor, "obs", joined_path(path), **limits))
            values.append(Value(tensor))
        self.builder.like = values[0]
        values = world_conversion.agent_obs(self.builder, self.world, values)
        values = [self._narrow(each) for each in values]
        seen = critic_only_obs.space_without(self.world.spec.obs, unread_entries(self.world.spec))
        shapes = [self._shape(each.tensor.shape[1:], each.tensor.dtype) for each in values]
        return arrange_leaves(seen, iter(shapes)), values

    def _narrow(self, each: Value) -> Value:
        """Return a leaf in JAX's types, which have 32 bits."""
        dtype = jax.dtypes.canonicalize_dtype(each.tensor.dtype)
        if str(dtype) == each.tensor.dtype:
            return each
        return self.builder.add("cast", [each], each.tensor.shape, dtype)

    def _shape(self, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.batch, *shape), np.dtype(dtype))

    def _act(self, obs: Any) -> Any:
        def act(obs: Any, key: Any) -> Any:
            return self.algorithm.act(self.state, obs, key, explore=self.sample)[0]

        return jax.make_jaxpr(act)(obs, _key_shape())

    def _initial_past(self) -> Past:
        """Return the past before an episode's first step, for a batch of one."""
        begin = partial(self.algorithm.memory, self.state, 1)
        check_not_drawn(begin)
        memory = begin(jax.random.key(0))
        action = Actions.from_space(self.world.spec.action).nothing((1,))
        first = jnp.ones(1, bool)
        return Past(memory, action, jnp.zeros(1), jnp.ones(1), first, self._none(first))

    def _none(self, first: Any) -> dict[str, Any]:
        """Return the channels of a world that reports nothing; no policy here acts by them."""
        channels = self.world.spec.channels
        return {name: jnp.zeros((*first.shape, *x.shape)) for name, x in channels.items()}

    def _recall(self, obs: Any, initial: Past) -> Any:
        """Trace one step with a memory: (observation, key, reward, what is kept) -> (action,
        memory)."""
        form = jax.tree.structure((initial.memory, initial.action, initial.first))

        def recall(obs: Any, key: Any, reward: Any, *kept: Any) -> Any:
            memory, action, first = jax.tree.unflatten(form, kept)
            past = Past(memory, action, reward, jnp.ones_like(reward), first, self._none(first))
            made, after, _ = self.algorithm.recall(self.state, past, obs, key, explore=self.sample)
            return made, after

        shapes = [self._shape(x.shape[1:], x.dtype) for x in _kept(initial)]
        reward = self._shape((), np.float32)
        return jax.make_jaxpr(recall)(obs, _key_shape(), reward, *shapes)

    def _past_inputs(self, initial: Past) -> list[Value]:
        """Add the inputs of a memory, and return them."""
        reward = Tensor("reward", (-1,), "float32")
        kept = [
            Tensor(name, (-1, *x.shape[1:]), str(x.dtype))
            for name, x in zip(_names(initial), _kept(initial), strict=True)
        ]
        self.inputs += [Port(reward, "reward"), *(Port(each, "state") for each in kept)]
        return [Value(each) for each in (reward, *kept)]

    def _action_outputs(self, leaves: list[Any]) -> list[Port]:
        """Return the ports of the actions, in the environment's own form."""
        values = [self.builder.value(self._batched(each)) for each in leaves]
        own = world_conversion.env_actions(self.builder, self.world, values)
        paths = [path for path, _ in space_leaves(self.world.spec.action)]
        if len(own) != len(paths):
            raise Mistake("The policy cannot be exported: its actions have another structure.")
        ports: list[Port] = []
        for each, path in zip(own, paths, strict=True):
            name = port_name("action", path, [port.tensor.name for port in ports])
            tensor = dataclasses.replace(each.tensor, name=name)
            source = each.tensor.name
            ports.append(Port(tensor, "action", joined_path(path), source, keys=tuple(path)))
        return ports

    def _state_outputs(self, made: list[Any], actions: int, initial: Past) -> list[Port]:
        """Return the ports of what is kept for the next step: the memory, the action, and that the
        episode goes on."""
        going_on = self.builder.add("broadcast", [np.zeros(1, bool)], (-1,), bool)
        after = [*made[actions:], *made[:actions], going_on]
        ports = []
        for name, each in zip(_names(initial), after, strict=True):
            value = self.builder.value(self._batched(each))
            tensor = dataclasses.replace(value.tensor, name=f"next_{name}")
            ports.append(Port(tensor, "state", "", value.tensor.name))
        return ports

    def _batched(self, each: Any) -> Any:
        """Return an output as a tensor of the graph, with the batch's axis even if constant."""
        value = self.builder.value(each)
        shape = value.tensor.shape
        if shape and shape[0] == -1:
            return value
        raise Mistake("The policy cannot be exported: an action does not depend on the batch.")


def sampling_reference(run: TrainedRun, seed: int | None) -> Any:
    """Return a function that samples an action as the algorithm does: from an agent's observation,
    the inputs of the graph by name and a key to the agent's action and the noise by name."""
    tracer = _Tracer(run, seed, True, batch=1)
    jaxprs: dict[str, Any] = {}

    def sampled(obs: Any, inputs: dict[str, Any], key: Any) -> tuple[Any, dict[str, np.ndarray]]:
        every = jax.tree.map(lambda x: jnp.asarray(x)[None], obs)
        if not jaxprs:
            jaxprs["act"] = tracer.traced(every)
        kept = []
        if tracer.initial is not None:
            start = dict(zip(_names(tracer.initial), _kept(tracer.initial), strict=True))
            known = {**start, "reward": np.zeros(1, np.float32), **inputs}
            kept = [jnp.asarray(known[name]) for name in ("reward", *start)]
        drawn: Drawn = []
        jaxpr, constants = jaxprs["act"]
        leaves = [*jax.tree.leaves(every), key, *kept]
        made = evaluate_with_draws(jaxpr, constants, leaves, drawn)
        actions = made[: len(space_leaves(tracer.world.spec.action))]
        form = jax.tree.structure(arrange_leaves(tracer.world.spec.action, iter(actions)))
        noise = {f"noise_{at}": x for at, x in enumerate(drawn)}
        return jax.tree.unflatten(form, [np.asarray(x) for x in actions]), noise

    return sampled


def _kept(past: Past) -> list[Any]:
    """Return the arrays that a policy with a memory keeps from step to step."""
    return jax.tree.leaves((past.memory, past.action, past.first))


def _names(past: Past) -> list[str]:
    """Return the names of what is kept."""
    memory = [f"state_{at}" for at in range(len(jax.tree.leaves(past.memory)))]
    actions = range(len(jax.tree.leaves(past.action)))
    return [
        *memory,
        *(f"state_action_{at}" if at else "state_action" for at in actions),
        "state_first",
    ]


def _row(x: Any) -> np.ndarray:
    return np.asarray(np.asarray(x)[0])


def _key_shape() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), jax.random.key(0).dtype)


def _without_unused_ports(graph: PolicyGraph) -> PolicyGraph:
    """Return the graph without parts of the state that no action depends on, and without a reward
    or noise that is not used. Observations stay."""
    while True:
        used = {name for node in graph.nodes for name in node.inputs}
        used |= {port.source for port in graph.outputs}
        unused = {
            port.tensor.name
            for port in graph.inputs
            if port.role != "obs" and port.tensor.name not in used
        }
        if not unused:
            return graph
        graph = pruned(
            dataclasses.replace(
                graph,
                inputs=[p for p in graph.inputs if p.tensor.name not in unused],
                outputs=[
                    p for p in graph.outputs if p.tensor.name.removeprefix("next_") not in unused
                ],
                initial_state={k: x for k, x in graph.initial_state.items() if k not in unused},
            )
        )
