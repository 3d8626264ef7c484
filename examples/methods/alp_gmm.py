"""ALP-GMM (Portelas 2019, arXiv:1910.07224): episodes begin in levels where the agent has lately
learned, or forgotten, most; a level is a vector of numbers.

    progress   ALP(l) = | R(l) - R(l') |,   l' the nearest level played before, R its return
    levels     from a Gaussian mixture of the newest (l, ALP), a component with probability
               proportional to its mean ALP; a share of them uniform

The mixture is fitted again after every ``EVERY`` episodes, with the number of components that
Akaike's criterion prefers. Deviations from the paper: covariances are diagonal; of the levels
played before, the newest ``KNOWN`` are remembered; levels are scaled to [0, 1].

    sterling train ppo examples/methods/alp_gmm.py:FarMarks --sources examples/methods/alp_gmm.py \\
        --steps 200_000 --seeds 5
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling import Layer, Start, chosen_by, random_keys
from sterling.equations.gaussian_mixture import Mixture, best_mixture
from sterling.types import Record

EVERY = 250  # episodes between fits, and of which a mixture is fitted
KNOWN = 2_000  # levels remembered with their returns
UNIFORM = 0.2  # share of levels that are drawn uniformly
COMPONENTS = (2, 8)  # least and most of a mixture


class AlpGmm(eqx.Module):
    """A chooser of levels; its rows are rings, of which ``count`` says how many were written."""

    low: Float[Array, "n"]
    high: Float[Array, "n"]
    levels: Float[Array, "known n"]  # scaled to [0, 1]
    returns: Float[Array, "known"]
    recent: Float[Array, "recent m"]  # levels with their ALP
    count: Int[Array, ""]
    mixture: Mixture
    key: Key[Array, ""]

    @classmethod
    def create(cls, key: Key[Array, ""], task: object, config: object) -> AlpGmm:
        """Create a chooser that has heard nothing. ``task.level_space`` says what levels are."""
        space = task.level_space  # type: ignore[attr-defined]
        size, most = space.shape[0], COMPONENTS[1]
        nothing = Mixture(
            jnp.ones(most) / most, jnp.zeros((most, size + 1)), jnp.ones((most, size + 1))
        )
        return cls(
            *(jnp.asarray(space.low), jnp.asarray(space.high)),
            *(jnp.zeros((KNOWN, size)), jnp.zeros(KNOWN), jnp.zeros((EVERY, size + 1))),
            *(jnp.zeros((), jnp.int32), nothing, key),
        )

    def draw(self, key: Key[Array, ""], envs: int) -> Start:
        """Return a level for every env."""
        keys = random_keys.split(key, "draw", 4)
        size = self.low.size
        progress = jnp.maximum(self.mixture.means[:, -1], 1e-6)
        chance = jnp.log(jnp.where(self.mixture.weights > 0.0, progress, 0.0))
        which = jax.random.categorical(keys[0], chance, shape=(envs,))
        means, deviations = self.mixture.means, jnp.sqrt(self.mixture.variances)
        near = means[which] + deviations[which] * jax.random.normal(keys[1], (envs, size + 1))
        anywhere = jax.random.uniform(keys[2], (envs, size))
        chosen = (jax.random.uniform(keys[3], (envs, 1)) > UNIFORM) & (self.count >= EVERY)
        scaled = jnp.where(chosen, jnp.clip(near[:, :size], 0.0, 1.0), anywhere)
        return Start(level=self.low[None] + (self.high - self.low)[None] * scaled)

    def heard(self, rows: Record, starts: Start, returns: Float[Array, "time env"]) -> AlpGmm:
        """Remember the episodes that ended, one after another; fit the mixture if it is due."""
        scaled = (starts.level - self.low[None, None]) / (self.high - self.low)[None, None]
        ended = (rows.last & rows.mask).reshape(-1)
        each = ended, scaled.reshape(ended.size, -1), returns.reshape(-1)

        def hear(known: AlpGmm, episode: tuple[Array, Array, Array]) -> tuple[AlpGmm, None]:
            ended, level, total = episode
            after = jax.lax.cond(ended, lambda: known.with_episode(level, total), lambda: known)
            return after, None

        after, _ = jax.lax.scan(hear, self, each)
        due = after.count // EVERY > self.count // EVERY
        key = random_keys.fold(self.key, "fit", after.count)
        mixture = jax.lax.cond(
            due,
            lambda: best_mixture(after.recent, jnp.ones(EVERY, bool), key, *COMPONENTS),
            lambda: self.mixture,
        )
        return eqx.tree_at(lambda known: known.mixture, after, mixture)

    def with_episode(self, level: Float[Array, "n"], total: Float[Array, ""]) -> AlpGmm:
        """Return what is known after an episode in a level, with what it earned in total."""
        away = jnp.sum(jnp.square(self.levels - level[None]), -1)
        away = jnp.where(jnp.arange(KNOWN, dtype=jnp.int32) < self.count, away, jnp.inf)
        nearest = self.returns[jnp.argmin(away)]
        progress = jnp.where(self.count > 0, jnp.abs(total - nearest), 0.0)
        at, newest = self.count % KNOWN, self.count % EVERY
        changed = (
            self.levels.at[at].set(level),
            self.returns.at[at].set(total),
            self.recent.at[newest].set(jnp.append(level, progress)),
            self.count + 1,
        )
        where = lambda known: (known.levels, known.returns, known.recent, known.count)  # noqa: E731
        return eqx.tree_at(where, self, changed)


class FarMarks:
    """Walk to a mark, which pays 1, within 60 steps; a level is where it is, and a number that
    distracts. Most marks are too far, and by chance few of the others are reached."""

    level_space = spaces.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 1.0]))
    obs, action = spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2)

    def level(self, key):
        low, high = jnp.asarray(self.level_space.low), jnp.asarray(self.level_space.high)
        return low + (high - low) * jax.random.uniform(key, (2,))

    def begin(self, level, key):
        state = jnp.concatenate([jnp.zeros(2), level])  # place, clock
        return state, state

    def step(self, state, action, key):
        place = state[0] + jnp.where(action == 1, 0.005, -0.005)
        moved = state.at[0].set(place).at[1].add(1.0 / 60.0)
        there = jnp.abs(place - state[2]) < 0.004
        return (
            moved,
            moved,
            there.astype(jnp.float32),
            there | (moved[1] > 0.999),
            jnp.zeros((), bool),
        )


LAYER = Layer(
    "alp-gmm", "levels with absolute progress", rollouts=chosen_by(AlpGmm.create), begins=True
)
