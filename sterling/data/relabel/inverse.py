"""Actions by inverse dynamics (Zheng 2023, "Semi-supervised offline reinforcement learning with
action-free trajectories", arXiv:2210.06518, section 3).

A model of the action between two observations is learned where actions are known, and its likeliest
action is taken where they are not:

    L = -E[ log p(a | s, s' - s) ]        boxes: a normal with the labelled actions' deviation

The mean, or the logits, are a perceptron's output plus a linear map of the same inputs, which for
boxes begins at its least squares: worlds whose steps are linear are learned exactly. Deviations
from the paper: no observations before s are given (they help where one step does not show the
action), and the deviation is not learned.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Shaped

from sterling import keys
from sterling.data import spaces
from sterling.data.chosen import OF_ACTIONS
from sterling.data.columns import Arrays, Block
from sterling.data.dataset import Dataset
from sterling.data.relabel.vectors import Scale, Vectors, alike, rewritten, rows_of
from sterling.nets.distributions import Categorical, MultiCategorical, Normal
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP, Linear
from sterling.nets.optimiser import adam, descend
from sterling.types import AnyArray, Mistake

HELD_OUT = 0.1  # of the labelled rows: whole episodes, and a part of one
AT_ONCE = 1 << 14  # rows that are labelled at a time


class Model(eqx.Module):
    """p(a | s, s' - s), of standardised inputs."""

    net: MLP
    straight: Linear
    actions: Actions = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], inputs: int, width: int, actions: Actions) -> Model:
        """Two hidden layers; nothing comes out yet."""
        outputs = actions.outputs
        net = MLP.orthogonal(key, (inputs, width, width, outputs), "relu", last_scale=0.0)
        straight = Linear(jnp.zeros((inputs, outputs)), jnp.zeros(outputs))
        return cls(net, straight, actions)

    def straightened(
        self, inputs: Float[np.ndarray, "row n"], target: Float[np.ndarray, "row outputs"]
    ) -> Model:
        """With the linear map that fits standardised actions best."""
        weight = np.linalg.lstsq(inputs.astype(np.float64), target.astype(np.float64), 1e-6)[0]
        straight = Linear(jnp.asarray(weight, jnp.float32), self.straight.bias)
        return dataclasses.replace(self, straight=straight)

    def __call__(self, x: Float[Array, "row n"]) -> Categorical | MultiCategorical | Normal:
        """The distribution; of boxes flat, standardised actions."""
        return self.actions.distribution(self.net(x) + self.straight(x))


def inverse_actions(
    unlabelled: Dataset,
    labelled: Dataset,
    *,
    updates: int = 10_000,
    batch: int = 256,
    width: int = 256,
    lr: float = 1e-3,
    seed: int = 0,
) -> Dataset:
    """``unlabelled`` with the likeliest actions of a model learned from ``labelled``.

    The actions of ``unlabelled`` are not looked at: NaN, zeros or another space will do; those
    that are filled in have the space, units and bounds of ``labelled``'s, so that the two can be
    joined by :func:`~sterling.data.concatenate`; what was recorded of the old ones, their
    ``log_prob``, is dropped. ``updates`` of ``batch`` rows with Adam, whose
    step size falls from ``lr`` to 0 along a cosine; ``width``: units of both hidden layers.

    The notes tell the error on a tenth of the labelled rows that was held out. Raises Mistake for
    observations that differ, nested actions, pictures, NaN, and fewer than two labelled rows.
    """
    rows_of(unlabelled, "episodes without actions")
    rows_of(labelled, "labelled episodes")
    alike(unlabelled.obs_space, labelled.obs_space, "obs", "two logs")
    _checked(labelled, (updates, batch, width))
    kind = Actions.of(labelled.spec.action)
    steps, target = _steps(labelled), _targets(labelled, kind)
    train, held = _split(labelled, seed)
    scale = Scale(steps[train])
    units = Scale(target[train]) if kind.kind == "box" else None
    target = target if units is None else units(target)
    key = jax.random.key(seed)
    model = Model.create(keys.fold(key, "model"), steps.shape[1], width, kind)
    data = (scale(steps[train]), target[train])
    model = model if units is None else model.straightened(*data)
    model = fit(model, data, keys.fold(key, "fit"), lr, (updates, batch))
    found = _likeliest(model, scale(_steps(unlabelled)))
    told = _told(_likeliest(model, scale(steps[held])), target[held], kind.kind == "box")
    if units is not None:
        found = found * units.width + units.centre
    stored = spaces.as_stored_acts(labelled.action_space, np.asarray(kind.shaped(found)))

    def change(block: Block, rows: slice) -> Arrays:
        return {"action": stored[rows]}

    note = (
        f"actions are an inverse model's (arXiv:2210.06518), learned from {len(train)} rows with "
        f"hash {labelled.hash[:12]}; on {len(held)} held-out rows {told}"
    )
    facts = unlabelled.facts.noted(note + _left_out(unlabelled))
    return rewritten(unlabelled, labelled.action_space, facts, change, OF_ACTIONS)


