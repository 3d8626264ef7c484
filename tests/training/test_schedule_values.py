"""Schedules alone: values at known places, their words, and what is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import schedule_words, schedules
from sterling.schedules import Schedule
from sterling.types import Mistake

PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("constant:2", (2, 2, 2, 2, 2)),
        ("linear:4:0", (4, 3, 2, 1, 0)),
        ("linear:0:4", (0, 1, 2, 3, 4)),
        ("linear:4:1:0.5", (4, 2.5, 1, 1, 1)),
        ("cosine:2:0", (2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5), 0)),
        ("exponential:16:1", (16, 8, 4, 2, 1)),
        ("exponential:-16:-1:0.5", (-16, -4, -1, -1, -1)),
        ("warmup:0.5:3", (0, 1.5, 3, 3, 3)),
        ("warmup:0.25+linear:3:0", (0, 3, 2, 1, 0)),
        ("warmup:0.25+linear:2:0:0.75", (0, 2, 1, 0, 0)),
        ("piecewise:0=1,0.5=3,1=0", (1, 2, 3, 1.5, 0)),
        ("piecewise:0.25=1,0.75=2", (1, 1, 1.5, 2, 2)),
    ],
)
def test_schedule_values_at_known_progress(words, values):
    made = schedule_words.parse(words)
    np.testing.assert_allclose(made(np.float32(PLACES)), np.float32(values), rtol=1e-6, atol=1e-6)
    alone = [float(jax.jit(made)(jnp.float32(place))) for place in PLACES]
    np.testing.assert_allclose(alone, np.float32(values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "made",
    [
        schedules.constant(0.1),
        schedules.linear(3e-4, 0),
        schedules.linear(1 / 3, 1e-17, end=0.8),
        schedules.cosine(3e-4, 1e-5),
        schedules.exponential(1, 1e-3),
        schedules.warmup(0.05, 3e-4),
        schedules.warmup(0.05, schedules.cosine(3e-4, 0, 0.9)),
        schedules.piecewise([(0, 1), (0.5, 2)]),
        schedules.piecewise([(0, 1), (20_000, 2)], "steps"),
    ],
)
def test_schedule_text_round_trips(made):
    assert schedule_words.parse(str(made)) == made
    values = [value for _, value in made.corners()]
    inside = made.with_places(lambda place: place / 40_000)(np.linspace(0, 1, 101))
    assert min(values) - 1e-6 <= float(inside.min())
    assert float(inside.max()) <= max(values) + 1e-6
    if made.unit == "progress":
        assert float(made(0.0)) == pytest.approx(made.corners()[0][1])


def test_schedule_is_read_from_a_csv_file(tmp_path):
    (tmp_path / "lr.csv").write_text("progress, value\n0,3e-4\n0.5,1e-4\n\n1,0\n")
    made = schedule_words.parse(str(tmp_path / "lr.csv"))
    assert made == schedules.piecewise([(0, 3e-4), (0.5, 1e-4), (1, 0)])
    assert str(made) == "piecewise:0=0.0003,0.5=0.0001,1=0"  # stored without the file
    (tmp_path / "steps.csv").write_text("step,value\n0,1\n20000,0.5\n")
    made = schedule_words.parse(str(tmp_path / "steps.csv"))
    assert isinstance(made, Schedule)
    assert made.unit == "steps"
    assert float(made.with_places(lambda place: place / 40_000)(0.25)) == 0.75


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the first row must be progress,value"),
        ("time,value\n0,1\n", "the first row must be progress,value"),
        ("progress,value\n", "at least one point"),
        ("progress,value\n0,1\n0.5\n", "each row must have two numbers; got '0.5'"),
        ("progress,value\n0,much\n", "'much' is not a number"),
        ("progress,value\n0,1\n2,1\n", "places must be between 0 and 1"),
        ("step,value\n10,1\n5,1\n", "in order of increasing places"),
        ("progress,value\n0,nan\n", "not a finite number"),
    ],
)
def test_invalid_schedule_csv_files_are_refused(text, words, tmp_path):
    (tmp_path / "lr.csv").write_text(text)
    with pytest.raises(Mistake, match=words):
        schedule_words.parse(str(tmp_path / "lr.csv"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast", "neither a number nor a schedule; write constant:A, linear:A:B"),
        ("linaer:1:0", "did you mean linear"),
        ("linear:1", "write linear:A:B or linear:A:B:END"),
        ("linear:1:0:0.5:9", "write linear:A:B or linear:A:B:END"),
        ("linear:a:0", "'a' is not a number"),
        ("linear:1:inf", "'inf' is not a finite number"),
        ("constant:1:2", "write constant:A"),
        ("linear:1:0:1.5", "END must be shares of the run"),
        ("linear:1:0:0", "END must be shares of the run"),
        ("warmup:0.05", "write warmup:SHARE:A or"),
        ("warmup:0.9+linear:1:0:0.8", "0 <= SHARE < END <= 1"),
        ("warmup:0.1+piecewise:0=1", "warmup goes before"),
        ("warmup:0.1+warmup:0.1:1", "warmup goes before"),
        ("warmup:0.1:3+linear:1:0", "write warmup:SHARE\\+KIND:A:B"),
        ("exponential:1:0", "cannot reach or cross 0"),
        ("exponential:1:-1", "cannot reach or cross 0"),
        ("piecewise:0.5=1,0.5=2", "in order of increasing places"),
        ("piecewise:1", "write piecewise:PLACE=VALUE"),
        ("piecewise:rounds:0=1", "places are progress, steps, updates"),
        ("nowhere.csv", "cannot be read"),
        ("nowhere.py:falling", "there is no such file"),
    ],
)
def test_invalid_schedule_words_are_refused(text, words):
    with pytest.raises(Mistake, match=words):
        schedule_words.parse(text)
