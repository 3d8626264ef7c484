"""Trains with Sterling as a user would, in a process of its own, and says how long things took.

    python ours.py '{"algorithm": "ppo", "environment": "CartPole-v1", ...}'

The last line printed is JSON: ``points`` ([steps, seconds] at every row of metrics, over all
seeds), ``compile`` (seconds per program: tracing, lowering, compiling or fetching), ``return``.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from typing import Any

import sterling

STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}


class Clock:
    """A sink of metrics rows that notes when they came."""

    def __init__(self, seeds: int):
        self.seeds = seeds
        self.points: list[tuple[int, float]] = []
        self.rows: list[dict[str, Any]] = []

    def write(self, row: dict[str, Any]) -> None:
        self.points.append((row["step"] * self.seeds, time.perf_counter()))
        self.rows.append(row)

    def late_return(self, episodes: int = 100) -> float | None:
        """Mean of about the last ``episodes`` per seed, as Stable-Baselines3 keeps them."""
        total, count = 0.0, 0
        for row in reversed(self.rows):
            for value, ended in zip(row["data/return"], row["data/episodes"], strict=True):
                total, count = total + (value or 0.0) * ended, count + ended
            if count >= episodes * self.seeds:
                break
        return total / count if count else None

    def close(self) -> None:
        """Nothing to release."""


def main() -> None:
    """Run Sterling as asked, print what was measured as JSON."""
    request = json.loads(sys.argv[1])
    programs = _watch_compiler()
    clock = Clock(request["options"]["seeds"])
    run = sterling.train(
        request["algorithm"],
        request["environment"],
        steps=request["steps"],
        envs=request["envs"],
        preset=False,
        evaluate_episodes=0,
        sinks=[clock],
        **request["options"],
        **request["fields"],
    )
    answer = {
        "points": clock.points,
        "steps": run.result["steps"] * clock.seeds,
        "return": clock.late_return(),
        "compile": {
            name: {stage: round(seconds, 4) for stage, seconds in stages.items()}
            for name, stages in programs.items()
        },
        "versions": _versions(),
    }
    print(json.dumps(answer))


def _watch_compiler() -> dict[str, dict[str, float]]:
    """Seconds per program and stage, filled in while JAX works.

    A program's tracing time holds that of the functions it calls, so only programs that reach
    the compiler are kept, each with its own outermost trace.
    """
    import jax

    programs: dict[str, dict[str, float]] = {}
    traced: dict[str, float] = defaultdict(float)

    def listen(event: str, seconds: float, **facts: Any) -> None:
        stage, name = STAGES.get(event), str(facts.get("fun_name", "?"))
        if stage == "trace":
            traced[name] = seconds
        elif stage is not None:
            name = name.removeprefix("jit(").removesuffix(")")
            stages = programs.setdefault(name, {"trace": 0.0, "lower": 0.0, "compile": 0.0})
            stages["trace"] += traced.pop(name, 0.0)
            stages[stage] += seconds

    jax.monitoring.register_event_duration_secs_listener(listen)
    return programs


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "envpool", "mujoco")
    return {"sterling": sterling.__version__} | {name: version(name) for name in names}


if __name__ == "__main__":
    main()
