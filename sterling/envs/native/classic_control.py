"""Gymnasium's classic control tasks as pure JAX functions: compiled with the agent, resumable bit
for bit.

Dynamics, bounds, rewards and time limits are those of Gymnasium 1.4's environments of the same
names, computed in float32; tests compare them step by step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.envs.traced_world import Task

State = Float[Array, "variables"]
StepResult = tuple[State, Float[Array, "features"], Array, Array, Array]
NOT_TRUNCATED = False  # only the time limit truncates these tasks


class CartPole:
    """Balance a pole on a cart (Barto, Sutton & Anderson 1983)."""

    gravity, pole_mass, total_mass, half_length, force, seconds = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
    max_position, max_angle = 2.4, 12 * 2 * math.pi / 360

    def __init__(self) -> None:
        big = float(np.finfo(np.float32).max)
        high = np.array([2 * self.max_position, big, 2 * self.max_angle, big], np.float32)
        self.obs, self.action = spaces.Box(-high, high), spaces.Discrete(2)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]:
        """Start near upright, nearly at rest."""
        state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return state, state

    def step(self, state: State, action: Int[Array, ""], key: Key[Array, ""]) -> StepResult:
        """Push right (1) or left (0); the reward is 1 a step until the pole falls."""
        _, x_dot, angle, angle_dot = state
        force = jnp.where(action == 1, self.force, -self.force)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        pole = self.pole_mass * self.half_length
        push = (force + pole * jnp.square(angle_dot) * sine) / self.total_mass
        inertia = 4.0 / 3.0 - self.pole_mass * jnp.square(cosine) / self.total_mass
        angle_acc = (self.gravity * sine - cosine * push) / (self.half_length * inertia)
        x_acc = push - pole * angle_acc * cosine / self.total_mass
        rates = jnp.stack([x_dot, x_acc, angle_dot, angle_acc])
        state = state + self.seconds * rates
        fallen = (jnp.abs(state[0]) > self.max_position) | (jnp.abs(state[2]) > self.max_angle)
        return state, state, jnp.ones(()), fallen, jnp.asarray(NOT_TRUNCATED)


class Acrobot:
    """Swing the tip of a two-link arm above a line (Sutton 1996; the book's dynamics)."""

    seconds = 0.2

    def __init__(self) -> None:
        high = np.array([1.0, 1.0, 1.0, 1.0, 4 * np.pi, 9 * np.pi], np.float32)
        self.obs, self.action = spaces.Box(-high, high), spaces.Discrete(3)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]:
        """Start hanging down, nearly at rest."""
        state = jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)
        return state, self._observe(state)

    def step(self, state: State, action: Int[Array, ""], key: Key[Array, ""]) -> StepResult:
        """Apply torque -1, 0 or 1 to the middle joint; the reward is -1 a step until the
        tip is up."""
        torque = action.astype(jnp.float32) - 1.0
        h = self.seconds
        k1 = _acrobot_derivatives(state, torque)
        k2 = _acrobot_derivatives(state + h / 2 * k1, torque)
        k3 = _acrobot_derivatives(state + h / 2 * k2, torque)
        k4 = _acrobot_derivatives(state + h * k3, torque)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = (state[:2] + jnp.pi) % (2 * jnp.pi) - jnp.pi
        limits = jnp.array([4 * math.pi, 9 * math.pi], jnp.float32)
        state = jnp.concatenate([angles, jnp.clip(state[2:], -limits, limits)])
        up = -jnp.cos(state[0]) - jnp.cos(state[1] + state[0]) > 1.0
        return state, self._observe(state), jnp.where(up, 0.0, -1.0), up, jnp.asarray(NOT_TRUNCATED)

    def _observe(self, state: State) -> Float[Array, "6"]:
        first, second = state[0], state[1]
        circle = [jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second)]
        return jnp.stack([*circle, state[2], state[3]])


def _acrobot_derivatives(state: State, torque: Float[Array, ""]) -> State:
    """Return the time derivatives of the state; unit masses, lengths and inertias, centres of mass
    at the middle of the links."""
    first, second, first_dot, second_dot = state
    gravity, half = 9.8, 0.5
    d1 = half**2 + (1.0 + half**2 + 2 * half * jnp.cos(second)) + 2.0
    d2 = half**2 + half * jnp.cos(second) + 1.0
    phi2 = half * gravity * jnp.cos(first + second - math.pi / 2)
    swing = jnp.sin(second)
    phi1 = (
        -half * jnp.square(second_dot) * swing
        - 2 * half * second_dot * first_dot * swing
        + (half + 1.0) * gravity * jnp.cos(first - math.pi / 2)
        + phi2
    )
    bend = torque + d2 / d1 * phi1 - half * jnp.square(first_dot) * swing - phi2
    second_acc = bend / (half**2 + 1.0 - jnp.square(d2) / d1)
    first_acc = -(d2 * second_acc + phi1) / d1
    return jnp.stack([first_dot, second_dot, first_acc, second_acc])


