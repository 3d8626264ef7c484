"""Keep a dataset on the accelerator, so that sampling is a gather inside the compiled program."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from sterling.data import recorded_actions, space_json
from sterling.data.available_memory import MEMORY_SHARE, memory_budget
from sterling.data.dataset import Dataset
from sterling.data.episode_columns import is_per_observation
from sterling.envs.hosted.shared_memory import arrange_leaves
from sterling.types import AnyArray, Record


class DeviceDataset(eqx.Module):
    """A dataset on a device, with every observation stored once; see :func:`to_device`."""

    obs: PyTree[Shaped[Array, "observation ..."]]
    action: PyTree[Shaped[Array, "row ..."]]
    reward: Float[Array, "row"]
    discount: Float[Array, "row"]
    last: Bool[Array, "row"]
    extras: dict[str, Shaped[Array, "row ..."]]
    place: Int[Array, "row"]  # index of a row's observation; its successor is the next one

    @property
    def rows(self) -> int:
        """Return the number of steps of all episodes."""
        return self.reward.shape[0]

    def transitions(self, index: Int[AnyArray, "..."]) -> Record:
        """Return rows as :meth:`Dataset.transitions` does; usable inside a compiled program."""
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


class HostDataset(eqx.Module):
    """A dataset that does not fit on the device and is read on the host."""

    dataset: Dataset = eqx.field(static=True)

    @property
    def rows(self) -> int:
        """Return the number of steps of all episodes."""
        return self.dataset.rows

    def transitions(self, index: Int[AnyArray, "..."]) -> Record:
        """Return rows as :meth:`Dataset.transitions` does; only on the host."""
        return self.dataset.transitions(np.asarray(index))


def to_device(
    dataset: Dataset, device: Any = None, *, memory: int | None = None
) -> DeviceDataset | HostDataset:
    """Put the dataset on ``device`` (default: JAX's default device) if it takes at most ``memory``
    bytes (default: half of what is free there); otherwise leave it on the host. Both results have
    the method ``transitions(index)``.
    """
    most = _device_budget(device or jax.devices()[0]) if memory is None else memory
    if dataset.mapped or dataset.bytes > most:
        return HostDataset(dataset)
    place = np.arange(dataset.rows, dtype=np.int32)
    place += np.repeat(np.arange(dataset.episodes, dtype=np.int32), dataset.lengths)
    gathered: dict[str, list[np.ndarray]] = {name: [] for name in dataset.columns}
    for block in dataset.blocks():
        for name, array in block.arrays.items():
            gathered[name].append(array)
    columns = {name: np.concatenate(parts) for name, parts in gathered.items()}
    actions = space_json.column_spaces("action", dataset.action_space)
    columns = recorded_actions.to_agent_units(dataset.action_space, columns)
    for name, part in space_json.column_spaces("obs", dataset.obs_space).items():
        columns[name] = space_json.to_agent_obs(part, columns[name])
    columns = dataset.narrow(columns)
    last = np.zeros(dataset.rows, bool)
    last[np.cumsum(dataset.lengths)[dataset.lengths > 0] - 1] = True
    extras = {
        name.removeprefix("extra/"): array
        for name, array in columns.items()
        if not is_per_observation(name) and name.startswith("extra/")
    }
    obs = iter([columns[name] for name in space_json.column_spaces("obs", dataset.obs_space)])
    # device=None commits no array to a device. If only some leaves of a run were committed, the
    # program would be compiled twice: its outputs, which come back as inputs, are all committed.
    put = functools.partial(jax.device_put, device=device)
    return DeviceDataset(
        obs=put(arrange_leaves(dataset.obs_space, obs)),
        action=put(arrange_leaves(dataset.action_space, iter([columns[name] for name in actions]))),
        reward=put(columns["reward"].astype(np.float32)),
        discount=put(columns["discount"].astype(np.float32)),
        last=put(last),
        extras=put(extras),
        place=put(place),
    )


def _device_budget(device: Any) -> int:
    """Return the bytes that a dataset may take on a device."""
    known = device.memory_stats() if device.platform != "cpu" else None
    if not known or "bytes_limit" not in known:
        return memory_budget()
    return int(MEMORY_SHARE * (known["bytes_limit"] - known.get("bytes_in_use", 0)))
