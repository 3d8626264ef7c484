"""Label actions by inverse dynamics (Zheng 2023, "Semi-supervised offline reinforcement learning
with action-free trajectories", arXiv:2210.06518, section 3).

A model of the action between two observations is learned on episodes with actions; its most
probable action is filled in on the others:

    L = -E[ log p(a | s, s' - s) ]        boxes: a normal with the labelled actions' deviation

The mean, or the logits, are the output of an MLP plus a linear map of the same inputs. For boxes
the linear map starts at the least-squares solution, so linear dynamics are learned exactly.
Deviations from the paper: the model does not see observations before s (they help where one step
does not determine the action), and the deviation is not learned.
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

from sterling import random_keys
from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.recorded_actions import ACTION_EXTRAS
from sterling.data.relabel.episode_vectors import (
    Standardiser,
    Vectoriser,
    check_rows,
    check_same_spaces,
    replace_columns,
)
from sterling.nets.action_heads import Actions
from sterling.nets.distributions import ActionDistribution
from sterling.nets.mlp import MLP, Linear
from sterling.nets.optimiser import adam, descend
from sterling.types import AnyArray, Mistake

HELD_OUT = 0.1  # share of the labelled rows: whole episodes, and a part of one
ROWS_AT_ONCE = 1 << 14  # rows labelled at a time


class InverseModel(eqx.Module):
    """The inverse dynamics model p(a | s, s' - s) of standardised inputs."""

    net: MLP
    straight: Linear
    actions: Actions = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], inputs: int, width: int, actions: Actions) -> InverseModel:
        """Initialise a model with two hidden layers whose outputs are all 0."""
        outputs = actions.outputs
        net = MLP.orthogonal(key, (inputs, width, width, outputs), "relu", last_scale=0.0)
        straight = Linear(jnp.zeros((inputs, outputs)), jnp.zeros(outputs))
        return cls(net, straight, actions)

    def with_linear_fit(
        self, inputs: Float[np.ndarray, "row n"], target: Float[np.ndarray, "row outputs"]
    ) -> InverseModel:
        """Return the model with the least-squares linear map from inputs to actions."""
        weight = np.linalg.lstsq(inputs.astype(np.float64), target.astype(np.float64), 1e-6)[0]
        straight = Linear(jnp.asarray(weight, jnp.float32), self.straight.bias)
        return dataclasses.replace(self, straight=straight)

    def __call__(self, x: Float[Array, "row n"]) -> ActionDistribution:
        """Return the distribution of actions; for boxes, of flat standardised actions."""
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
    """Label ``unlabelled`` with the most probable actions of a model learned from ``labelled``.

    The actions of ``unlabelled`` are ignored: NaN, zeros or another space will do, and their
    ``log_prob`` is dropped. The new actions have the space, units and bounds of ``labelled``, so
    that :func:`~sterling.data.concatenate` can join the two. Training makes ``updates`` of
    ``batch`` rows with Adam, whose step size falls from ``lr`` to 0 along a cosine; ``width``:
    units of both hidden layers.

    A note states the error on a tenth of the labelled rows that was held out. Raises Mistake for
    different observation spaces, nested actions, pictures, NaN, and fewer than two labelled rows.
    """
    _check_arguments(unlabelled, labelled, (updates, batch, width))
    kind = Actions.from_space(labelled.spec.action)
    steps, target = _model_inputs(labelled), _model_targets(labelled, kind)
    train, held = _split_rows(labelled, seed)
    scale = Standardiser(steps[train])
    units = Standardiser(target[train]) if kind.kind == "box" else None
    target = target if units is None else units(target)
    key = jax.random.key(seed)
    model = InverseModel.create(random_keys.fold(key, "model"), steps.shape[1], width, kind)
    data = (scale(steps[train]), target[train])
    model = model if units is None else model.with_linear_fit(*data)
    model = fit_model(model, data, random_keys.fold(key, "fit"), lr, (updates, batch))
    found = _predict_actions(model, scale(_model_inputs(unlabelled)))
    held_out = _predict_actions(model, scale(steps[held]))
    error = _error_text(held_out, target[held], units is not None)
    if units is not None:
        found = found * units.width + units.centre
    stored = space_json.to_stored_action(labelled.action_space, np.asarray(kind.shaped(found)))

    note = (
        f"actions are an inverse model's (arXiv:2210.06518), learned from {len(train)} rows with "
        f"hash {labelled.hash[:12]}; on {len(held)} held-out rows {error}"
    )
    facts = unlabelled.facts.with_notes(note + _dropped_columns_note(unlabelled))
    space = labelled.action_space
    return replace_columns(
        unlabelled, space, facts, lambda block, rows: {"action": stored[rows]}, ACTION_EXTRAS
    )