class MountainCar:
    """Rock an underpowered car up a hill (Moore 1990), with three discrete pushes or a continuous
    force."""

    low, high, max_speed, gravity = -1.2, 0.6, 0.07, 0.0025

    def __init__(self, continuous: bool) -> None:
        self.continuous = continuous
        self.goal, self.power = (0.45, 0.0015) if continuous else (0.5, 0.001)
        low = np.array([self.low, -self.max_speed], np.float32)
        high = np.array([self.high, self.max_speed], np.float32)
        self.obs = spaces.Box(low, high)
        box = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action: spaces.Space[Any] = box if continuous else spaces.Discrete(3)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]:
        """Start at rest near the valley's floor."""
        position = jax.random.uniform(key, (), minval=-0.6, maxval=-0.4)
        state = jnp.stack([position, jnp.zeros(())])
        return state, state

    def step(self, state: State, action: Array, key: Key[Array, ""]) -> StepResult:
        """Accelerate; the reward is -1 a step or, if continuous, 100 at the goal minus 0.1
        force^2."""
        if self.continuous:
            force = jnp.clip(action[0], -1.0, 1.0)
        else:
            force = action.astype(jnp.float32) - 1.0
        position, speed = state
        speed = speed + force * self.power - self.gravity * jnp.cos(3 * position)
        speed = jnp.clip(speed, -self.max_speed, self.max_speed)
        position = jnp.clip(position + speed, self.low, self.high)
        speed = jnp.where((position <= self.low) & (speed < 0), 0.0, speed)
        arrived = (position >= self.goal) & (speed >= 0)
        if self.continuous:
            reward = jnp.where(arrived, 100.0, 0.0) - 0.1 * jnp.square(action[0])
        else:
            reward = -jnp.ones(())
        state = jnp.stack([position, speed])
        return state, state, reward, arrived, jnp.asarray(NOT_TRUNCATED)


class Pendulum:
    """Swing up a pendulum and hold it upright, with limited torque."""

    max_speed, max_torque, seconds, gravity = 8.0, 2.0, 0.05, 10.0

    def __init__(self) -> None:
        high = np.array([1.0, 1.0, self.max_speed], np.float32)
        self.obs = spaces.Box(-high, high)
        self.action = spaces.Box(-self.max_torque, self.max_torque, (1,), np.float32)

    def reset(self, key: Key[Array, ""]) -> tuple[State, Array]:
        """Start at any angle, turning slowly."""
        unit = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        state = unit * jnp.array([math.pi, 1.0], jnp.float32)
        return state, self._observe(state)

    def step(self, state: State, action: Array, key: Key[Array, ""]) -> StepResult:
        """Apply a torque; the reward is -(angle^2 + 0.1 speed^2 + 0.001 torque^2)."""
        angle, speed = state
        torque = jnp.clip(action[0], -self.max_torque, self.max_torque)
        angle_error = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = jnp.square(angle_error) + 0.1 * jnp.square(speed) + 0.001 * jnp.square(torque)
        speed = speed + (1.5 * self.gravity * jnp.sin(angle) + 3.0 * torque) * self.seconds
        speed = jnp.clip(speed, -self.max_speed, self.max_speed)
        state = jnp.stack([angle + speed * self.seconds, speed])
        never = jnp.asarray(False)
        return state, self._observe(state), -cost, never, jnp.asarray(NOT_TRUNCATED)

    def _observe(self, state: State) -> Float[Array, "3"]:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])


class Entry(NamedTuple):
    """A task and Gymnasium's time limit for it, in steps."""

    make: Any
    limit: int


TASKS: dict[str, Entry] = {
    "Acrobot-v1": Entry(Acrobot, 500),
    "CartPole-v1": Entry(CartPole, 500),
    "MountainCar-v0": Entry(lambda: MountainCar(False), 200),
    "MountainCarContinuous-v0": Entry(lambda: MountainCar(True), 999),
    "Pendulum-v1": Entry(Pendulum, 200),
}


def names() -> list[str]:
    """Return all names."""
    return sorted(TASKS)


def knows(name: str) -> bool:
    """Whether there is a task called ``name``."""
    return name in TASKS


def make(name: str) -> tuple[Task, int]:
    """Return the task called ``name`` and its time limit in steps."""
    entry = TASKS[name]
    return entry.make(), entry.limit
