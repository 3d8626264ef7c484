"""A run that writes down its batches, stopped and gone on with, writes what it would have."""

import os
import signal

import pytest

import sterling
from sterling.experience.offline.batch_files import read_batch
from sterling.types import Mistake

pytestmark = pytest.mark.usefixtures("one_layer")
FIELDS = {
    **{"model": "nano", "limit": 4, "updates": 6, "prompts": 2, "group": 2, "seeds": 2},
    **{"log_every": 1, "evaluate_episodes": 2, "evaluate_every": 6},
}


class StopsAfter:
    """A sink that asks the process to leave once a row has been written."""

    def __init__(self, update):
        self.update = update

    def write(self, row):
        if row["update"] == self.update:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self):
        """Nothing is held."""


@pytest.mark.slow
def test_batch_dump_of_a_resumed_run_equals_the_uninterrupted_one(tmp_path):
    whole, broken, path = (tmp_path / name for name in ("whole", "broken", "run"))
    expected = sterling.train("grpo", "arithmetic", dump=str(whole), **FIELDS)
    stop = [StopsAfter(2)]
    with pytest.raises(SystemExit) as left:
        sterling.train("grpo", "arithmetic", dump=str(broken), out=path, sinks=stop, **FIELDS)
    assert left.value.code == 75
    assert len(list(broken.iterdir())) < 6
    found = sterling.resume(path)
    assert found.result["final"] == expected.result["final"]
    names = sorted(each.name for each in whole.iterdir())
    assert names == sorted(each.name for each in broken.iterdir())
    assert len([name for name in names if name.endswith(".safetensors")]) == 6
    for name in names:
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name
    again = sterling.train("grpo", "arithmetic", replay=str(broken), **FIELDS)
    assert again.result["final"] == expected.result["final"]
    assert read_batch(broken / names[0]).mask.any()
    more = FIELDS | {"updates": 7}  # said before the first update, not after the sixth
    with pytest.raises(Mistake, match="holds 6 batches, but these updates need 7; ask for fewer"):
        sterling.train("grpo", "arithmetic", replay=str(broken), out=tmp_path / "more", **more)
    assert not (tmp_path / "more").exists()
