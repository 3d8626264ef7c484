"""The source that adds a bonus for novelty to a rollout's rewards, whoever learns from them.

    r  <-  r + weight * b / std(sum_k 0.99^k b_{t+k})

b is what one of this folder's bonuses gives to a row. The deviation is a running one of the
discounted sums within episodes (Burda 2019, section 2.4, has them across episodes); a bonus that is
bounded already is not divided. The bonus learns from the same rows, once, right after it gave its
bonuses. Returns that are reported are those of the environment alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.actor import Actor
from sterling.experience.rollouts.episode_tally import Tally
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Around
from sterling.experience.source_layers import Layer
from sterling.field_types import Positive
from sterling.nets.running_statistics import RewardNormaliser
from sterling.seed_axis import over_seeds
from sterling.types import Record, Spec, config

GAMMA = 0.99  # discount of the sums whose deviation scales the bonus


class Bonus(Protocol):
    """What gives a bonus, and learns what is no longer new; of one seed."""

    def explore(self, rows: Record, key: Key[Array, ""]) -> tuple[Any, Float[Array, "row"]]:
        """Return the bonus after it has learned from ``rows`` (leaves ``(row, ...)``, masked ones
        among them), and what it gave to each row."""
        ...


class ExplorationBonus(Around, eqx.Module):
    """Adds a bonus to the rewards of ``source``, inside a replay buffer if there is one. Rows in a
    replay buffer keep the bonus of the time at which they were collected."""

    source: Rollout
    bonus: Any  # a Bonus with leaves (seed, ...)
    scale: RewardNormaliser  # leaves (seed, ...)
    given: Float[Array, "seed"]  # sum of the bonuses since the tally was reset
    weight: float = eqx.field(static=True)

    @property
    def tally(self) -> Tally:
        """Return the rollout's tally, with the bonuses given; they are no part of returns."""
        tally = self.source.tally
        return dataclasses.replace(tally, totals={**tally.totals, "bonus": self.given})

    def reset_statistics(self) -> ExplorationBonus:
        """Return the source with an empty tally."""
        source = self.source.reset_statistics()
        return dataclasses.replace(self, source=source, given=jnp.zeros_like(self.given))

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[ExplorationBonus, Record]:
        """Act for ``length`` steps in every env; rewards include the bonus."""
        source, rows = self.source.live(agent, keys)
        own_keys = random_keys.fold_each(keys, "bonus")
        plain = dataclasses.replace(rows, start=None)
        before = self.bonus, self.scale, self.given
        (bonus, scale, given), reward = _give_bonuses(before, plain, own_keys, self.weight)
        changed = {"source": source, "bonus": bonus, "scale": scale, "given": given}
        return dataclasses.replace(self, **changed), dataclasses.replace(rows, reward=reward)


Giver = tuple[Any, RewardNormaliser, Float[Array, "..."]]  # bonus, its scale, sum of what it gave


@eqx.filter_jit  # for host worlds; no effect inside a compiled program
def _give_bonuses(
    giver: Giver, rows: Record, keys: Key[Array, "seed"], weight: float
) -> tuple[Giver, Float[Array, "seed time env"]]:
    """Return every seed's giver after the rows, and the rows' rewards with the bonus."""

    def each(giver: Giver, rows: Record, key: Key[Array, ""]) -> Any:
        bonus, scale, given = giver
        shape = rows.mask.shape
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
        bonus, amount = bonus.explore(flat, key)
        amount = jnp.where(rows.mask, amount.reshape(shape), 0.0)
        scale = scale.update(amount, rows.last, rows.mask, GAMMA)
        amount = jnp.where(rows.mask, weight * scale.scale(amount), 0.0)
        return (bonus, scale, given + amount.sum()), rows.reward + amount

    # one seed after another, so that all numbers round the same however many seeds there are
    given: Any = over_seeds("map", each)(giver, rows, keys)
    return given


def bonus_layer(
    word: str,
    help: str,
    default: float,
    create: Callable[[Key[Array, ""], Spec], Bonus],
    *,
    scaled: bool = True,
) -> Layer:
    """Return the layer ``WORD:WEIGHT`` that adds the bonus that ``create`` makes for a seed, with
    ``scaled`` in units of its discounted sum's deviation."""

    @config
    class Config:
        weight: Positive = default  # of the bonus

    def wrap(source: Rollout, config: Any, keys: Key[Array, "seed"], actor: Actor) -> Any:
        spec, seeds = source.world.spec, source.world.seeds
        own_keys = random_keys.fold_each(keys, "bonus")
        bonus = over_seeds("map", lambda key: create(key, spec))(own_keys)
        scale = RewardNormaliser.create(spec.envs, scaled)
        scale = jax.tree.map(lambda x: jnp.repeat(x[None], seeds, 0), scale)
        return ExplorationBonus(source, bonus, scale, jnp.zeros(seeds), config.weight)

    return Layer(word, help, Config, rollouts=wrap)
