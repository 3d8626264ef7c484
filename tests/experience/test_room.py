"""How many bytes are free, on a device that says so and on one that does not."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from sterling.data import memory
from sterling.experience import room
from sterling.types import Mistake


@pytest.mark.parametrize(
    ("platform", "known", "free"),
    [
        ("cpu", {"bytes_limit": 100}, 7),  # the operating system's word
        ("gpu", {"bytes_limit": 100, "bytes_in_use": 30}, 70),
        ("gpu", {"bytes_limit": 100}, 100),
        ("gpu", {"bytes_in_use": 30}, None),
        ("tpu", None, None),
    ],
)
def test_what_is_free_is_the_device_s_limit_without_what_is_in_use(
    platform, known, free, monkeypatch
):
    device = SimpleNamespace(platform=platform, memory_stats=lambda: known)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(memory, "left", lambda: 7)
    assert room.left() == free


def test_a_capacity_is_refused_where_its_bytes_are_more_than_are_free(monkeypatch):
    """Two seeds of 100 numbers of 4 bytes; four fifths of what is free is proposed."""

    def create():
        return jnp.zeros((2, 100))

    monkeypatch.setattr(room, "left", lambda: 800)
    room.check_room(100, create)
    monkeypatch.setattr(room, "left", lambda: 799)
    with pytest.raises(Mistake, match=r"needs 8e-07 GB and 7\.99e-07 GB .*set capacity=80"):
        room.check_room(100, create)
    monkeypatch.setattr(room, "left", lambda: None)
    room.check_room(100, create)
