"""Damaged files of data and of runs cost one line: some cases of the campaign, by their seeds."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "reliability"))
import damage

CASES = 6  # of each kind; benchmarks/reliability/damage.py tries hundreds


@pytest.mark.slow
@pytest.mark.parametrize("kind", damage.READERS)
def test_damaged_run_and_dataset_files_give_a_result_or_one_line(kind):
    """In a process that JAX has not begun to work in: such processes can be forked."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(damage.__file__).parent)!r}); import damage\n"
        f"found = damage.campaign({CASES}, [{kind!r}])[{kind!r}]\n"
        "assert found['held'] == found['tried'] > 0, found"
    )
    done = damage.subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


FAULTS = {
    "raise damage.Mistake('no')": "one line",
    "raise damage.Mistake('no\\nno')": "several lines",
    "raise KeyError('x')": "KeyError",
    "damage.os.kill(damage.os.getpid(), 11)": "ended with -11",
    "damage.signal.alarm(1); damage.signal.pause()": "no answer",
    "bytearray(8 << 30)": "MemoryError",
}


@pytest.fixture(scope="module")
def outcomes():
    """What each fault is told to be, all by one process that JAX has not begun to work in."""
    script = f"import sys; sys.path.insert(0, {str(Path(damage.__file__).parent)!r}); import damage"
    for number, fault in enumerate(FAULTS):
        script += f"\ndef read{number}(path):\n    {fault}"
        script += f"\nprint('outcome', damage.outcome(read{number}, None), flush=True)"
    done = damage.subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("outcome ")]
    return dict(zip(FAULTS, told, strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_damage_campaign_detects_tracebacks_and_crashes(outcomes, fault):
    """Each way in which reading can fail is told from a result."""
    assert FAULTS[fault] in outcomes[fault]
