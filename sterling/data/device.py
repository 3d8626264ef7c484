"""A dataset that lives on the accelerator: sampling is a gather inside the compiled program."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from sterling.data import chosen, spaces
from sterling.data.columns import has_successors
from sterling.data.dataset import Dataset
from sterling.data.memory import SHARE, room
from sterling.envs.board import tree
from sterling.types import AnyArray, Record


class OnDevice(eqx.Module):
    """The rows of a dataset on a device, every observation once; see :func:`to_device`."""

    obs: PyTree[Shaped[Array, "observation ..."]]
    action: PyTree[Shaped[Array, "row ..."]]
    reward: Float[Array, "row"]
    discount: Float[Array, "row"]
    last: Bool[Array, "row"]
    extras: dict[str, Shaped[Array, "row ..."]]
    place: Int[Array, "row"]  # of a row's observation; its successor is the next one

    @property
    def rows(self) -> int:
        """Steps of all episodes."""
        return self.reward.shape[0]

    def transitions(self, index: Int[AnyArray, "..."]) -> Record:
        """As :meth:`Dataset.transitions`, of JAX arrays; may be called inside a program."""
        index = jnp.asarray(index, jnp.int32)
        rest = (self.action, self.reward, self.discount, self.last, self.extras)
        action, reward, discount, last, extras = jax.tree.map(lambda x: x[index], rest)
        place = self.place[index]
        return Record(
            obs=jax.tree.map(lambda x: x[place], self.obs),
            action=action,
            reward=reward,
            discount=discount,
            next_obs=jax.tree.map(lambda x: x[place + 1], self.obs),
            last=last,
            mask=jnp.ones(index.shape, bool),
            extras=extras,
        )


class Mapped(eqx.Module):
    """A dataset that stays where it is, to be read on the host."""

    dataset: Dataset = eqx.field(static=True)

    @property
    def rows(self) -> int:
        """Steps of all episodes."""
        return self.dataset.rows

    def transitions(self, index: Int[AnyArray, "..."]) -> Record:
        """:meth:`Dataset.transitions`."""
        return self.dataset.transitions(np.asarray(index))


def to_device(
    dataset: Dataset, device: Any = None, *, memory: int | None = None
) -> OnDevice | Mapped:
    """The dataset on ``device`` (the default one) where it takes no more than ``memory`` bytes
    (by default half of what is free there), otherwise left where it is: ``transitions(index)``
    is asked of either alike.
    """
    most = _room_on(device or jax.devices()[0]) if memory is None else memory
    if dataset.mapped or dataset.bytes > most:
        return Mapped(dataset)
    place = np.arange(dataset.rows, dtype=np.int32)
    place += np.repeat(np.arange(dataset.episodes, dtype=np.int32), dataset.lengths)
    gathered: dict[str, list[np.ndarray]] = {name: [] for name in dataset.columns}
    for block in dataset.blocks():
        for name, array in block.arrays.items():
            gathered[name].append(array)
    columns = {name: np.concatenate(parts) for name, parts in gathered.items()}
    actions = spaces.parts("action", dataset.action_space)
    columns = chosen.as_agent_acts(dataset.action_space, columns)
    for name, part in spaces.parts("obs", dataset.obs_space).items():
        columns[name] = spaces.as_agent_sees(part, columns[name])
    columns = {name: spaces.single(array) for name, array in columns.items()}
    last = np.zeros(dataset.rows, bool)
    last[np.cumsum(dataset.lengths)[dataset.lengths > 0] - 1] = True
    extras = {
        name.removeprefix("extra/"): array
        for name, array in columns.items()
        if not has_successors(name) and name.startswith("extra/")
    }
    obs = iter([columns[name] for name in spaces.parts("obs", dataset.obs_space)])
    # None binds nothing to a device: a run with some leaves bound would be compiled twice, the
    # second time for its own outcome, of which all are.
    put = functools.partial(jax.device_put, device=device)
    return OnDevice(
        obs=put(tree(dataset.obs_space, obs)),
        action=put(tree(dataset.action_space, iter([columns[name] for name in actions]))),
        reward=put(columns["reward"].astype(np.float32)),
        discount=put(columns["discount"].astype(np.float32)),
        last=put(last),
        extras=put(extras),
        place=put(place),
    )


def _room_on(device: Any) -> int:
    """Bytes a dataset may take on a device."""
    known = device.memory_stats() if device.platform != "cpu" else None
    if not known or "bytes_limit" not in known:
        return room()
    return int(SHARE * (known["bytes_limit"] - known.get("bytes_in_use", 0)))
