"""What the machine could do at best: bare simulators, bare matrix products.

    python bounds.py '{"bound": "envpool", "environment": "HalfCheetah-v5", "envs": 8, ...}'

The last line printed is JSON with ``steps_per_second`` or ``flops_per_second``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    """Measure the bound that was asked for, print it as JSON."""
    request = json.loads(sys.argv[1])
    measure = {"envpool": envpool_alone, "matrix_jax": matrix_jax}[request["bound"]]
    print(json.dumps(measure(request)))


def envpool_alone(request: dict[str, Any]) -> dict[str, Any]:
    """Steps per second of EnvPool's NumPy interface under random actions, nothing else done."""
    import envpool
    import numpy as np

    count, chunk = request["envs"], 500
    pool = envpool.make(request["environment"], env_type="gymnasium", num_envs=count, seed=0)
    pool.reset()
    space, random = pool.action_space, np.random.default_rng(0)
    actions = random.uniform(space.low, space.high, (chunk, count, *space.shape))
    actions = actions.astype(space.dtype)

    def play() -> None:
        for action in actions:
            pool.step(action)

    play()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < request["seconds"]:
        play()
        done += chunk * count
    return {"steps_per_second": done / (time.perf_counter() - start)}


def matrix_jax(request: dict[str, Any]) -> dict[str, Any]:
    """Rate of 256x256 matrix products in single precision, each fed with the one before."""
    import jax

    size, chunk = 256, 2_000
    first, second = jax.random.split(jax.random.key(0))
    weight = jax.numpy.linalg.qr(jax.random.normal(first, (size, size)))[0]  # stays finite
    x = jax.random.normal(second, (size, size))
    multiply = jax.jit(lambda x: jax.lax.fori_loop(0, chunk, lambda _, x: x @ weight, x))
    x = multiply(x).block_until_ready()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < request["seconds"]:
        x = multiply(x).block_until_ready()
        done += chunk
    return {"flops_per_second": done * 2 * size**3 / (time.perf_counter() - start)}


def sac_update_flops(obs: int, action: int, width: int, batch: int) -> int:
    """Floating-point operations of one SAC update's matrix products (a multiply-add is two).

    Target: the policy and two target critics forward. Critics: two forward, and back to their
    weights. Policy: the policy and two critics forward, back through the critics to the action
    and through the policy to its weights. A layer's backward pass costs one product for its
    weights and one for its input; the input of a first layer is only asked for on the way from
    the critics to the action.
    """
    policy = obs * width + width**2 + width * 2 * action
    critic = (obs + action) * width + width**2 + width
    to_policy_weights = 2 * policy - obs * width
    to_critic_weights = 2 * critic - (obs + action) * width
    target = policy + 2 * critic
    critics = 2 * (critic + to_critic_weights)
    actor = policy + 2 * critic + 2 * critic + to_policy_weights
    return 2 * batch * (target + critics + actor)


def iql_update_flops(obs: int, action: int, width: int, batch: int) -> int:
    """As above, for IQL: two target critics forward; value, policy and two critics forward and
    back to their weights; the value of the successor forward."""
    nets = _layers(obs, 1, width), _layers(obs, action, width)
    value, policy = (net + 2 * net - obs * width for net in nets)
    critic = _layers(obs + action, 1, width)
    critics = 2 * (critic + 2 * critic - (obs + action) * width)
    return 2 * batch * (2 * critic + value + policy + critics + nets[0])


def td3bc_update_flops(obs: int, action: int, width: int, batch: int) -> int:
    """As above, for TD3+BC: target actor and critics forward; two critics forward and back to
    their weights; every second time the actor, through one critic."""
    actor, critic = _layers(obs, action, width), _layers(obs + action, 1, width)
    critics = 2 * (critic + 2 * critic - (obs + action) * width)
    policy = actor + critic + critic + 2 * actor - obs * width
    return 2 * batch * (actor + 2 * critic + critics + policy // 2)


def _layers(inputs: int, outputs: int, width: int) -> int:
    """Multiply-adds of a forward pass through two hidden layers."""
    return inputs * width + width**2 + width * outputs


if __name__ == "__main__":
    main()
