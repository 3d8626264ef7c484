"""The listed algorithms, with settings small enough for probe worlds. A new one is added here."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import logs
import pytest

from sterling.algorithms import find

KINDS = ("constant", "observation", "delay", "action", "both", "cut", "limits")
HARD = ("both", "cut", "limits")  # worlds of which the others are easier forms
# whose feeds are those of all others: these run on every world with their first kind of actions,
# the others on the hard ones; with a second kind on fewer (``make all-cases``: all on every world),
# because so many runs took longer than all other tests
FIRST = ("ppo", "recurrent-ppo", "dqn", "r2d2", "sac", "td3", "openes", "maml", "ippo")
EVERYWHERE = os.environ.get("STERLING_ALL_CASES") == "1"


@dataclasses.dataclass(frozen=True)
class Case:
    """How to run one algorithm on problems that take seconds."""

    name: str
    spaces: tuple[str, ...]  # "" for discrete, "-continuous"
    steps: int  # enough to solve a probe world; 0: it learns from a log
    fields: dict[str, Any]
    envs: int = 8
    updates: int = 4_000  # enough to solve a probe world from a log
    taught: bool = False  # it imitates a trained run
    wise: bool = False  # its log is of somebody who knows the answer, otherwise of chance
    kind: str = "both"  # the world in which it is run; "goals": it is asked for goals of a log

    @property
    def worlds(self) -> list[str]:
        """Probe worlds to be solved: all, or the hard ones. From a log: those of which the others
        are easier forms, ends and cuts for one kind of actions; without values only actions can be
        right or wrong; who is asked for goals of a log, in test_goal_logs.py."""
        if self.kind == "goals":
            return []
        if self.taught:
            return [f"both{form}" for form in self.spaces]
        if self.steps and EVERYWHERE:
            return [kind + form for form in self.spaces for kind in KINDS]
        if self.steps:
            kinds, further = (KINDS, HARD) if self.name in FIRST else (HARD, ("both",))
            first, *others = self.spaces
            return [kind + first for kind in kinds] + [
                kind + form for form in others for kind in further
            ]
        valued = ("cut", "limits") if hasattr(find(self.name), "value") else ()
        own = [f"both{form}" for form in self.spaces]
        return own + [kind + self.spaces[-1] for kind in valued]

    def budget(self, world: str, steps: int, folder: Any) -> dict[str, Any]:
        """What ``sterling.train`` is given for this world: steps, or a log in ``folder`` and as
        many updates as would have been iterations."""
        if self.steps:
            taught = {"teacher": str(logs.teacher(world, folder))} if self.taught else {}
            return {"steps": steps, **taught}
        folder = folder / ("wise" if self.wise else "chance")
        data = folder / world
        if not data.exists():
            logs.write(world, self.wise, folder)
        return {"data": str(data), "updates": steps // self.envs}


BOTH = ("", "-continuous")
SMALL = {"lr": 3e-3, "batch": 64, "width": 32, "normalise_obs": False}
VALUED = {**SMALL, "gamma": 0.8, "tau": 0.02}
SOFT = {**VALUED, "alpha": 0.01, "tune_alpha": False, "depth": 2}
PENALTY = {"penalty": 0.02, "n_actions": 4}
ASKED = {"lr": 3e-3, "batch": 64, "width": 32, "depth": 2}
REACHED = {"gamma": 0.8, "tau": 0.05, "expectile": 0.95}
SEQUENCES = {**SMALL, "batch": 32, "width": 16, "rise": 50, "length": 4, "layers": 2}
STREAM = {
    **{"gamma": 0.8, "lr": 0.01, "width": 32, "normalise_obs": False, "normalise_reward": False},
    **{"exploration_fraction": 0.5, "exploration_final": 0.1},
}
ACTOR_STREAM = {
    **{"gamma": 0.8, "lr": 0.01, "width": 32, "normalise_obs": False, "normalise_reward": False},
}
CASES = {
    case.name: case
    for case in (
        Case("bc", BOTH, 0, SMALL, updates=1_000, wise=True),
        Case("distill", BOTH, 8_000, {**SMALL, "warmup": 512}, taught=True),
        Case("iql", BOTH, 0, {**VALUED, "expectile": 0.99, "beta": 10.0}),
        Case("xql", BOTH, 0, {**VALUED, "temperature": 0.02, "beta": 10.0}),
        Case("fdvl", BOTH, 0, {**VALUED, "weight": 0.9, "beta": 10.0}),
        Case("fql", ("-continuous",), 0, {**VALUED, "alpha": 0.03, "depth": 2}),
        Case("dt", BOTH, 0, {**SEQUENCES, "target": 1.0, "horizon": 4}, updates=1_200),
        Case("awac", BOTH, 0, {**VALUED, "temperature": 0.1}),
        Case("cql", BOTH, 0, {**SOFT, "actor_lr": 3e-3, **PENALTY}),
        Case("edac", BOTH, 0, {**SOFT, "members": 4, "diversity": None}),
        Case("rebrac", ("-continuous",), 0, {**VALUED, "depth": 2}),
        Case("td3bc", ("-continuous",), 0, {**VALUED, "alpha": 100.0}),
        Case("gcbc", BOTH, 0, ASKED, updates=2_000, kind="goals"),
        Case("gcivl", BOTH, 0, {**ASKED, **REACHED}, updates=2_000, kind="goals"),
        Case(
            "gciql",
            ("-continuous",),
            0,
            {**ASKED, **REACHED, "alpha": 0.03},
            updates=2_000,
            kind="goals",
        ),
        Case(
            "crl",
            ("-continuous",),
            0,
            {**ASKED, "gamma": 0.8, "alpha": 0.03, "representation": 16},
            updates=2_000,
            kind="goals",
        ),
        Case(
            "qrl",
            ("-continuous",),
            0,
            {**ASKED, "alpha": 0.003, "representation": 32, "value_future": 1.0, "gamma": 0.8},
            updates=2_000,
            kind="goals",
        ),
        Case("hiql", BOTH, 0, {**ASKED, **REACHED, "way_steps": 1}, updates=4_000, kind="goals"),
        Case(
            "ppo",
            ("", "-continuous"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "entropy_coef": 0.0},
                **{"normalise_obs": False, "normalise_reward": False, "anneal": True},
            },
        ),
        Case(
            "a2c",
            ("", "-continuous"),
            80_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 8, "width": 16},
                **{"log_std": -0.5, "anneal": True},
            },
        ),
        Case(
            "trpo",
            ("", "-continuous"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"critic_epochs": 4, "width": 16, "log_std": -0.5},
            },
        ),
        Case(
            "v-mpo",
            ("", "-continuous"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "anneal": True},
                **{"normalise_obs": False, "normalise_reward": False},
            },
        ),
        Case(
            "ppg",
            ("", "-continuous"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "entropy_coef": 0.0, "anneal": True},
                **{"policy_iterations": 8, "auxiliary_minibatch": 128, "auxiliary_epochs": 2},
                "normalise_reward": False,
            },
        ),
        Case(
            "recurrent-ppo",
            ("", "-continuous"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "entropy_coef": 0.0},
                **{"normalise_obs": False, "normalise_reward": False, "anneal": True},
            },
        ),
        Case(
            "ppo-lagrangian",
            ("-costly", "-continuous-costly"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "entropy_coef": 0.0},
                **{"normalise_obs": False, "normalise_reward": False, "anneal": True},
            },
        ),
        Case(
            "openes",
            ("", "-continuous"),
            48_000,
            {
                **{"lr": 0.05, "noise": 0.1, "weight_decay": 0.0, "limit": 4, "width": 16},
                "normalise_obs": False,
            },
            envs=64,
        ),
        Case(
            "cma-es",
            ("", "-continuous"),
            48_000,
            {"noise_initial": 0.5, "limit": 4, "width": 4, "depth": 1, "normalise_obs": False},
            envs=64,
        ),
        Case(
            "cem-rl",
            ("-continuous",),
            16_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "tau": 0.02, "batch": 32, "width": 16, "depth": 2},
                **{"members": 8, "limit": 16, "warmup": 256, "capacity": 8_000},
                **{"variance_initial": 0.05, "noise_initial": 0.05, "noise_final": 1e-4},
            },
        ),
        Case(
            "maml",
            ("", "-continuous"),
            100_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "adapt_length": 8, "length": 16},
                **{"inner_lr": 0.02, "epochs": 8, "width": 32, "log_std": -0.5},
                **{"normalise_obs": False, "normalise_reward": False, "anneal": True},
            },
        ),
        Case(
            "ippo",
            ("-team", "-continuous-team"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 192},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "entropy_coef": 0.0},
                **{"normalise_obs": False, "normalise_reward": False, "anneal": True},
            },
        ),
        Case(
            "mappo",
            ("-team", "-continuous-team"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 192},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "entropy_coef": 0.0},
                **{"normalise_obs": False, "normalise_reward": False, "anneal": True},
                "reward": "own",
            },
        ),
        Case(
            "dqn",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25},
                **{"exploration_fraction": 0.5, "exploration_final": 0.1},
            },
        ),
        Case(
            "c51",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25, "adam_eps": 1e-8},
                **{"exploration_fraction": 0.5, "exploration_final": 0.1},
                **{"atoms": 21, "v_min": -3.0, "v_max": 7.0},
            },
        ),
        Case(
            "qr-dqn",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25, "quantiles": 5},
                **{"exploration_fraction": 0.5, "exploration_final": 0.1, "adam_eps": 1e-8},
            },
        ),
        Case(
            "iqn",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25, "adam_eps": 1e-8},
                **{"exploration_fraction": 0.5, "exploration_final": 0.1, "cosines": 8},
                **{"quantiles": 4, "target_quantiles": 4, "policy_quantiles": 8},
            },
        ),
        Case(
            "munchausen-dqn",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25, "adam_eps": 1e-8},
                **{"exploration_fraction": 0.5, "exploration_final": 0.1, "temperature": 0.01},
            },
        ),
        Case(
            "rainbow",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25, "adam_eps": 1e-8},
                **{"atoms": 21, "v_min": -3.0, "v_max": 7.0},
            },
        ),
        Case(
            "spr",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 32, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25, "adam_eps": 1e-8},
                **{"atoms": 21, "v_min": -3.0, "v_max": 7.0, "n_step": 1, "prediction_steps": 2},
            },
        ),
        Case(
            "bbf",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 32, "collect": 1, "learn": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "tau": 0.05, "adam_eps": 1e-8, "n_step": 2},
                **{"atoms": 21, "v_min": -3.0, "v_max": 7.0, "n_step_final": 1},
                **{
                    "gamma_initial": 0.7,
                    "horizon_updates": 100,
                    "reset_period": 500,
                    "shrink": 0.8,
                },
                **{"weight_decay": 1e-3, "exploration_fraction": 0.5, "exploration_final": 0.1},
                "prediction_steps": 2,
            },
        ),
        Case(
            "pqn",
            ("",),
            40_000,
            {
                **{"gamma": 0.8, "q_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"epochs": 4, "width": 32, "exploration_fraction": 0.5},
                "exploration_final": 0.05,  # Q is partly the value of the policy that explores
            },
        ),
        Case("stream-q", ("",), 20_000, STREAM, envs=1),
        Case("stream-sarsa", ("",), 20_000, STREAM, envs=1),
        Case("stream-ac", ("", "-continuous"), 40_000, {**ACTOR_STREAM}, envs=1),
        Case(
            "r2d2",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 32, "collect": 2, "learn": 1, "width": 32},
                **{"burn_in": 2, "length": 8, "n_step": 1, "capacity": 4_000, "warmup": 400},
                **{"target_period": 25, "spread": 3.0},
            },
        ),
        Case(
            "sac",
            ("", "-continuous"),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False},
            },
        ),
        Case(
            "tqc",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False, "drop": 0},
                **{"members": 2, "quantiles": 5, "critic_width": 32, "critic_depth": 2},
            },
        ),
        Case(
            "redq",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False, "learn": 1},
                **{"members": 3, "delay": 2},
            },
        ),
        Case(
            "droq",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False, "learn": 1},
                **{"delay": 2},
            },
        ),
        Case(
            "crossq",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 1e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "alpha": 0.01, "tune_alpha": False, "delay": 1},
                **{"critic_width": 32, "renorm_warmup": 200, "momentum": 0.9},
            },
        ),
        Case(
            "bro",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 16, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False, "learn": 1},
                **{"critic_width": 16, "critic_blocks": 1, "quantiles": 5, "resets": 2_000},
            },
        ),
        Case(
            "simba",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 16, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "tune_alpha": False, "learn": 1},
                **{"critic_width": 16, "critic_blocks": 1},
            },
        ),
        Case(
            "simba-v2",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 16, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "tune_alpha": False, "learn": 1},
                **{"critic_width": 16, "critic_blocks": 1},
                **{"atoms": 41, "v_max": 10.0, "alpha": 0.1},
            },
        ),
        Case(
            "sac-lagrangian",
            ("-costly", "-continuous-costly"),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False},
            },
        ),
        Case(
            "mbpo",
            ("", "-continuous"),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False, "learn": 1},
                **{"branches": 4, "kept": 400, "horizon": 2, "real": 0.25, "members": 3},
                **{"elites": 2, "model_batch": 64, "model_updates": 40, "model_every": 25},
                **{"model_width": 32, "model_depth": 1, "model_lr": 3e-3},
            },
        ),
        Case(
            "pebble",
            ("", "-continuous"),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False},
                **{"segment": 1, "queries": 50, "ask_every": 25, "most_labels": 400},
                **{"members": 2, "reward_batch": 64, "reward_updates": 40, "reward_lr": 3e-3},
                **{"reward_width": 32, "reward_depth": 1},
            },
        ),
        Case(
            "ddpg",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05},
            },
        ),
        Case(
            "d4pg",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "target_period": 1, "n_step": 1},
                **{"critic_width": 32, "atoms": 21, "v_min": -3.0, "v_max": 7.0},
            },
        ),
        Case(
            "fast-td3",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "learn": 1, "weight_decay": 0.0},
                **{"critic_width": 32, "atoms": 21, "v_min": -3.0, "v_max": 7.0},
                "normalise_obs": False,
            },
        ),
        Case(
            "drq-v2",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "features": 16, "n_step": 1, "collect": 1},
            },
        ),
        Case(
            "curl",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "features": 16, "n_step": 1, "collect": 1},
            },
        ),
        Case(
            "mpo",
            ("", "-continuous"),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "target_period": 25, "samples": 8, "n_step": 1},
                **{"mean_kl": 0.03, "deviation_kl": 1e-3, "multiplier": 1.0, "temperature": 0.1},
            },
        ),
        Case(
            "td7",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "target_period": 25, "embedding": 16},
            },
        ),
        Case(
            "mex",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05},
            },
        ),
        Case(
            "td3",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05},
            },
        ),
    )
}


def each(*quick: str) -> list[Any]:
    """Every algorithm with its last form of actions; all but the named ones are slow tests."""
    runs = [(case.name, case.spaces[-1]) for case in CASES.values()]
    slow = pytest.mark.slow
    return [run if run[0] in quick else pytest.param(*run, marks=slow) for run in runs]
