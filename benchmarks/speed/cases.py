"""What is measured: every contender of every comparison, as requests to small worker programs.

The contenders of one group do the same work: equal hyperparameters, equal network sizes, the same
number of environment copies and of gradient steps, no normalisation on either side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

CARTPOLE = {  # rl-baselines3-zoo, hyperparams/ppo.yml; both annealed to 0 over the run
    "length": 32, "minibatch": 256, "epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
    "entropy_coef": 0.0, "lr": 1e-3, "clip": 0.2, "anneal": True,
}  # fmt: skip
CHEETAH_PPO = {"length": 256, "minibatch": 256, "epochs": 10, "lr": 3e-4, "anneal": False}
CHEETAH_SAC = {"batch": 256, "width": 256, "lr": 3e-4, "capacity": 1_000_000}
OFFLINE = {"batch": 256, "width": 256, "lr": 3e-4}
LOG_ROWS = 1_000_000  # HalfCheetah's shapes, made of chance: what is in it does not matter here


@dataclasses.dataclass(frozen=True)
class Case:
    """One contender.

    ``worker`` is the program that measures it and ``request`` what it is told. ``cache`` names a
    compilation cache: one that begins with "cold" is emptied first, "warm" is found as the cold
    run of the same name left it, "shared" is kept through the whole benchmark.
    """

    group: str  # cases of one group are measured in turn, in every repetition
    name: str
    worker: str  # ours, peers, bounds, command
    request: dict[str, Any]
    cache: str = "shared"
    variant: bool = False  # another way to run a contender that is measured anyway


def all_cases(quick: bool) -> list[Case]:
    """Every case in the order in which one repetition measures them; ``quick`` drops variants."""
    cases = [
        *_cartpole(quick),
        *_ppo(quick),
        *_sac(quick),
        *_offline(quick),
        *_programs(),
        *_startup(),
    ]
    return [case for case in cases if not (quick and case.variant)]


def _cartpole(quick: bool) -> list[Case]:
    """Wall-clock of fresh processes: what a user waits for."""
    steps = 10_240 if quick else 100_096  # whole iterations of 8 x 32 steps
    task = {"algorithm": "ppo", "environment": "CartPole-v1", "envs": 8, "fields": CARTPOLE}
    peer = task | {"library": "sb3", "steps": steps}
    cases = _by_threads(Case("cartpole", "sb3", "peers", peer))
    ways = ((1, "", "map"), (10, "_ten_map", "map"), (10, "_ten_vmap", "vmap"))
    for seeds, kind, strategy in (*ways, (10, "_ten_processes", "processes")):
        request = _ours(task, steps, {"seeds": seeds, "strategy": strategy})
        for cache in ("cold", "warm"):
            name = f"sterling{kind}_{cache}"
            store = f"{cache}-cart{kind}"
            cases.append(Case("cartpole", name, "ours", request, store, strategy == "vmap"))
    return cases


def _ppo(quick: bool) -> list[Case]:
    """Steady rate on a MuJoCo task, and how fast its simulators go alone."""
    iteration = 8 * 256
    short, task = (4 if quick else 24) * iteration, _cheetah("ppo", 8, CHEETAH_PPO)
    cases = [Case("ppo", "envpool", "bounds", _raw(quick))]
    peers = {
        f"{library}_{vector}": task | {"library": library, "vector": vector, "steps": short}
        for library in ("sb3", "sbx")
        for vector in ("dummy", "subprocess")
    }
    for name, request in peers.items():
        case = Case("ppo", name, "peers", request, variant=request["vector"] != "dummy")
        cases += _by_threads(case) if name == "sb3_dummy" else [case]
    log_every = (4 if quick else 10) * iteration
    request = _ours(task, (5 if quick else 21) * log_every, {"log_every": log_every})
    return [*cases, Case("ppo", "sterling", "ours", request)]


def _sac(quick: bool) -> list[Case]:
    """Steady rate with one gradient step per environment step, beside what the machine can do."""
    task = _cheetah("sac", 1, CHEETAH_SAC | {"warmup": 500})
    seconds = 1.0 if quick else 4.0
    cases = [
        Case("sac", "matrix_jax", "bounds", {"bound": "matrix_jax", "seconds": seconds}),
        Case("sac", "matrix_torch", "peers", {"bound": "matrix_torch", "seconds": seconds}),
    ]
    peer = task | {"library": "sb3", "steps": 800 if quick else 3_000}
    cases += _by_threads(Case("sac", "sb3", "peers", peer))
    request = task | {"library": "sbx", "steps": 1_000 if quick else 6_000}
    cases.append(Case("sac", "sbx", "peers", request))
    log_every = 200 if quick else 1_000
    request = _ours(task, 500 + (5 if quick else 11) * log_every, {"log_every": log_every})
    return [*cases, Case("sac", "sterling", "ours", request)]


def _offline(quick: bool) -> list[Case]:
    """Steady rate of gradient updates from a log, and how soon a log is there."""
    rows, seconds = (20_000, 1.0) if quick else (LOG_ROWS, 4.0)
    cases = [
        Case("offline", "matrix_jax", "bounds", {"bound": "matrix_jax", "seconds": seconds}),
        Case("offline", "loading", "ours", {"rows": rows, "load": True}),
    ]
    for algorithm in ("iql", "td3bc"):
        task = {"algorithm": algorithm, "fields": OFFLINE, "rows": rows}
        peer = task | {"library": "d3rlpy", "updates": 400 if quick else 2_000}
        cases += _by_threads(Case("offline", f"{algorithm}_d3rlpy", "peers", peer))
        log_every = 100 if quick else 1_000
        options = {"seeds": 1, "log_every": log_every, "updates": (3 if quick else 6) * log_every}
        ours = task | {"options": options}
        cases.append(Case("offline", f"{algorithm}_sterling", "ours", ours))
    return cases


def _programs() -> list[Case]:
    """Compile times of the cheetah programs (CartPole's are seen in its own cases)."""
    cases = []
    for task, steps in (
        (_cheetah("ppo", 8, CHEETAH_PPO), 2 * 8 * 256),
        (_cheetah("sac", 1, CHEETAH_SAC | {"warmup": 300}), 400),
    ):
        name, request = task["algorithm"], _ours(task, steps, {})
        for cache in ("cold", "warm"):
            cases.append(
                Case("programs", f"{name}_{cache}", "ours", request, f"{cache}-program-{name}")
            )
    return cases


def _startup() -> list[Case]:
    """What stands between a user and the first line of output."""
    entry = "import sys; sys.argv = ['sterling', '--help']; import sterling.cli as c; c.main()"
    lines = {
        "import": "import sterling",
        "import_train": "import sterling; sterling.train",
        "help": entry,
    }
    return [
        Case("startup", name, "command", {"python": line}, "shared") for name, line in lines.items()
    ]


def _by_threads(case: Case) -> list[Case]:
    """With as many threads as PyTorch likes, and with one: often faster for small networks, and
    far less harmed by a busy machine."""
    one = dataclasses.replace(
        case, name=f"{case.name}_one_thread", request=case.request | {"threads": 1}
    )
    return [dataclasses.replace(case, variant=True), one]


def _cheetah(algorithm: str, envs: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "algorithm": algorithm, "environment": "HalfCheetah-v5", "envs": envs, "fields": fields,
    }  # fmt: skip


def _raw(quick: bool) -> dict[str, Any]:
    return {
        "bound": "envpool", "environment": "HalfCheetah-v5", "envs": 8,
        "seconds": 1.0 if quick else 5.0,
    }  # fmt: skip


def _ours(task: dict[str, Any], steps: int, options: dict[str, Any]) -> dict[str, Any]:
    """The same task in Sterling's words; tuned presets off, no evaluation at the end."""
    fields = dict(task["fields"])
    if task["algorithm"] == "ppo":
        fields |= {"normalise_obs": False, "normalise_reward": False}
    request = task | {"fields": fields, "steps": steps, "options": {"seeds": 1, **options}}
    return request


def select(cases: Sequence[Case], groups: Sequence[str]) -> list[Case]:
    """The cases of these groups; all of them where none is named."""
    return [case for case in cases if not groups or case.group in groups]