@partial(jax.jit, static_argnames="sizes")
def fit(
    model: Model,
    data: tuple[Float[AnyArray, "row n"], Shaped[AnyArray, "row ..."]],
    key: Key[Array, ""],
    lr: Float[Array, ""] | float,
    sizes: tuple[int, int],
) -> Model:
    """The model after updates on the module docstring's L, in one program; ``sizes``: how many,
    and of how many rows each."""
    (inputs, target), (updates, batch) = jax.tree.map(jnp.asarray, data), sizes
    optimiser = adam()

    def loss(model: Model, rows: Int[Array, "batch"]) -> Float[Array, ""]:
        return -jnp.mean(model(inputs[rows]).log_prob(target[rows]))

    def update(
        carry: tuple[Model, object], at: Int[Array, ""]
    ) -> tuple[tuple[Model, object], None]:
        model, state = carry
        rows = jax.random.randint(keys.fold(key, "rows", at), (batch,), 0, len(inputs), jnp.int32)
        direction, state = optimiser.update(jax.grad(loss)(model, rows), state)
        rate = 0.5 * lr * (1.0 + jnp.cos(math.pi * at.astype(jnp.float32) / updates))
        return (descend(model, direction, rate), state), None

    counts = jnp.arange(updates, dtype=jnp.int32)
    (model, _), _ = jax.lax.scan(update, (model, optimiser.init(model)), counts)
    return model


def _checked(labelled: Dataset, sizes: tuple[int, int, int]) -> None:
    if labelled.rows < 2:
        raise Mistake("one labelled row is too few to learn from and to judge by; give more")
    if min(sizes) < 1:
        raise Mistake(f"updates, batch and width are above 0; got {', '.join(map(str, sizes))}")


def _steps(dataset: Dataset) -> Float[np.ndarray, "row n"]:
    """Observations, and what the step changed in them."""
    record, vectors = dataset.transitions(), Vectors(dataset.spec.obs, "observations")
    before = vectors(record.obs)
    return np.concatenate([before, vectors(record.next_obs) - before], 1)


def _targets(dataset: Dataset, kind: Actions) -> Shaped[np.ndarray, "row ..."]:
    """Actions in an agent's units; boxes flat."""
    made = np.asarray(kind.flat(dataset.transitions().action))
    if kind.kind == "box":
        made = made.astype(np.float32)
        if not np.isfinite(made).all():
            raise Mistake("some labelled actions are NaN or infinite; are the files in order?")
    return made


def _split(dataset: Dataset, seed: int) -> tuple[Int[np.ndarray, "train"], Int[np.ndarray, "held"]]:
    """Rows to learn from and rows to judge by: of other episodes, but for one at most."""
    begins = np.cumsum(dataset.lengths) - dataset.lengths
    order = np.random.default_rng(seed).permutation(len(dataset))
    rows = np.concatenate([begins[at] + np.arange(dataset.lengths[at]) for at in order])
    cut = len(rows) - max(int(HELD_OUT * len(rows)), 1)
    return rows[:cut], rows[cut:]


def _likeliest(model: Model, inputs: Float[np.ndarray, "row n"]) -> Shaped[np.ndarray, "row ..."]:
    mode = jax.jit(lambda model, x: model(x).mode())
    parts = [inputs[low : low + AT_ONCE] for low in range(0, len(inputs), AT_ONCE)]
    return np.concatenate([np.asarray(mode(model, part)) for part in parts])


def _left_out(dataset: Dataset) -> str:
    names = [name for name in OF_ACTIONS if name in dataset.columns]
    return f"; {', '.join(names)} spoke of other actions and was left out" if names else ""


def _told(
    found: Shaped[np.ndarray, "row ..."], target: Shaped[np.ndarray, "row ..."], numbers: bool
) -> str:
    """How far off the model is; numbers are in units of the deviation."""
    if not numbers:
        return f"{np.mean(found != target):.2%} of the choices are wrong"
    error = np.sqrt(np.mean(np.square(found - target)))
    return f"the error is {error:.2%} of the actions' deviation"
