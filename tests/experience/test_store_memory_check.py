"""How many bytes are free, on a device that says so and on one that does not."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from sterling.data import available_memory
from sterling.experience import store_memory_check
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
def test_free_memory_is_the_device_limit_less_the_bytes_in_use(platform, known, free, monkeypatch):
    device = SimpleNamespace(platform=platform, memory_stats=lambda: known)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(available_memory, "free_bytes", lambda: 7)
    assert store_memory_check.free_bytes() == free


def test_store_memory_check_refuses_more_bytes_than_are_free(monkeypatch):
    """Two seeds of 100 numbers of 4 bytes; four fifths of what is free is proposed."""

    def create():
        return jnp.zeros((2, 100))

    monkeypatch.setattr(store_memory_check, "free_bytes", lambda: 800)
    store_memory_check.check_memory(100, create)
    monkeypatch.setattr(store_memory_check, "free_bytes", lambda: 799)
    with pytest.raises(Mistake, match=r"needs 8e-07 GB, but 7\.99e-07 GB .*set capacity=80"):
        store_memory_check.check_memory(100, create)
    monkeypatch.setattr(store_memory_check, "free_bytes", lambda: None)
    store_memory_check.check_memory(100, create)
