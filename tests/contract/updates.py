"""The updates that are compared with oracles: algorithm, actions, settings, point of the run."""

from __future__ import annotations

import dataclasses
import functools
from importlib import import_module
from pathlib import Path
from typing import Any

import draws
import goal_rows
import jax
import mid_run
import numpy as np
import teams
from gymnasium import spaces
from oracles.pieces import streams
from oracles.pieces.leaves import Leaves

from sterling import algorithms
from sterling.needs.feed import FRESH
from sterling.problem.channels import Channel
from sterling.types import Feed, Log, Needs, Record, Rollouts, Sequences, Signals, Spec

CHOICES = spaces.Discrete(mid_run.CHOICES)
BOX = spaces.Box(-1.0, 1.0, (mid_run.NUMBERS,), np.float32)
OBS = spaces.Box(-np.inf, np.inf, (mid_run.FEATURES,), np.float32)
WITH_CHOICES = spaces.Dict({"action_mask": spaces.MultiBinary(mid_run.CHOICES), "x": OBS})
COSTS = {"cost": Channel(better=-1)}
LOG = Log(np.zeros(mid_run.FEATURES), np.ones(mid_run.FEATURES), (0.0, 1.0), (-3.0, 2.0), 9)


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
    """One update to be compared. A new algorithm is added to ``UPDATES`` below."""

    label: str  # the algorithm's name, and what is special
    fields: dict[str, Any]
    counters: dict[str, Any] = dataclasses.field(default_factory=dict)
    nudges: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_continuous: bool = True
    has_choices: bool = False  # observations say which choices are allowed
    has_log: bool = False
    has_state: bool = False  # observations have an entry that only critics see
    feed: str = ""  # the name of the feed that is learned from
    goal: int = goal_rows.GOAL  # numbers of a goal, if it is asked for one
    step: str = "goes on"  # of a learner from single steps: the kind of row (mid_run.one_step)
    is_continued: bool = True  # and whether it begins where the row before led to

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.label.split(maxsplit=1)[0]

    @property
    def module(self) -> Any:
        """The algorithm."""
        return algorithms.find(self.name)

    @property
    def config(self) -> Any:
        """Its settings."""
        return self.module.Config(**self.fields)

    @property
    def needs(self) -> Any:
        """What it is fed: where it has several feeds, the one that is learned from."""
        needs = self.module.needs(self.config)
        if not isinstance(needs, Needs):
            return needs
        feed = needs.feed(self.feed)
        return Rollouts(needs.collect) if feed.of == FRESH else feed

    @property
    def goals(self) -> bool:
        """Whether it draws goals from its log."""
        return any("goal" in each.name for each in getattr(self.needs, "beside", ()))

    @property
    def spec(self) -> Spec:
        """A problem of few numbers."""
        obs, action = (
            WITH_CHOICES if self.has_choices else OBS,
            BOX if self.is_continuous else CHOICES,
        )
        log = LOG if self.has_log else None
        obs = goal_rows.goal_space(obs, self.goal) if self.goals else obs
        if hasattr(self.module, "several_agents"):
            return teams.spec(OBS, action, mid_run.ENVS, self.has_choices, self.has_state)
        envs = 1 if mid_run.is_step(self.needs) else mid_run.ENVS
        return Spec(obs, action, envs, 100, log, channels=COSTS)

    @functools.cached_property
    def before(self) -> Any:
        """The state in the middle of a run."""
        problem = (self.is_continuous, self.has_choices, self.has_log, self.has_state)
        own = (self.name, self.config, problem)
        if own not in _fresh:  # updates of one configuration begin at one state
            init = jax.jit(lambda key: self.module.init(key, self.spec, self.config))
            _fresh[own] = init(jax.random.key(0))
        fresh, counters = _fresh[own], self.counters
        if mid_run.is_step(self.needs):
            row = streams.row_of(mid_run.rows_of(self.batch(), True))
            found = streams.fingerprint(row, "obs", "allowed")
            counters = counters | {".expected": found if self.is_continued else 1}
        return mid_run.stirred(fresh, counters, self.nudges)

    def batch(self, garbage: float = 50.0) -> Record:
        """Return the batch that is learned from."""
        needs = self.needs
        if hasattr(self.module, "several_agents"):
            return teams.make_batch(needs.length, self.spec, garbage)
        if mid_run.is_step(needs):
            choices = {"garbage": garbage, "allowed": self.has_choices}
            return mid_run.one_step(self.step, self.is_continuous, **choices)
        remembered = self.config.width if hasattr(self.module, "recall") else 0
        rows = mid_run.make_batch(
            needs,
            self.is_continuous,
            garbage=garbage,
            allowed=self.has_choices,
            remembered=0 if isinstance(needs, Sequences) else remembered,
            costly=hasattr(self.config, "cost_limit"),
        )
        return goal_rows.with_goals(rows, needs, garbage, self.goal) if self.goals else rows


