"""Sources around another source: closing reaches it, and a draw may be compiled if its may."""

import dataclasses
from pathlib import Path

import equinox as eqx
import pytest
from constants import constant_array

from sterling.experience.language.delayed_batches import DelayedSource
from sterling.experience.offline.batch_augmentation import Augment
from sterling.experience.offline.mixed_sources import Mix
from sterling.experience.offline.recorded_batches import BatchRecorder

NONE = constant_array(0)
WRAPPERS = {
    "augment": lambda source: Augment(source, lambda record, key: record),
    "dump": lambda source: BatchRecorder(source, NONE, Path()),
    "mix": lambda source: Mix((source,)),
    "stale": lambda source: DelayedSource(source, (), NONE),
}


class Source(eqx.Module):
    """Notes that it was closed."""

    closed: list[bool] = dataclasses.field(default_factory=list)
    traced: bool = True

    def close(self):
        self.closed.append(True)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapped_source_is_closed_with_its_wrapper(wrap):
    source = Source()
    wrap(source).close()
    assert source.closed == [True]


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrapped_source_draw_is_compiled_where_the_inner_one_is(name):
    for traced in (True, False):
        assert WRAPPERS[name](Source(traced=traced)).traced == (traced and name != "dump")


def test_mixed_sources_are_compiled_where_all_sources_are():
    on_host, on_device = Source(traced=False), Source()
    assert Mix((on_device, on_device)).traced
    assert not Mix((on_host, on_device)).traced
