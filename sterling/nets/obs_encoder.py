"""The encoder of observations: from any observation space to one feature vector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.equations.factored_values import split_choices
from sterling.nets.convolution import (
    DRQ_LAYERS,
    GRID_LAYERS,
    NATURE_LAYERS,
    SHORTEST_DRQ_SIDE,
    SHORTEST_NATURE_SIDE,
    Torso,
    default_plan,
)
from sterling.nets.encoding.graph_attention import GraphAttention
from sterling.nets.encoding.leaf_kind import PADDED_KINDS, LeafKind, one_hot, with_padded
from sterling.nets.encoding.own_encoder import OwnEncoder
from sterling.nets.encoding.padded_reader import create_padded_readers, read_padded
from sterling.nets.encoding.residual_convolution import ResidualTorso
from sterling.nets.encoding.sequence_attention import SequenceAttention
from sterling.nets.mlp import hidden_sizes
from sterling.problem.action_choices import ACTION_MASK
from sterling.problem.picture_layout import all_leaf_spaces, picture_layout
from sterling.types import Mistake, Obs, Spec

# presets of plain convolutions, and the shortest sides that they leave something of
PLANS = {"nature": NATURE_LAYERS, "grid": GRID_LAYERS, "drq": DRQ_LAYERS}
SHORTEST_SIDES = {"nature": SHORTEST_NATURE_SIDE, "drq": SHORTEST_DRQ_SIDE}
IMPALA_WIDTHS = {"impala": 1, "impala-wide": 4}  # and their multiples of IMPALA's channels


Part = Torso | ResidualTorso | SequenceAttention | GraphAttention


class Encoder(eqx.Module):
    """Encodes images by convolutions and categories as one-hot rows, and flattens the rest. The
    leaves of a dict or tuple observation are concatenated. ``action_mask`` is left out.

    With an encoder of the user's, ``own``, that is used instead, and there are no parts.
    """

    parts: tuple[Part | None, ...]
    kinds: tuple[LeafKind, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    own: OwnEncoder | None = None
    chosen: str = eqx.field(static=True, default="")  # the user's choice: see encoder_choice.py

    @classmethod
    def create(cls, key: Key[Array, ""], problem: Spec | spaces.Space[Any]) -> Encoder:
        """Create an encoder for a problem's observations: the user's choice (``Spec.encoder``), or
        given a space the usual one. Raises :class:`Mistake` if observations hold no numbers, or
        the choice does not suit them."""
        space, choice = (
            (problem.obs, problem.encoder) if isinstance(problem, Spec) else (problem, None)
        )
        leaves = leaf_spaces(space)
        kinds = _leaf_kinds(space)
        if not any(math.prod(kind.shape) for kind in kinds):
            raise Mistake(
                f"an observation of {space} holds no numbers. Add at least one, such as a constant."
            )
        if isinstance(choice, tuple):
            factory, name = choice
            own = OwnEncoder.create(key, space_without_mask(space), factory, name)
            return cls((), tuple(kinds), own.size, own, name)
        kinds = with_padded(_chosen_kinds(kinds, leaves, choice))
        parts = [
            reader or _create_torso(random_keys.fold(key, "part", index), kind, leaf, choice)
            for index, (kind, leaf, reader) in enumerate(
                zip(kinds, leaves, create_padded_readers(key, kinds), strict=True)
            )
        ]
        size = sum(map(feature_count, kinds, parts))
        return cls(tuple(parts), tuple(kinds), size, None, choice or "")

    @property
    def is_flat(self) -> bool:
        """Whether the encoder has nothing to learn: there are no images, and no encoder of the
        user's."""
        return self.own is None and not self.has_pictures

    @property
    def has_pictures(self) -> bool:
        """Whether there are convolutions, or attention over a sequence."""
        return any(part is not None for part in self.parts)

    @property
    def grid(self) -> tuple[int, int, int] | None:
        """The height, width and channels of the features, if they are those of one picture alone;
        None of others."""
        part = self.parts[0] if len(self.parts) == 1 else None
        return part.grid if isinstance(part, Torso | ResidualTorso) else None

    def hidden_sizes(self, width: int | tuple[int, ...], depth: int) -> tuple[int, ...]:
        """Return the units of the hidden layers that follow: ``depth`` layers, or one after
        convolutions or an encoder of the user's, of ``width`` units; or the sizes that ``width``
        lists."""
        return hidden_sizes(width, depth if self.is_flat else 1)

    def hidden_activation(self, chosen: str) -> str:
        """Return the activation of the hidden layers that follow: relu after convolutions, else
        the ``chosen`` one."""
        return "relu" if self.has_pictures else chosen

    def __call__(self, obs: Obs) -> Float[Array, "... features"]:
        """Return the features of observations with any leading axes."""
        if self.own is not None:
            return self.own(without_mask(obs))
        features, padded = [], []  # of ``padded`` the last entry is yet to come
        for x, part, kind in zip(
            jax.tree.leaves(without_mask(obs)), self.parts, self.kinds, strict=True
        ):
            if kind.name == "part":
                padded.append((x, kind))
            elif isinstance(part, SequenceAttention | GraphAttention):
                features.append(read_padded(part, [*padded, (x, kind)]))
                padded = []
            else:
                features.append(_encode_leaf(x, part, kind))
        return jnp.concatenate(features, -1) if len(features) > 1 else features[0]