_fresh: dict[Any, Any] = {}
GOLDEN = Path(__file__).parent / "golden.json"
UNCOUNTED = (".expected",)  # a hash
KEY = 1  # of the update's randomness
TINY = {"width": 5, "depth": 2, "lr": 3e-3}
REPLAYED = {**TINY, "batch": 12, "gamma": 0.8}
PPO = {
    **TINY,
    **{"gamma": 0.8, "gae_lambda": 0.9, "length": 6, "minibatch": 7, "epochs": 2, "clip": 0.15},
    **{"entropy_coef": 0.07, "value_coef": 0.6, "max_grad_norm": 0.5, "anneal": True},
}
A2C = {name: x for name, x in PPO.items() if name not in ("minibatch", "epochs", "clip")} | {
    "decay": 0.9
}
TRPO = {
    **{"width": 4, "depth": 1, "lr": 3e-3, "gamma": 0.8, "gae_lambda": 0.9, "length": 6},
    **{"minibatch": 7, "critic_epochs": 2, "target_kl": 0.02, "damping": 0.3, "cg_steps": 4},
}
DUAL = {"choices_kl": 0.03, "mean_kl": 0.05, "deviation_kl": 0.02, "temperature": 0.6}
V_MPO = DUAL | {
    **{"width": 4, "depth": 2, "lr": 3e-3, "gamma": 0.8, "gae_lambda": 0.9, "length": 6},
    **{"minibatch": 7, "epochs": 2, "temperature_kl": 0.2, "multiplier": 0.8},
}
PPG = {
    **{"width": 4, "depth": 2, "lr": 3e-3, "gamma": 0.8, "gae_lambda": 0.9, "length": 6},
    **{"minibatch": 7, "epochs": 2, "clip": 0.15, "entropy_coef": 0.07, "value_coef": 0.6},
    **{"policy_iterations": 2, "auxiliary_minibatch": 13, "auxiliary_epochs": 2},
    **{"clone_coef": 0.7},
}
KEPT = {  # in the middle of a run some of the rows did not count
    ".seen.mask": np.arange(48).reshape(2, 24) % 5 > 0,
    ".seen.obs['action_mask']": np.arange(144).reshape(2, 24, 3) % 4 > 0,
}
FAR_STEP = {"target_kl": 1.0, "damping": 0.001, "shrink": 0.7}  # the line search goes back
LIMITED = {"cost_limit": 0.4, "multiplier_lr": 0.3}
RECURRENT = {name: x for name, x in PPO.items() if name != "depth"} | {"minibatch": 12}
PASSED = {"normalise_obs": False, "normalise_reward": False}
NORMALISED = {"normalise_obs": True, "normalise_reward": True}
WATCHED = {"clip_value": True, "target_kl": 0.3, "normalise_advantage": False}
MOVING = {"clip_value": True, "clip": 0.03, "lr": 0.015, "anneal": False}
DQN = {
    **REPLAYED,
    **{"target_period": 5, "tau": 0.3, "huber": 0.5, "max_grad_norm": 0.2, "anneal": True},
    **{"exploration_initial": 0.9, "exploration_final": 0.1, "exploration_fraction": 0.5},
}
RAINBOW = {"double": True, "dueling": True, "n_step": 3, "priority": 0.6, "max_grad_norm": 50.0}
QR = {"quantiles": 4, "adam_eps": 0.01}
C51 = {name: x for name, x in DQN.items() if name != "huber"} | {
    **{"atoms": 5, "v_min": -1.0, "v_max": 1.5, "adam_eps": 0.01},
}
NOISY = {name: x for name, x in C51.items() if not name.startswith("exploration")} | {
    **{"width": 4, "max_grad_norm": 50.0},
}
SPR = NOISY | {"batch": mid_run.ENVS, "n_step": 3, "prediction_steps": 3, "prediction_coef": 0.7}
BBF = {name: x for name, x in SPR.items() if name not in ("anneal", "max_grad_norm", "sigma")} | {
    **{"n_step": 4, "n_step_final": 2, "gamma_initial": 0.6, "horizon_updates": 40, "tau": 0.3},
    **{"weight_decay": 0.2, "reset_period": 9, "shrink": 0.6, "exploration_fraction": 0.5},
}
BBF.pop("target_period")
IQN = {"quantiles": 3, "target_quantiles": 4, "policy_quantiles": 2, "cosines": 3} | {
    **{"adam_eps": 0.01, "width": 4}
}
MUNCHAUSEN = {"adam_eps": 0.01, "temperature": 0.4, "lowest_bonus": -0.5}
PQN = {
    **{"width": 5, "depth": 2, "lr": 3e-3, "gamma": 0.8, "q_lambda": 0.7, "length": 6},
    **{"minibatch": 7, "epochs": 2, "max_grad_norm": 0.2, "exploration_fraction": 0.5},
}
STRETCHES = {
    **{"width": 5, "lr": 3e-3, "batch": mid_run.ENVS, "gamma": 0.8, "burn_in": 2, "length": 5},
    **{"n_step": 2, "target_period": 5, "eta": 0.7, "max_grad_norm": 0.2, "rescale": 0.01},
}
SOFT = {**REPLAYED, "tau": 0.05, "alpha": 0.3}
QUANTILES = {"members": 2, "quantiles": 3, "drop": 1, "critic_width": 5, "critic_depth": 1}
RANDOMISED = {"members": 3, "subset": 2, "delay": 3}
DROPPED = {"delay": 3, "dropout": 0.3}
JOINT = {
    **{
        "width": 5,
        "depth": 1,
        "critic_width": 4,
        "critic_depth": 1,
        "lr": 3e-3,
        "batch": 12,
        "gamma": 0.8,
    },
    **{"alpha": 0.3, "delay": 3, "momentum": 0.9, "renorm_warmup": 20},
}
COLD, WARM = (  # on either side of the warm-up's end
    {".critics.nets.running.batches": np.full(2, count), ".actor.net.running.batches": count}
    for count in (19, 20)
)
RENORM_FAR = {  # running averages so far from the batch's that r and d are clipped
    ".critics.nets.running.layers[1].mean": np.array([[9.0, -9.0, 0.0, 0.0]] * 2),
    ".critics.nets.running.layers[0].variance": np.array([[90.0, 0.0, 0.0, 0.0, 0.0]] * 2),
    ".actor.net.running.layers[0].mean": np.array([9.0, -9.0, 0.0]),
    ".actor.net.layers[1].bias": np.array([0.0, 0.0, 3.0, 0.0]),
}
RESIDUAL = {
    **{"width": 3, "critic_width": 3, "lr": 3e-3, "weight_decay": 0.2, "batch": 12, "gamma": 0.8},
    **{"tau": 0.05, "alpha": 0.3},
}
OPTIMISTIC = {
    **{"width": 3, "critic_width": 3, "critic_blocks": 1, "quantiles": 3, "lr": 3e-3},
    **{"dual_lr": 7e-3, "weight_decay": 0.2, "batch": 12, "gamma": 0.8, "tau": 0.05, "alpha": 0.3},
    **{"optimism": 0.6, "kl_weight": 1.5, "kl_target": 0.003, "std_multiplier": 0.6},
    **{"learn": 3, "warmup": 10, "resets": (57, 200)},  # of 4 envs: before updates 33 and 138
}
LOUD = np.array([0.0, 0.0, 2.5, 2.0])  # log deviations far from -10: KLs of few nats
LONE = {"members": 1, "n_step": 2, "blocks": 0, "target_entropy": -0.7}
SPHERICAL = {
    **{"width": 3, "critic_width": 3, "atoms": 5, "v_max": 1.5, "critic_blocks": 1, "lr": 3e-3},
    **{"lr_decay": 0.4, "batch": 12, "gamma": 0.8, "tau": 0.05, "alpha": 0.3},
}
MPO = DUAL | REPLAYED | {"width": 4, "samples": 3, "target_period": 5, "n_step": 1}
DDPG = {**REPLAYED, "tau": 0.05}
D4PG = {
    **{"width": 4, "critic_width": 4, "critic_depth": 1, "lr": 3e-3, "batch": 12, "gamma": 0.8},
    **{"atoms": 5, "v_min": -1.0, "v_max": 1.5, "tau": 0.3, "target_period": 5},
}
FAST_TD3 = {name: x for name, x in D4PG.items() if name != "target_period"} | {
    **{"weight_decay": 0.2, "target_noise": 0.4, "noise_clip": 0.3},
}
DRQ = {
    **{**REPLAYED, "tau": 0.05, "features": 4, "noise_initial": 0.9, "noise_final": 0.2},
    **{"noise_fraction": 0.5, "noise_clip": 0.3, "depth": 1, "n_step": 3, "priority": 0.6},
}
EDGE_OF_DRQ = {".nets.actor.net.layers[1].bias": np.array([1.5, -1.5])}  # of the space
TD3 = {**REPLAYED, "tau": 0.05, "target_noise": 0.4, "noise_clip": 0.3}
MEX = TD3 | {"optimism": 0.3}
TD7 = {
    **REPLAYED,
    **{"target_noise": 0.4, "noise_clip": 0.3, "target_period": 5, "embedding": 4, "depth": 1},
}
BOUNDS = {".low": -0.5, ".high": 0.2, ".lowest": -0.9, ".highest": 0.6}  # some values reach them
EDGE_OF_7 = {".target.actor.net.rest.layers[1].bias": np.array([1.5, -1.5])}
WIDE = {".actor.net.layers[2].bias": np.array([0.0, 0.0, 3.0, 0.0])}  # log deviations above 2
FAR = {".actor.net.layers[2].bias": np.array([0.0, 0.0, 3.0, -5.0])}  # and below -5
LOGGED = {**TINY, "batch": 12, "normalise_obs": True}
VALUED = {**LOGGED, "gamma": 0.8, "tau": 0.05}
IMPLICIT = {**VALUED, "beta": 1.5, "most": 2.0}
IQL = IMPLICIT | {"expectile": 0.8}
TD3BC = {**VALUED, "target_noise": 0.4, "noise_clip": 0.3, "alpha": 2.0}
REBRAC = TD3BC | {"actor_penalty": 0.4, "critic_penalty": 0.2}
REBRAC.pop("alpha")
AWAC = {**VALUED, "temperature": 0.7, "most": 2.0}
EDAC = {**VALUED, "members": 3, "alpha": 0.3}
RLPD = {"diversity": None, "subset": 1, "layer_norm": True, "backup_entropy": False}
CQL = {**VALUED, "alpha": 0.3, "actor_lr": 1e-3, "penalty": 0.7, "n_actions": 3}
CALIBRATED = {"calibrated": True, "target_gap": 0.4, "backup_entropy": True}
FQL = {**VALUED, "alpha": 2.0, "flow_steps": 3}
DT = {
    **{"lr": 3e-3, "rise": 100, "weight_decay": 0.1, "max_grad_norm": 0.2, "length": 3},
    **{"batch": 6, "width": 4, "layers": 2, "horizon": 4, "target": 1.0},
}
ASKED = {**TINY, "batch": 12}
REACHED = {**ASKED, "gamma": 0.8, "tau": 0.05, "expectile": 0.8}
HALF = {".updates": 30}
EDGE_OF_FAST = {".nets.actor.net.layers[2].bias": np.array([1.5, -1.5])}
EDGE = {".target.actor.net.layers[2].bias": np.array([1.5, -1.5])}  # of the space
LOW = {".value.layers[2].bias": np.array([-1.1])}  # values, so that errors reach all bounds
MIDDLE = {".value.layers[2].bias": np.array([-0.65])}  # of the errors, so that both signs occur
ITERATION = {".iteration": 30.0}
MODELS = {
    **{"members": 3, "elites": 2, "model_batch": 12, "model_width": 5, "model_depth": 2},
    **{"model_lr": 3e-3, "holdout": 0.4, "width": 5},
}
KNOWN = {".updates": 9}
PREFERRED = {
    **{"members": 2, "reward_batch": 6, "reward_width": 5, "reward_depth": 2, "width": 5},
    **{"reward_lr": 3e-3, "segment": 3},
}
RISEN = {".multiplier": 0.7}
MAML = {
    **{"width": 5, "depth": 2, "lr": 3e-3, "inner_lr": 0.3, "gamma": 0.8, "gae_lambda": 0.9},
    **{"adapt_length": 5, "length": 6, "epochs": 2, "clip": 0.15, "entropy_coef": 0.07},
    **{"value_coef": 0.6, "max_grad_norm": 0.5, "anneal": True},
}
STREAM = {"width": 5, "depth": 2, "lr": 0.9, "gamma": 0.8, "trace_lambda": 0.7}
BEST = {".net.advantage.layers[2].bias": (0.0, 5.0, 0.0)}  # the action of the row is the best
PLAIN_STREAM = STREAM | {"lr": 1e-3, "normalise_obs": False, "normalise_reward": False}
ACTOR_STREAM = STREAM | {"kappa_policy": 2.5, "kappa_value": 1.7, "entropy_coef": 0.3}
OPENES = {**TINY, "noise": 0.3, "weight_decay": 0.2, "limit": 6}
CEM_RL = {**REPLAYED, "width": 4, "members": 4, "limit": 6, "noise_final": 0.01}
CEM_RL_COUNTERS = {".updates": 33, ".noise": 0.2, ".actor_optimisers.count": [7, 9]}
GENERATION = {"width": 2, "depth": 1, "limit": 6, "normalise_obs": True}
DIAGONAL = {"full_weights": 5, "normalise_obs": False}
GENERATIONS = {".generation": 8, ".sigma": 0.4}
EARLY = {".generation": 0, ".sigma": 0.7}

