"""How many bytes are free, on a device that says so and on one that does not."""

from types import SimpleNamespace

import jax
import pytest

from sterling.data import memory
from sterling.experience import room


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
