"""An encoder of one's own: what may be one, what it is given, and what is refused in one line."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.nets.encoding.encoder_choice import (
    InMemoryEncoder,
    encoder_reference,
    find_encoder,
)
from sterling.nets.encoding.encoder_description import check_choice_is_used
from sterling.nets.obs_encoder import Encoder
from sterling.types import Mistake, Spec

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
SPACE = spaces.Dict(
    {
        "action_mask": spaces.MultiBinary(2),
        "camera": spaces.Box(0, 255, (8, 9), np.uint8),
        "speed": VECTOR,
        "room": spaces.Discrete(4),
    }
)
FEATURES = 7


class Reader(eqx.Module):
    """Two branches; ``eqx.nn.MLP`` keeps its activation as a leaf that is no array."""

    branch: eqx.nn.MLP
    scale: jax.Array
    size: int = eqx.field(static=True)

    def __call__(self, obs: Any) -> jax.Array:
        """Return features of a batch; the mask is not among the observations."""
        assert set(obs) == {"camera", "speed", "room"}
        assert obs["camera"].dtype == jnp.uint8
        rows = obs["camera"].astype(jnp.float32).mean((1, 2)) / 255.0
        known = jnp.concatenate([obs["speed"], rows[:, None]], -1)
        room = jax.nn.one_hot(obs["room"], 4)
        return jnp.concatenate([jax.vmap(self.branch)(known) * self.scale[None], room], -1)


def make(key: Any, space: Any) -> Reader:
    """Create the encoder of these tests."""
    assert "action_mask" not in space.spaces
    branch = eqx.nn.MLP(4, 3, 5, 1, activation=jax.nn.silu, key=key)
    return Reader(branch, jnp.full(3, 2.0), FEATURES)


def spec(encoder: Any, space: Any = SPACE) -> Spec:
    return dataclasses.replace(Spec(space, spaces.Discrete(2)), encoder=(encoder, "nets:make"))


def seen(lead: tuple[int, ...]) -> dict[str, jax.Array]:
    random = np.random.default_rng(0)
    return {
        "action_mask": jnp.ones((*lead, 2), jnp.int8),
        "camera": jnp.asarray(random.integers(0, 256, (*lead, 8, 9)), jnp.uint8),
        "speed": jnp.asarray(random.normal(size=(*lead, 3)), jnp.float32),
        "room": jnp.asarray(random.integers(0, 4, lead), jnp.int32),
    }


@pytest.mark.parametrize("lead", [(), (5,), (2, 3, 4)])
def test_own_encoder_receives_whole_observations_with_leading_axes(lead):
    encoder = Encoder.create(jax.random.key(0), spec(make))
    obs = seen(lead)
    found = eqx.filter_jit(encoder)(obs)
    assert found.shape == (*lead, FEATURES) == (*lead, encoder.size)
    flat = {name: x.reshape(-1, *SPACE[name].shape) for name, x in obs.items()}
    flat.pop("action_mask")
    plain = eqx.filter_jit(make(jax.random.key(0), spaces.Dict({"speed": VECTOR})))(flat)
    np.testing.assert_allclose(found.reshape(-1, FEATURES), plain, rtol=1e-5, atol=1e-6)


def test_own_encoder_arrays_are_trained():
    encoder = Encoder.create(jax.random.key(0), spec(make))
    assert sum(leaf.size for leaf in jax.tree.leaves(encoder)) == 4 * 5 + 5 + 5 * 3 + 3 + 3
    loss = eqx.filter_grad(lambda encoder: jnp.sum(encoder(seen((4,)))))
    grads = eqx.filter_jit(loss)(encoder)
    assert all(np.abs(leaf).max() > 0.0 for leaf in jax.tree.leaves(grads))
    assert not encoder.is_flat
    assert encoder.hidden_sizes(64, 3) == (64,)
    assert encoder.hidden_activation("tanh") == "tanh"


class Plain(eqx.Module):
    """A module that does what it is told."""

    do: Any = eqx.field(static=True)
    held: Any = None
    size: int = eqx.field(static=True, default=2)

    def __call__(self, obs: Any) -> Any:
        """Do it."""
        return self.do(obs)


def fails(*given: Any) -> Any:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (fails, r"the encoder nets:make raises ValueError: no such thing \(test_own_encoder.py:"),
        (lambda key, space: 3, "returns an object of type int. make"),
        (lambda key, space: lambda obs: obs, "returns an object of type function"),
        (
            lambda key, space: Plain(fails),
            r"raises ValueError.* for a batch of",
        ),
        (lambda key, space: Plain(lambda obs: obs[0, :2]), r"returns shape \(2,\) for a batch"),
        (lambda key, space: Plain(lambda obs: obs.sum(-1)), r"one row of features each, \(2, feat"),
        (lambda key, space: Plain(lambda obs: (obs, obs)), "returns an object of type tuple"),
        (lambda key, space: Plain(lambda obs: obs), "has size 2 but returns 3 features"),
        (lambda key, space: Plain(lambda obs: obs[:, :2] > 0), "features of bool. Return floats"),
        (lambda key, space: Plain(lambda obs: obs[:, :2], jnp.arange(3)), "holds held, a .*int32"),
        (lambda key, space: Plain(lambda obs: obs[:, :2], [1]), "cannot be hashed"),
        (lambda key, space: eqx.nn.Lambda(None), "raises TypeError"),
    ],
)
def test_own_encoder_refuses_invalid_factories(factory, said):
    with pytest.raises(Mistake, match=said) as raised:
        Encoder.create(jax.random.key(0), spec(factory, VECTOR))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("natur", "Unknown encoder 'natur'; did you mean nature?"),
        ("resnet50", "use nature, impala, impala-wide, grid, drq, flat or FILE.py:make"),
        (3, "a name or a function make"),
        ("nowhere.py:make", "/nowhere.py"),
        ("FILE", "names no function. Write nets_of_mine:make"),
        ("FILE:mak", "has no 'mak'; did you mean make?"),
        ("FILE:SIZE", "is a int, not a function"),
    ],
)
def test_own_encoder_refuses_wrong_names(chosen, said, tmp_path):
    file = tmp_path / "nets_of_mine.py"
    file.write_text("SIZE = 3\n\n\ndef make(key, space):\n    return None\n")
    chosen = chosen.replace("FILE", str(file)) if isinstance(chosen, str) else chosen
    with pytest.raises(Mistake) as raised:
        encoder_reference(chosen)
    expected = said.replace("nets_of_mine:make", f"{file.stem}:make")
    assert expected in str(raised.value).replace("nets_of_mine.py", "nets_of_mine")


def test_own_encoder_reference_does_not_depend_on_the_folder(tmp_path, monkeypatch):
    (tmp_path / "nets_elsewhere.py").write_text("def make(key, space):\n    return None\n")
    monkeypatch.chdir(tmp_path)
    word = encoder_reference("nets_elsewhere.py:make")
    assert word == f"{tmp_path}/nets_elsewhere.py:make"
    factory, name = find_encoder(word)
    assert (factory.__name__, name) == ("make", "nets_elsewhere:make")
    assert encoder_reference(factory) == word
    assert encoder_reference(None) == encoder_reference("") == ""
    own = encoder_reference(lambda key, space: None)
    assert isinstance(own, InMemoryEncoder)
    assert find_encoder(own)[0] is own.factory


def test_own_encoder_is_refused_by_an_algorithm_that_ignores_it():
    with pytest.raises(Mistake, match="mine makes no encoder from its Spec"):
        check_choice_is_used("nature", {"weights": jnp.ones(3)}, "mine")
    plain = Encoder.create(jax.random.key(0), VECTOR)
    with pytest.raises(Mistake, match=r"Write Encoder.create\(key, spec\) in its init"):
        check_choice_is_used("flat", {"torso": plain}, "mine")