UPDATES = [
    Update("ppo choices", PPO | PASSED, ITERATION, is_continuous=False),
    Update("ppo masked choices", PPO | WATCHED, ITERATION, is_continuous=False, has_choices=True),
    Update("ppo box", PPO | PASSED | MOVING, ITERATION),
    Update("ppo box normalised", PPO, ITERATION),
    Update("a2c choices", A2C, ITERATION, is_continuous=False),
    Update(
        "a2c masked choices",
        A2C | {"normalise_advantage": True, "anneal": False},
        ITERATION,
        is_continuous=False,
        has_choices=True,
    ),
    Update("a2c box normalised", A2C | NORMALISED, ITERATION),
    Update("trpo choices", TRPO | FAR_STEP, ITERATION, is_continuous=False),
    Update(
        "trpo masked choices",
        TRPO | NORMALISED | {"normalise_advantage": False},
        ITERATION,
        is_continuous=False,
        has_choices=True,
    ),
    Update("trpo box", TRPO, ITERATION),
    Update("v-mpo choices", V_MPO | PASSED, ITERATION, is_continuous=False),
    Update(
        "v-mpo masked choices old policy stays",
        V_MPO | {"target_period": 2, "max_grad_norm": 0.3, "anneal": True},
        ITERATION,
        is_continuous=False,
        has_choices=True,
    ),
    Update("v-mpo box", V_MPO | {"target_period": 31}, ITERATION),
    Update("ppg choices", PPG, ITERATION | KEPT, is_continuous=False),
    Update(
        "ppg masked choices",
        PPG | {"clip_value": True, "max_grad_norm": 0.3, "anneal": True},
        {".iteration": 31.0} | KEPT,
        is_continuous=False,
        has_choices=True,
    ),
    Update(
        "ppg box normalised", PPG | NORMALISED | {"normalise_advantage": False}, ITERATION | KEPT
    ),
    Update(
        "ppg auxiliary masked choices",
        PPG | {"max_grad_norm": 0.3, "anneal": True},
        ITERATION | KEPT,
        is_continuous=False,
        has_choices=True,
        feed="auxiliary",
    ),
    Update(
        "ppg auxiliary box far steps",  # so that it matters from which policy the KL is
        PPG | NORMALISED | {"lr": 0.03, "clone_coef": 3.0},
        ITERATION | KEPT,
        feed="auxiliary",
    ),
    Update("ippo box normalised", PPO | {"minibatch": 20}, ITERATION),
    Update("ippo team box", PPO | PASSED | {"reward": "team", "identity": False}, ITERATION),
    Update(
        "ippo masked choices",
        PPO | WATCHED | {"minibatch": 20},
        ITERATION,
        is_continuous=False,
        has_choices=True,
    ),
    Update("mappo box normalised", PPO | {"minibatch": 20}, ITERATION),
    Update("mappo state box normalised", PPO | {"minibatch": 20}, ITERATION, has_state=True),
    Update(
        "mappo own masked choices",
        PPO | WATCHED | PASSED | {"minibatch": 20, "reward": "own", "identity": False},
        ITERATION,
        is_continuous=False,
        has_choices=True,
    ),
    Update("recurrent-ppo choices", RECURRENT, ITERATION, is_continuous=False),
    Update(
        "recurrent-ppo masked choices",
        RECURRENT | WATCHED | PASSED,
        ITERATION,
        is_continuous=False,
        has_choices=True,
    ),
    Update("recurrent-ppo box", RECURRENT | MOVING | {"minibatch": 18}, ITERATION),
    Update("ppo-lagrangian box", PPO | LIMITED, ITERATION | RISEN),
    Update(
        "ppo-lagrangian masked choices",
        PPO | WATCHED | PASSED | LIMITED | {"cost_limit": 9.0},
        ITERATION | RISEN,
        is_continuous=False,
        has_choices=True,
    ),
    Update("maml choices", MAML | PASSED, ITERATION, is_continuous=False),
    Update(
        "maml masked choices",
        MAML | {"inner_steps": 2, "target_kl": 0.3},
        ITERATION,
        is_continuous=False,
        has_choices=True,
    ),
    Update("maml box normalised", MAML, ITERATION),
    Update("maml box first order", MAML | PASSED | {"first_order": True}, ITERATION),
    Update("stream-q", STREAM, {".updates": 3}, is_continuous=False),
    Update("stream-q best", STREAM, {".updates": 33}, BEST, is_continuous=False),
    Update("stream-q ends", PLAIN_STREAM, {".updates": 33}, is_continuous=False, step="ends"),
    Update("stream-q cut", STREAM, {".updates": 33}, is_continuous=False, step="cut"),
    Update("stream-q masked row", STREAM, {".updates": 3}, is_continuous=False, step="masked"),
    Update(
        "stream-q masked choices elsewhere",
        STREAM,
        {".updates": 33},
        is_continuous=False,
        has_choices=True,
        is_continued=False,
    ),
    Update("stream-sarsa", STREAM, {".updates": 3}, is_continuous=False),
    Update("stream-sarsa ends", PLAIN_STREAM, {".updates": 33}, is_continuous=False, step="ends"),
    Update("stream-sarsa cut", STREAM, {".updates": 33}, is_continuous=False, step="cut"),
    Update("stream-sarsa masked row", STREAM, {".updates": 3}, is_continuous=False, step="masked"),
    Update(
        "stream-sarsa masked choices elsewhere",
        STREAM,
        {".updates": 33},
        is_continuous=False,
        has_choices=True,
        is_continued=False,
    ),
    Update("stream-ac box", ACTOR_STREAM),
    Update("stream-ac box ends", ACTOR_STREAM | PLAIN_STREAM, step="ends"),
    Update("stream-ac box elsewhere", ACTOR_STREAM, is_continued=False),
    Update("stream-ac choices cut", ACTOR_STREAM, is_continuous=False, step="cut"),
    Update("stream-ac masked row", ACTOR_STREAM, is_continuous=False, step="masked"),
    Update("stream-ac masked choices", ACTOR_STREAM, is_continuous=False, has_choices=True),
    Update("openes box", OPENES),
    Update("openes choices", OPENES | {"normalise_obs": False}, is_continuous=False),
    Update("cem-rl", CEM_RL, CEM_RL_COUNTERS),
    Update("cem-rl critics", CEM_RL, {**CEM_RL_COUNTERS, ".updates": 45}, feed="critics"),
    Update("cem-rl critics first turn", CEM_RL, CEM_RL_COUNTERS, feed="critics"),
    Update("cem-rl actors", CEM_RL, CEM_RL_COUNTERS, feed="actors"),
    Update("cma-es box", GENERATION, GENERATIONS),
    Update("cma-es choices diagonal", GENERATION | DIAGONAL, GENERATIONS, is_continuous=False),
    Update("cma-es choices first", GENERATION | {"width": 3}, EARLY, is_continuous=False),
    Update("dqn", DQN, {".updates": 33}, is_continuous=False),
    Update("dqn target due", DQN, {".updates": 34}, is_continuous=False),
    Update("dqn rainbow", DQN | RAINBOW, {".updates": 24}, is_continuous=False),
    Update("dqn masked", DQN, {".updates": 33}, is_continuous=False, has_choices=True),
    Update(
        "dqn masked double",
        DQN | {"double": True, "huber": float("inf"), "anneal": False},
        {".updates": 60},
        is_continuous=False,
        has_choices=True,
    ),
    Update("c51", C51, {".updates": 33}, is_continuous=False),
    Update(
        "c51 double target due",
        C51 | {"double": True, "n_step": 3, "priority": 0.6, "max_grad_norm": 50.0},
        {".updates": 34},
        is_continuous=False,
    ),
    Update(
        "c51 masked",
        C51 | {"anneal": False},
        {".updates": 33},
        is_continuous=False,
        has_choices=True,
    ),
    Update(
        "c51 masked double",
        C51 | {"double": True},
        {".updates": 60},
        is_continuous=False,
        has_choices=True,
    ),
    Update(
        "c51 masked double target due",
        C51 | {"double": True, "n_step": 3, "priority": 0.6, "max_grad_norm": 50.0},
        {".updates": 34},
        is_continuous=False,
        has_choices=True,
    ),
    Update("qr-dqn", DQN | QR, {".updates": 33}, is_continuous=False),
    Update(
        "qr-dqn double target due",
        DQN | QR | {"double": True, "n_step": 3, "priority": 0.6, "max_grad_norm": 50.0},
        {".updates": 34},
        is_continuous=False,
    ),
    Update(
        "qr-dqn masked",
        DQN | QR | {"anneal": False},
        {".updates": 33},
        is_continuous=False,
        has_choices=True,
    ),
    Update(
        "qr-dqn masked double",
        DQN | QR | {"double": True, "huber": float("inf")},
        {".updates": 60},
        is_continuous=False,
        has_choices=True,
    ),
    Update(
        "qr-dqn masked double target due",
        DQN | QR | {"double": True, "n_step": 3, "huber": float("inf"), "max_grad_norm": 50.0},
        {".updates": 34},
        is_continuous=False,
        has_choices=True,
    ),
    Update("iqn", DQN | IQN, {".updates": 33}, is_continuous=False),
    Update(
        "iqn masked double target due",
        DQN | IQN | {"double": True, "n_step": 3, "priority": 0.6, "max_grad_norm": 50.0},
        {".updates": 34},
        is_continuous=False,
        has_choices=True,
    ),
    Update("munchausen-dqn", DQN | MUNCHAUSEN, {".updates": 33}, is_continuous=False),
    Update(
        "munchausen-dqn masked target due",
        DQN | MUNCHAUSEN | {"lowest_bonus": -9.0, "anneal": False, "huber": float("inf")},
        {".updates": 34},
        is_continuous=False,
        has_choices=True,
    ),
    Update("rainbow", NOISY, {".updates": 33}, is_continuous=False),
    Update(
        "rainbow masked target due",
        NOISY | {"anneal": False, "max_grad_norm": 0.2, "priority": None, "n_step": 1},
        {".updates": 34},
        is_continuous=False,
        has_choices=True,
    ),
    Update("spr", SPR, {".updates": 33}, is_continuous=False),
    Update(
        "spr masked target due",
        SPR | {"anneal": False, "max_grad_norm": 0.2, "priority": None, "prediction_steps": 5},
        {".updates": 34},
        is_continuous=False,
        has_choices=True,
    ),
    Update("bbf", BBF, {".updates": 33, ".since": 6}, is_continuous=False),
    Update(
        "bbf masked renewal due",
        BBF | {"priority": None, "prediction_steps": 5},
        {".updates": 33, ".since": 8},
        is_continuous=False,
        has_choices=True,
    ),
    Update("bbf no renewal at the end", BBF, {".updates": 195, ".since": 60}, is_continuous=False),
    Update("pqn", PQN, {".updates": 33}, is_continuous=False),
    Update(
        "pqn masked first updates",
        PQN | {"minibatch": 24, "max_grad_norm": 50.0, "anneal": False, "layer_norm": False},
        {".updates": 60, ".optimiser.count": 3.0},
        is_continuous=False,
        has_choices=True,
    ),
    Update("r2d2", STRETCHES, {".updates": 33}, is_continuous=False),
    Update(
        "r2d2 plain target due",
        STRETCHES | {"rescale": None, "dueling": False, "max_grad_norm": 50.0, "burn_in": 0},
        {".updates": 34},
        is_continuous=False,
    ),
    Update(
        "r2d2 masked",
        STRETCHES | {"n_step": 9},
        {".updates": 33},
        is_continuous=False,
        has_choices=True,
    ),
    Update("sac box", SOFT, nudges=WIDE),
    Update("sac box untuned", SOFT | {"tune_alpha": False, "target_entropy": -0.7}),
    Update("sac choices", SOFT, is_continuous=False),
    Update("sac masked choices", SOFT, is_continuous=False, has_choices=True),
    Update("tqc box", SOFT | QUANTILES, nudges=WIDE),
    Update("tqc box untuned", SOFT | QUANTILES | {"tune_alpha": False, "drop": 0, "n_step": 2}),
    Update("redq critics alone", SOFT | RANDOMISED, {".updates": 33}),
    Update("redq actor due", SOFT | RANDOMISED, {".updates": 32}, WIDE),
    Update(
        "redq actor due untuned",
        SOFT | RANDOMISED | {"tune_alpha": False, "layer_norm": True, "n_step": 2, "subset": 3},
        {".updates": 32},
    ),
    Update("droq critics alone", SOFT | DROPPED, {".updates": 33}),
    Update("droq actor due", SOFT | DROPPED, {".updates": 32}, WIDE),
    Update(
        "droq actor due untuned",
        SOFT | DROPPED | {"tune_alpha": False, "layer_norm": False, "n_step": 2, "subset": 1},
        {".updates": 32},
    ),
    Update("crossq critics alone", JOINT, WARM | {".updates": 33}),
    Update("crossq critics alone before the warm-up's end", JOINT, COLD | {".updates": 33}),
    Update("crossq actor due", JOINT, WARM | {".updates": 32}, RENORM_FAR),
    Update(
        "crossq actor due untuned",
        JOINT | {"tune_alpha": False, "n_step": 2, "beta1": 0.9},
        COLD | {".updates": 32},
    ),
    Update("bro box", OPTIMISTIC, {".updates": 32}, {".nets.actor.net.layers[3].bias": LOUD}),
    Update(
        "bro box untuned",
        OPTIMISTIC
        | {"tune_alpha": False, "target_entropy": -0.7, "resets": 0, "n_step": 2}
        | {"members": 3, "blocks": 0, "critic_blocks": 2, "kl_target": 9.0},
        {".updates": 33},
        {".nets.actor.net.layers[1].bias": LOUD},
    ),
    Update(
        "bro box reset due",
        OPTIMISTIC,
        {".updates": 33},
        {".initial.actor.net.layers[3].bias": 2.0 * LOUD},
    ),
    Update("simba box", RESIDUAL, nudges={".actor.net.layers[3].bias": np.array([0, 0, 3, 0])}),
    Update(
        "simba box untuned",
        RESIDUAL
        | {"tune_alpha": False, "normalise_obs": False, "n_step": 2}
        | {"members": 1, "blocks": 0, "critic_blocks": 1},
    ),
    Update("simba-v2 box", SPHERICAL, {".updates": 33, ".largest": 3.5}),
    Update(
        "simba-v2 box untuned",
        SPHERICAL | {"tune_alpha": False, "normalise_obs": False, "normalise_reward": False} | LONE,
        {".updates": 300, ".largest": 0.0},
    ),
    Update("simba-v2 returns", SPHERICAL | {"collect": 6}, {".updates": 33}, feed="returns"),
    Update("mbpo box", SOFT, KNOWN, nudges=WIDE),
    Update("mbpo choices", SOFT, KNOWN, is_continuous=False),
    Update("mbpo models box", MODELS, KNOWN, feed="model"),
    Update("mbpo models choices", MODELS, KNOWN, is_continuous=False, feed="model"),
    Update("pebble box", SOFT | PREFERRED, nudges=WIDE),
    Update("pebble choices", SOFT | PREFERRED, is_continuous=False),
    Update("pebble reward box", PREFERRED, feed="reward"),
    Update("pebble reward choices", PREFERRED, is_continuous=False, feed="reward"),
    Update("sac-lagrangian box", SOFT, RISEN, WIDE),
    Update("sac-lagrangian choices", SOFT | {"tune_alpha": False}, RISEN, is_continuous=False),
    Update("sac-lagrangian masked", SOFT, RISEN, is_continuous=False, has_choices=True),
    Update(
        "mpo box",
        MPO,
        {".updates": 33},
        {".target.actor.net.layers[2].bias": np.array([0, 0, 3, 0])},
    ),
    Update("mpo box targets due", MPO | {"n_step": 2, "layer_norm": True}, {".updates": 34}),
    Update("mpo choices", MPO, {".updates": 33}, is_continuous=False),
    Update("mpo masked targets due", MPO, {".updates": 34}, is_continuous=False, has_choices=True),
    Update("ddpg", DDPG, {".updates": 33}),
    Update("ddpg normalised", DDPG | {"layer_norm": True, "n_step": 2}, {".updates": 0}),
    Update("d4pg", D4PG, {".updates": 33}),
    Update(
        "d4pg targets due",
        D4PG | {"layer_norm": True, "n_step": 2, "priority": 0.6},
        {".updates": 34},
    ),
    Update("fast-td3 critics alone", FAST_TD3, {".updates": 32}, EDGE_OF_FAST),
    Update("fast-td3 actor due", FAST_TD3, {".updates": 33}, EDGE_OF_FAST),
    Update(
        "fast-td3 actor due unclipped",
        FAST_TD3 | {"clipped": False, "normalise_obs": False, "layer_norm": True, "n_step": 2},
        {".updates": 33},
        EDGE_OF_FAST,
    ),
    Update("drq-v2", DRQ, {".updates": 17}, EDGE_OF_DRQ),
    Update("drq-v2 after the noise's end", DRQ, {".updates": 60}, EDGE_OF_DRQ),
    Update(
        "drq-v2 last noise",
        DRQ | {"n_step": 1, "correction": 0.7, "layer_norm": True},
        {".updates": 60},
    ),
    Update("curl", DRQ | {"key_tau": 0.3}, {".updates": 17}, EDGE_OF_DRQ),
    Update("mex critics alone", MEX, {".updates": 32}, EDGE),
    Update("mex actor due", MEX | {"layer_norm": True}, {".updates": 33}, EDGE),
    Update("td3 critics alone", TD3, {".updates": 32}, EDGE),
    Update("td3 actor due", TD3, {".updates": 33}, EDGE),
    Update("td7 critics alone", TD7, BOUNDS | {".updates": 32}, EDGE_OF_7),
    Update("td7 actor due", TD7 | {"correction": 0.5}, BOUNDS | {".updates": 33}, EDGE_OF_7),
    Update(
        "td7 actor due normalised", TD7 | {"layer_norm": True}, BOUNDS | {".updates": 33}, EDGE_OF_7
    ),
    Update("td7 targets due", TD7 | {"layer_norm": True}, BOUNDS | {".updates": 34}, EDGE_OF_7),
    Update("bc choices", LOGGED, is_continuous=False, has_choices=True, has_log=True),
    Update("bc box", LOGGED, has_log=True),
    Update("bc squares", LOGGED | {"likelihood": False}, has_log=True),
    Update("distill choices", LOGGED, is_continuous=False, has_choices=True),
    Update("distill box", LOGGED),
    Update("distill squares", LOGGED | {"likelihood": False}),
    Update("gcbc box", ASKED),
    Update("gcbc choices", ASKED | {"activation": "tanh"}, is_continuous=False),
    Update("gcivl box", REACHED | {"beta": 1.5, "most": 2.0}),
    Update("gcivl choices", REACHED | {"layer_norm": False}, is_continuous=False),
    Update("gciql box", REACHED),
    Update("crl box", ASKED | {"gamma": 0.8, "alpha": 0.3, "representation": 3}),
    Update(
        "qrl box",
        ASKED | {"eps": 0.02, "alpha": 0.3, "representation": 6, "intervals": 3},
        nudges={".nets.distance.phi.layers[2].weight": 3.0},
        goal=mid_run.FEATURES,
    ),
    Update("hiql box", REACHED | {"low_beta": 1.5, "most": 2.0, "representation": 3}),
    Update("hiql choices", REACHED | {"representation": 2}, is_continuous=False),
    Update("iql box", IQL | {"layer_norm": True, "scale_reward": True}, HALF, LOW, has_log=True),
    Update("iql choices", IQL, HALF, LOW, is_continuous=False, has_log=True),
    Update("xql box", IMPLICIT | {"temperature": 0.5, "clip": 1.2}, HALF, LOW, has_log=True),
    Update(
        "xql choices", IMPLICIT | {"temperature": 2.0}, HALF, LOW, is_continuous=False, has_log=True
    ),
    Update("fdvl box", IMPLICIT | {"weight": 0.7}, HALF, MIDDLE, has_log=True),
    Update(
        "fdvl choices",
        IMPLICIT | {"weight": 0.4, "divergence": "chi_square"},
        HALF,
        LOW,
        is_continuous=False,
        has_log=True,
    ),
    Update("td3bc critics alone", TD3BC, {".updates": 32}, EDGE, has_log=True),
    Update("td3bc actor due", TD3BC, {".updates": 33}, EDGE, has_log=True),
    Update("rebrac critics alone", REBRAC, {".updates": 32}, EDGE, has_log=True),
    Update("rebrac actor due", REBRAC, {".updates": 33}, EDGE, has_log=True),
    Update("awac box", AWAC, has_log=True),
    Update("awac choices", AWAC, is_continuous=False, has_log=True),
    Update("edac box", EDAC | {"diversity": 0.4}, nudges=FAR, has_log=True),
    Update("edac choices", EDAC | {"diversity": None}, is_continuous=False, has_log=True),
    Update("edac subset", EDAC | RLPD, has_log=True),
    Update("cql box", CQL, has_log=True),
    Update("cql choices", CQL, is_continuous=False, has_log=True),
    Update("cql calibrated box", CQL | CALIBRATED, has_log=True),
    Update("cql calibrated choices", CQL | CALIBRATED, is_continuous=False, has_log=True),
    Update("fql", FQL, has_log=True),
    Update("fql least", FQL | {"q_agg": "min", "normalise_q": True}, has_log=True),
    Update("dt box", DT, {".updates": 40}, has_log=True),
    Update("dt box after the rise", DT, {".updates": 200}, has_log=True),
    Update("dt choices", DT | {"heads": 2}, {".updates": 200}, is_continuous=False, has_log=True),
]
BY_LABEL = {update.label: update for update in UPDATES}
# What these run is run by others above, or by a file in tests/algorithms; test-slow compares them.
FURTHER = (
    *("ppo choices", "a2c choices", "v-mpo choices", "ppg choices"),
    *("ippo box normalised", "mappo box normalised", "recurrent-ppo choices"),
    *("maml choices", "maml box normalised", "stream-ac masked choices", "cma-es choices first"),
    *("c51", "c51 double target due", "c51 masked double"),
    *("qr-dqn", "qr-dqn double target due", "qr-dqn masked double", "r2d2"),
    *("sac choices", "tqc box untuned", "redq actor due untuned", "droq actor due untuned"),
    *("crossq actor due untuned", "simba box untuned", "mbpo choices", "pebble choices"),
    *("sac-lagrangian choices", "mpo box targets due", "mpo choices", "ddpg normalised"),
    *("drq-v2 last noise", "td7 critics alone", "td7 actor due", "xql choices", "edac choices"),
    *("cql box", "cql calibrated choices", "fql least", "dt choices"),
)