@partial(jax.jit, static_argnames="sizes")
def fit_model(
    model: InverseModel,
    data: tuple[Float[AnyArray, "row n"], Shaped[AnyArray, "row ..."]],
    key: Key[Array, ""],
    lr: Float[Array, ""] | float,
    sizes: tuple[int, int],
) -> InverseModel:
    """Train the model on the loss L of the module docstring, in one compiled program; ``sizes``:
    the number of updates, and the rows of each batch."""
    (inputs, target), (updates, batch) = jax.tree.map(jnp.asarray, data), sizes
    optimiser = adam()

    def loss(model: InverseModel, rows: Int[Array, "batch"]) -> Float[Array, ""]:
        return -jnp.mean(model(inputs[rows]).log_prob(target[rows]))

    def update(
        carry: tuple[InverseModel, object], at: Int[Array, ""]
    ) -> tuple[tuple[InverseModel, object], None]:
        model, state = carry
        rows = jax.random.randint(
            random_keys.fold(key, "rows", at), (batch,), 0, len(inputs), jnp.int32
        )
        direction, state = optimiser.update(jax.grad(loss)(model, rows), state)
        rate = 0.5 * lr * (1.0 + jnp.cos(math.pi * at.astype(jnp.float32) / updates))
        return (descend(model, direction, rate), state), None

    counts = jnp.arange(updates, dtype=jnp.int32)
    (model, _), _ = jax.lax.scan(update, (model, optimiser.init(model)), counts)
    return model


def _check_arguments(unlabelled: Dataset, labelled: Dataset, sizes: tuple[int, int, int]) -> None:
    """Raise Mistake for datasets without rows or of different spaces, and for wrong sizes."""
    check_rows(unlabelled, "episodes without actions")
    check_rows(labelled, "labelled episodes")
    check_same_spaces(unlabelled.obs_space, labelled.obs_space, "obs", "two datasets")
    if labelled.rows < 2:
        raise Mistake(
            "At least two labelled rows are needed, one to learn from and one held out. Give a "
            "larger labelled dataset."
        )
    if min(sizes) < 1:
        given = ", ".join(map(str, sizes))
        raise Mistake(f"updates, batch and width must be positive; got {given}.")


def _model_inputs(dataset: Dataset) -> Float[np.ndarray, "row n"]:
    """Return the model's inputs: observations, and their change in the step."""
    record, vectors = dataset.transitions(), Vectoriser(dataset.spec.obs, "observations")
    before = vectors(record.obs)
    return np.concatenate([before, vectors(record.next_obs) - before], 1)


def _model_targets(dataset: Dataset, kind: Actions) -> Shaped[np.ndarray, "row ..."]:
    """Return actions in an agent's units; boxes flattened."""
    made = np.asarray(kind.flat(dataset.transitions().action))
    if kind.kind == "box":
        made = made.astype(np.float32)
        if not np.isfinite(made).all():
            raise Mistake(
                "Some labelled actions are NaN or infinite. Check that the labelled dataset comes "
                "second; then repair it: sterling data check LABELLED --fix OUT"
            )
    return made


def _split_rows(
    dataset: Dataset, seed: int
) -> tuple[Int[np.ndarray, "train"], Int[np.ndarray, "held"]]:
    """Split row numbers into training and held-out rows; at most one episode is in both."""
    begins = np.cumsum(dataset.lengths) - dataset.lengths
    order = np.random.default_rng(seed).permutation(len(dataset))
    rows = np.concatenate([begins[at] + np.arange(dataset.lengths[at]) for at in order])
    cut = len(rows) - max(int(HELD_OUT * len(rows)), 1)
    return rows[:cut], rows[cut:]


def _predict_actions(
    model: InverseModel, inputs: Float[np.ndarray, "row n"]
) -> Shaped[np.ndarray, "row ..."]:
    mode = jax.jit(lambda model, x: model(x).mode())
    parts = [inputs[low : low + ROWS_AT_ONCE] for low in range(0, len(inputs), ROWS_AT_ONCE)]
    return np.concatenate([np.asarray(mode(model, part)) for part in parts])


def _dropped_columns_note(dataset: Dataset) -> str:
    names = [name for name in ACTION_EXTRAS if name in dataset.columns]
    return f"; {', '.join(names)} of the old actions left out" if names else ""


def _error_text(
    found: Shaped[np.ndarray, "row ..."], target: Shaped[np.ndarray, "row ..."], numbers: bool
) -> str:
    """Return a text of the model's error; real actions are in units of their deviation."""
    if not numbers:
        return f"{np.mean(found != target):.2%} of the actions are wrong"
    error = np.sqrt(np.mean(np.square(found - target)))
    return f"the error is {error:.2%} of the actions' deviation"
