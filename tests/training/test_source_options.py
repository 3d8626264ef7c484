"""The options of sources: read as an algorithm's are, by position or by name."""

from typing import Annotated

import jax.numpy as jnp
import logs
import pytest

from sterling import random_keys
from sterling.experience.exploration.exploration_bonus import ExplorationBonus
from sterling.experience.replay.ring_buffer import Place
from sterling.experience.source_layers import Layer
from sterling.field_types import Count, OneOf, Share
from sterling.training.assembly import run_dataset
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.assembly.build_sources import read_options
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.phases.phase_change import enter_phase
from sterling.training.phases.phase_sequence import plan_phases
from sterling.types import Mistake, config


@config
class Config:
    count: Count = 3
    share: Share = 0.5
    kind: Annotated[str, OneOf(("near", "far"))] = "near"
    whole: bool = False


CHOSEN = Layer("chosen", "has options of every type", Config)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", (3, 0.5, "near", False)),
        ("4,0.25,far,true", (4, 0.25, "far", True)),
        ("1e1,1,near,FALSE", (10, 1.0, "near", False)),
        (" kind=far , count = 2 ", (2, 0.5, "far", False)),
    ],
)
def test_options_of_a_source_have_the_types_of_its_config(text, values):
    assert tuple(vars(read_options(CHOSEN, text)).values()) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4", "give all its options in this order, or each by name, once"),
        ("kind=far,2", "give all its options"),
        ("kind=far,kind=near", "give all its options"),
        ("count=0", "count must be at least 1"),
        ("count=2.5", "count must be of type int; got 2.5"),
        ("count=x", "count must be of type int; got 'x'"),
        ("share=2", "share must be"),
        ("kind=fat", "Unknown kind='fat' of chosen; did you mean far"),
        ("kinds=far", "chosen has no field 'kinds'"),
        ("whole=yes", "whole must be of type bool"),
    ],
)
def test_wrong_options_of_a_source_are_refused_in_one_line(text, said):
    example = r"write chosen:3,0\.5,near,false or chosen:count=3,share=0\.5,kind=near,whole=false$"
    with pytest.raises(Mistake, match=f"^sources=chosen:{text}: .*{said}.*; {example}"):
        read_options(CHOSEN, text)


def test_layer_without_a_class_of_options_is_refused():
    with pytest.raises(Mistake, match=r"the layer old has the Config .*Give a class"):
        Layer("old", "a layer of numbers", (0.1,))


def test_sources_change_what_a_run_with_a_log_collects(tmp_path):
    """Beside a log from the first iteration on, and after updates from it alone."""
    data = logs.write("both-continuous", False, tmp_path)
    log = run_dataset.make_log_settings(data, share=0.5)
    fields = {"width": 16, "batch": 8, "capacity": 400, "warmup": 8}
    how = {"data": log, "steps": 80, "envs": 4, "sources": "counts:100", "fields": fields}
    mixed = build_first_phase(resolve_settings("iql", "probe:both-continuous", **how))
    settings = resolve_settings("iql", "probe:both-continuous", updates=20, **how)
    tuned = enter_phase(plan_phases(settings)[1], build_first_phase(settings), warm=True)
    for run in (mixed, tuned):
        _, lived = run.source.sources
        keys = random_keys.for_seeds(run.seeds, "test", 0)
        assert isinstance(lived.source, ExplorationBonus)
        _, draws = lived.collect(run.agent, keys)
        first = Place(jnp.asarray(0), *jnp.zeros((2, 1), jnp.int32))
        assert draws.ring.scalars(first)[0] > 10.0