def leaf_spaces(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """Return a space's leaves, in the order of ``jax.tree.leaves(without_mask(obs))``. Only an
    ``action_mask`` at the top level is left out; one further inside is ordinary observation."""
    if isinstance(space, spaces.Dict):
        return [
            leaf
            for name in sorted(space)
            if name != ACTION_MASK
            for leaf in all_leaf_spaces(space[name])
        ]
    return all_leaf_spaces(space)


def action_mask(obs: Obs, sizes: tuple[int, ...]) -> Bool[Array, "... options"] | None:
    """Return the mask of allowed actions, the options of all choices in one row, or None if the
    environment gives none; ``sizes`` are the numbers of options of the choices.

    A choice that is left without an option counts as all allowed: environments write such rows
    after an episode's end, and after a truncation the value there is still needed.
    """
    if not (isinstance(obs, dict) and ACTION_MASK in obs):
        return None
    parts = split_choices(obs[ACTION_MASK].astype(bool), sizes)
    allowed = [part | ~part.any(-1, keepdims=True) for part in parts]
    return allowed[0] if len(allowed) == 1 else jnp.concatenate(allowed, -1)


def without_mask(obs: Obs) -> Obs:
    """Return the observation without its ``action_mask``."""
    if isinstance(obs, dict):
        return {key: value for key, value in obs.items() if key != ACTION_MASK}
    return obs


def space_without_mask(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the observation space without its ``action_mask``."""
    if isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces:
        return spaces.Dict({name: x for name, x in space.items() if name != ACTION_MASK})
    return space


def _leaf_paths(space: spaces.Space[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where each leaf is in the observation, in the order of :func:`leaf_spaces`."""
    if isinstance(space, spaces.Dict):
        named = [(name, space[name]) for name in sorted(space) if path or name != ACTION_MASK]
    elif isinstance(space, spaces.Tuple):
        named = [(str(index), part) for index, part in enumerate(space)]
    else:
        yield path
        return
    for name, part in named:
        yield from _leaf_paths(part, (*path, name))


def _leaf_kinds(space: spaces.Space[Any]) -> list[LeafKind]:
    """Return how each leaf is encoded if nothing is padded, and where it is."""
    leaves = zip(leaf_spaces(space), _leaf_paths(space), strict=True)
    return [_leaf_kind(leaf)._replace(path=path) for leaf, path in leaves]


def _leaf_kind(leaf: spaces.Space[Any]) -> LeafKind:
    """Return how a leaf is encoded. Raises :class:`Mistake` for types without a fixed shape."""
    if isinstance(leaf, spaces.Discrete):
        return LeafKind("categories", (), (int(leaf.n),), (int(leaf.start),))
    if isinstance(leaf, spaces.MultiDiscrete):
        sizes, start = (tuple(int(n) for n in each.ravel()) for each in (leaf.nvec, leaf.start))
        return LeafKind("categories", tuple(leaf.nvec.shape), sizes, start)
    if isinstance(leaf, (spaces.Box, spaces.MultiBinary)):
        layout = picture_layout(leaf)
        return LeafKind("picture" if layout else "vector", tuple(leaf.shape), layout=layout)
    raise Mistake(
        f"observations of type {type(leaf).__name__} are not supported. "
        "Use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them."
    )


def _chosen_kinds(
    kinds: list[LeafKind], leaves: list[spaces.Space[Any]], choice: str | None
) -> list[LeafKind]:
    """Return the kinds of the leaves with a preset: flat makes vectors of pictures; with the others
    arrays count as pictures by their shape if nothing is one by the rule. Raises :class:`Mistake`
    if there is no picture for it."""
    if choice == "flat":
        return [kind._replace(name="vector") if kind.layout else kind for kind in kinds]
    if not choice or any(kind.layout for kind in kinds):
        return kinds
    layouts = [picture_layout(leaf, by_shape=True) for leaf in leaves]
    if not any(layouts):
        shapes = ", ".join(str(kind.shape) for kind in kinds)
        raise Mistake(
            f"encoder {choice} needs a picture, and observations have the shape {shapes}. Leave "
            "out encoder."
        )
    return [
        kind._replace(name="picture", layout=layout) if layout else kind
        for kind, layout in zip(kinds, layouts, strict=True)
    ]


def padded_leaves(space: spaces.Space[Any]) -> list[bool]:
    """Return which leaves belong to a padded sequence or graph, in the order of
    :func:`leaf_spaces`."""
    return [kind.name in PADDED_KINDS for kind in with_padded(_leaf_kinds(space))]


def _create_torso(
    key: Key[Array, ""], kind: LeafKind, leaf: spaces.Space[Any], choice: str | None
) -> Part | None:
    """Create the convolutions for a leaf; None if it needs none."""
    if kind.name != "picture" or kind.layout is None:
        return None
    height, width, channels, order = kind.layout
    first, is_bytes = order.endswith("chw"), leaf.dtype == np.uint8
    shape = (channels, height, width) if first else (height, width, channels)
    if choice in IMPALA_WIDTHS:
        widen = IMPALA_WIDTHS[choice]
        return ResidualTorso.create(key, shape, is_bytes, first=first, widen=widen)
    plan = PLANS[choice] if choice else default_plan(height, width)
    shortest = SHORTEST_SIDES.get(choice or "", 0)
    if min(height, width) < shortest:
        raise Mistake(
            f"encoder {choice} needs pictures with sides of {shortest} or more, not "
            f"{kind.layout.sides_text}. Use impala or grid."
        )
    return Torso.create(key, shape, is_bytes, plan=plan, first=first)


def feature_count(kind: LeafKind, torso: Part | None) -> int:
    """Return the number of features of a leaf."""
    if torso is not None:
        return torso.size
    if kind.name == "part":
        return 0
    return sum(kind.sizes) if kind.sizes else math.prod(kind.shape)


def _encode_leaf(
    x: Array, torso: Torso | ResidualTorso | None, kind: LeafKind
) -> Float[Array, "... features"]:
    if torso is not None and kind.layout is not None:
        return torso(_with_three_axes(x, kind.layout.order))
    flat = x.reshape(*x.shape[: x.ndim - len(kind.shape)], math.prod(kind.shape))
    if kind.name == "vector":
        scaled = kind.layout is not None and x.dtype == jnp.uint8  # a flattened picture
        return flat.astype(jnp.float32) / 255.0 if scaled else flat.astype(jnp.float32)
    start = np.asarray(kind.start, np.int32).reshape((1,) * (flat.ndim - 1) + (-1,))
    return one_hot(flat.astype(jnp.int32) - start, kind.sizes)


def _with_three_axes(x: Array, order: str) -> Array:
    """Return pictures with three axes: grey ones get a channel, and stacks more channels."""
    if order == "hw":
        return x[..., None]
    if order == "shwc":
        x = jnp.moveaxis(x, -4, -2)
        return x.reshape(*x.shape[:-2], -1)
    return x.reshape(*x.shape[:-4], -1, *x.shape[-2:]) if order == "schw" else x
