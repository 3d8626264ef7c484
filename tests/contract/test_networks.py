"""Every algorithm uses the user's encoder, and layers of any size, activation and normalisation."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from cases import CASES
from gymnasium import spaces

from sterling.algorithms import find
from sterling.nets.encoding.encoder_description import check_choice_is_used, find_encoders
from sterling.problem.agent_axis import Agents
from sterling.problem.channels import Channel
from sterling.types import Mistake, Spec

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)


class Flat(eqx.Module):
    """A linear map of vectors."""

    weight: jax.Array

    def __call__(self, obs: Any) -> jax.Array:
        """Return features of a batch; teams also see which agent it is."""
        own = obs if isinstance(obs, jax.Array) else obs["observation"]["observation"]
        return own @ self.weight


def flat(key: Any, space: Any) -> Flat:
    return Flat(jax.random.normal(key, (3, 5)))


GOALS = [name for name, case in CASES.items() if case.kind == "goals"]  # read vectors as they are


@pytest.mark.parametrize("name", GOALS)
def test_an_encoder_is_refused_by_learners_of_goals(name):
    module = find(name)
    seen = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), VECTOR))
    action = spaces.Box(-1.0, 1.0, (2,), np.float32)
    problem = dataclasses.replace(Spec(seen, action), encoder=(flat, "nets:flat"), iterations=3)
    state = jax.eval_shape(
        lambda key: module.init(key, problem, module.Config()), jax.random.key(0)
    )
    with pytest.raises(Mistake, match=f"^{name} makes no encoder"):
        check_choice_is_used("nets:flat", state, name)


def algorithm_names() -> list[str]:
    return [name for name in CASES if name not in ("mbpo", "pebble", "ippo", "mappo", *GOALS)]


@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_uses_the_chosen_encoder_and_layer_sizes(name):
    """Shapes only: nothing is computed."""
    module, case = find(name), CASES[name]
    fields = {key: x for key, x in case.fields.items() if key not in ("width", "depth")}
    known = {field.name for field in dataclasses.fields(module.Config)}
    listed = {"width", "depth"} <= known
    if listed:
        fields |= {"width": (6, 9)}
    fields |= {"activation": "elu"} if "activation" in known else {}
    fields |= {"layer_norm": True} if "layer_norm" in known else {}
    action = (
        spaces.Box(-1.0, 1.0, (2,), np.float32) if "" not in case.spaces else spaces.Discrete(2)
    )
    problem = dataclasses.replace(
        _problem(name, action), encoder=(flat, "nets:flat"), envs=case.envs, iterations=3
    )
    config = module.Config(**fields)
    state = jax.eval_shape(lambda key: module.init(key, problem, config), jax.random.key(0))
    check_choice_is_used("nets:flat", state, name)
    assert {encoder.size for encoder in find_encoders(state)} == {5}
    shapes = {leaf.shape for leaf in jax.tree.leaves(state)}
    assert (3, 5) in shapes or (case.envs, 3, 5) in shapes
    if listed:
        assert any(shape[-2:] == (6, 9) for shape in shapes), shapes
        assert known >= {"activation", "layer_norm"} - OWN.get(name, set())


# what their papers' networks leave no choice of
OWN = {
    "bbf": {"layer_norm"},  # predictions are compared before the last hidden layer's activation
    "crossq": {"layer_norm"},  # batch renormalisation
    **{name: {"activation", "layer_norm"} for name in ("stream-ac", "stream-q", "stream-sarsa")},
}


def _problem(name: str, action: Any) -> Spec:
    channels = {"cost": Channel(better=-1)} if "lagrangian" in name else {}
    return Spec(VECTOR, action, channels=channels)


@pytest.mark.parametrize(("name", "refused"), [("ippo", False), ("mappo", True)])
def test_multi_agent_algorithms_use_the_chosen_encoder(name, refused):
    """The central critic of mappo reads all agents' arrays one by one."""
    space = spaces.Box(-1.0, 1.0, (2, 3), np.float32)
    joint = Spec(space, spaces.MultiDiscrete([2, 2]), envs=8, agents=Agents(("a", "b")))
    problem = dataclasses.replace(joint, encoder=(flat, "nets:flat"))
    module = find(name)

    def build():
        return module.init(jax.random.key(0), problem, module.Config(length=64))

    if refused:
        with pytest.raises(Mistake, match="mappo's critic does not support an encoder"):
            build()
    else:
        assert find_encoders(jax.eval_shape(build))[0].chosen == "nets:flat"