@functools.cache
def learned(label: str, garbage: float = 50.0) -> tuple[Any, Any, Signals]:
    """Return Sterling's state before and after the update, and the signals."""
    return by_sterling(BY_LABEL[label], garbage)


@functools.cache
def expected(label: str) -> tuple[Leaves, dict[str, float], dict[str, np.ndarray]]:
    """Return the oracle's state after the update, its metrics and its numbers for each sample."""
    return by_oracle(BY_LABEL[label])


def by_sterling(update: Update, garbage: float = 50.0) -> tuple[Any, Any, Signals]:
    """Return the state before and after an update, and the signals."""
    learn = _compiled(update.name, update.feed)
    return update.before, *learn(update.before, update.batch(garbage), jax.random.key(KEY))


@functools.cache
def _compiled(name: str, feed: str) -> Any:
    return jax.jit(getattr(algorithms.find(name), Feed(name=feed).learner))


def by_oracle(update: Update) -> tuple[Leaves, dict[str, float], dict[str, np.ndarray]]:
    """Return an oracle's state after an update, its metrics and its numbers for each sample."""
    state, batch, config = mid_run.leaves_of(update.before), update.batch(), update.config
    size = mid_run.NUMBERS if update.is_continuous else mid_run.CHOICES
    drawn = draws.DRAWS.get(f"{update.name} {update.feed}".rstrip(), draws.none)
    noise = drawn(jax.random.key(KEY), config, batch.mask.size, size)
    needs = update.needs
    whole = isinstance(needs, Feed) and needs.whole
    is_whole = isinstance(needs, (Rollouts, Sequences)) or whole or mid_run.is_stretch(needs)
    if not is_whole:
        mask = np.asarray(batch.mask)
        noise = {name: x[..., mask, :] if x.ndim > 1 else x for name, x in noise.items()}
    setting = update.module.__name__.split(".")[-2]
    oracle = import_module(f"oracles.{setting}.{update.name.replace('-', '_')}")
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    learn = getattr(oracle, Feed(name=update.feed).learner)
    metrics, samples = learn(state, mid_run.rows_of(batch, is_whole), settings, noise)
    return state, metrics, samples


def numbers(state: Leaves, metrics: Any) -> dict[str, float]:
    """Return the metrics, and the sum and the length of all numbers of the state but hashes and
    eigenvectors, whose signs are chance."""
    found = {name: float(value) for name, value in metrics.items()}
    leaves = [leaf for path, leaf in state.items() if not path.endswith(UNCOUNTED)]
    every = np.concatenate([np.nan_to_num(leaf, posinf=0.0).ravel() for leaf in leaves])
    found["state/sum"] = float(every.sum())
    found["state/norm"] = float(np.sqrt(np.square(every).sum()))
    return found
