"""The random numbers of one update, by the derivations that the algorithms' files document.

A key below a key is ``random_keys.fold(key, purpose)``; of several alike, ``random_keys.split``.
These and ``jax.random`` are all that the oracles have in common with Sterling.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import mid_run
import numpy as np
import teams

from sterling import random_keys


def normal(key: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return standard normal numbers in float64."""
    return np.asarray(jax.random.normal(key, shape), np.float64)


def ppo(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """Each epoch's order of rows: they are sorted by random bits."""
    if config.minibatch == rows:
        return {"order": [np.arange(rows)] * config.epochs}
    dice = np.asarray(jax.random.bits(key, (config.epochs, rows)))
    return {"order": [np.argsort(each, kind="stable") for each in dice]}


def trpo(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same of the critic's epochs."""
    dice = np.asarray(jax.random.bits(key, (config.critic_epochs, rows)))
    return {"order": [np.argsort(each, kind="stable") for each in dice]}


def ppg_auxiliary(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same of the auxiliary epochs over the rows of several iterations."""
    shape = config.auxiliary_epochs, config.policy_iterations * rows
    dice = np.asarray(jax.random.bits(key, shape))
    return {"order": [np.argsort(each, kind="stable") for each in dice]}


def ippo(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same of the rows of all agents."""
    return ppo(key, config, rows * len(teams.NAMES), size)


def recurrent_ppo(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same of environments."""
    envs = rows // config.length
    dice = np.asarray(jax.random.bits(key, (config.epochs, envs)))
    return {"order": [np.argsort(each, kind="stable") for each in dice]}


def openes(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The direction of each pair, by the key that the batch names; layers one after the other."""
    return directions(config, rows // 2, size)


def cma_es(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same of each member."""
    return directions(config, rows, size)


def cem_rl(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The direction of each pair of new members."""
    weights = weights_of(config, size)
    return {"directions": normal(key, (config.members // 2, weights))}


def weights_of(config: Any, size: int) -> int:
    """Return the number of weights of a policy."""
    sizes = (mid_run.FEATURES, *(config.width,) * config.depth, size)
    return sum((one + 1) * other for one, other in itertools.pairwise(sizes))


def directions(config: Any, count: int, size: int) -> dict[str, Any]:
    """So many directions in the space of a policy's weights."""
    weights = weights_of(config, size)
    born = mid_run.whole_episodes(0.0).start.key
    below = [random_keys.fold(born, "direction", number) for number in range(count)]
    return {"directions": np.stack([normal(each, (weights,)) for each in below])}


def target_noise(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """TD3 and its kin: the noise on target actions, by the key itself."""
    return {"noise": normal(key, (rows, size))}


def next_and_now(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """SAC and its kin: what samples the policy in s' and in s."""
    return {name: normal(random_keys.fold(key, name), (rows, size)) for name in ("next", "now")}


def bro(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same, and what samples the exploring policy in s."""
    found = normal(random_keys.fold(key, "explore"), (rows, size))
    return next_and_now(key, config, rows, size) | {"explore": found}


def mpo(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same, for each of several actions."""
    shape = config.samples, rows, size
    return {name: normal(random_keys.fold(key, name), shape) for name in ("next", "now")}


def sac_lagrangian(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """And what samples the policy in s' for the costs."""
    below = random_keys.fold(key, "cost")
    return next_and_now(key, config, rows, size) | {"cost": normal(below, (rows, size))}


def members(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """EDAC and REDQ: and which members the target asks, by a key below that of "next"."""
    found = next_and_now(key, config, rows, size)
    below = random_keys.fold(random_keys.fold(key, "next"), "members")
    return found | {"members": np.asarray(jax.random.permutation(below, config.members))}


def droq(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """And which units stay: in each pass by a key below, of which each member has one, and each
    layer of it one."""
    found, shape = members(key, config, rows, size), (rows, config.width)
    keys = {"target": random_keys.fold(key, "next"), "critics": key}
    keys["actor"] = random_keys.fold(key, "now")
    for name, count in (
        ("target", config.subset),
        ("critics", config.members),
        ("actor", config.members),
    ):
        below = random_keys.split(random_keys.fold(keys[name], "critics"), "member", count)
        found["kept_" + name] = np.stack(
            [
                [
                    np.asarray(
                        jax.random.bernoulli(
                            random_keys.fold(each, "layer", i), 1.0 - config.dropout, shape
                        )
                    )
                    for i in range(config.depth)
                ]
                for each in below
            ]
        )
    return found


def cql(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """And actions for the integral: uniform ones, and for each of the policy's a key of its own."""
    found, shape = next_and_now(key, config, rows, size), (config.n_actions, rows, size)
    uniform = jax.random.uniform(random_keys.fold(key, "uniform"), shape, minval=-1.0, maxval=1.0)
    found["uniform"] = np.asarray(uniform, np.float64)
    for name in ("policy", "successor"):
        below = random_keys.split(random_keys.fold(key, name), "draw", config.n_actions)
        found[name] = np.stack([normal(each, (rows, size)) for each in below])
    return found


def fql(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """Noise for the target; and below "now" three keys: the flow's start and time, the policy's
    noise."""
    starts, times, noises = random_keys.split(random_keys.fold(key, "now"), "noise", 3)
    return {
        "next": normal(random_keys.fold(key, "next"), (rows, size)),
        "start": normal(starts, (rows, size)),
        "time": np.asarray(jax.random.uniform(times, (rows, 1)), np.float64),
        "noise": normal(noises, (rows, size)),
    }


def rainbow(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The noise of each stream for p, for the target network and for the choice of an action: of
    the inputs and outputs of each layer in turn."""
    return noise_of_streams(key, config, (mid_run.FEATURES, *(config.width,) * config.depth), size)


def spr(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The same, of streams that read the first hidden layer."""
    return noise_of_streams(key, config, (config.width,) * config.depth, size)


def bbf(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The new weights of both networks, as a perceptron draws them."""
    wide, depth, atoms = config.width, config.depth, config.atoms
    sizes = {
        "psi": (mid_run.FEATURES, wide),
        "transition": (wide + size, wide, wide),
        "projection": (wide,) * depth,
        "value": (wide, atoms),
        "advantage": (wide, size * atoms),
        "predictor": (wide, wide),
    }
    found: dict[str, Any] = {}
    for net, (part, each) in itertools.product(("net", "target"), sizes.items()):
        below = random_keys.fold(random_keys.fold(key, f"new {net}"), part)
        shapes = [(inputs + 1, outputs) for inputs, outputs in itertools.pairwise(each)]
        total = sum(rows * columns for rows, columns in shapes)
        unit = np.asarray(jax.random.uniform(below, (total,), minval=-1.0, maxval=1.0), np.float64)
        ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
        made = zip(np.split(unit, ends), shapes, strict=True)
        found[f"{net} {part}"] = [x.reshape(s) / np.sqrt(s[0] - 1) for x, s in made]
    return found


def noise_of_streams(
    key: Any, config: Any, before: tuple[int, ...], size: int
) -> dict[str, np.ndarray]:
    """The noise of both streams of atoms, behind layers of these sizes, in each of three roles."""
    outputs = {"value": config.atoms, "advantage": size * config.atoms}
    found = {}
    for role, stream in itertools.product(("now", "next", "choice"), outputs):
        sizes = (*before, outputs[stream])
        below = random_keys.fold(random_keys.fold(key, role), stream)
        found[f"{role} {stream}"] = normal(below, (sum(sizes) + sum(sizes[1:-1]),))
    return found


def iqn(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """The shares tau of predictions, of targets and of the choice of an action."""
    counts = {"now": config.quantiles, "next": config.target_quantiles}
    counts["choice"] = config.policy_quantiles
    return {
        role: np.asarray(jax.random.uniform(random_keys.fold(key, role), (rows, count)), np.float64)
        for role, count in counts.items()
    }


def epochs(key: Any, config: Any, rows: int) -> dict[str, Any]:
    """The policy gradient of text: of each epoch the order of rows, where there are minibatches."""
    if not hasattr(config, "minibatches"):
        return {}
    if config.minibatches == 1:
        return {"order": [np.arange(rows)] * config.epochs}
    below = random_keys.split(key, "epoch", config.epochs)
    return {"order": [np.asarray(jax.random.permutation(each, rows)) for each in below]}


def none(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """Nothing is drawn."""
    return {}


DRAWS = {
    "openes": openes,
    "cma-es": cma_es,
    "cem-rl": cem_rl,
    "cem-rl critics": target_noise,
    **{"ppo": ppo, "ppg": ppo, "pqn": ppo, "trpo": trpo, "v-mpo": ppo},
    "ppg auxiliary": ppg_auxiliary,
    **dict.fromkeys(("ippo", "mappo"), ippo),
    "ppo-lagrangian": ppo,
    "recurrent-ppo": recurrent_ppo,
    **dict.fromkeys(("td3", "mex", "fast-td3", "td3bc", "td7", "rebrac"), target_noise),
    **dict.fromkeys(
        ("sac", "awac", "mbpo", "pebble", "tqc", "crossq", "simba", "simba-v2", "drq-v2", "curl"),
        next_and_now,
    ),
    **{
        **dict.fromkeys(("edac", "redq"), members),
        "bro": bro,
        "cql": cql,
        "droq": droq,
        "fql": fql,
        "mpo": mpo,
        "sac-lagrangian": sac_lagrangian,
    },
    **{"iqn": iqn, "rainbow": rainbow, "spr": spr, "bbf": bbf},
}
