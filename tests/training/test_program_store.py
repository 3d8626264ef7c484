"""Stored programs: who takes them, who does not, and that they compute the same."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.system.processes import own_process
from sterling.system.trusted_folder import TrustedFolder
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.runtime import program_facts, program_store
from sterling.training.runtime.program_store import StoredJit, is_storable, opened

posix_only = pytest.mark.skipif(not TrustedFolder.is_possible(), reason="POSIX only")
pytestmark = posix_only
SETTINGS = resolve_settings("ppo", "CartPole-v1", fields={}, steps=1000)


@pytest.fixture(autouse=True)
def command_line(tmp_path, monkeypatch):
    """A process that may use stored programs, with an empty cache."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    monkeypatch.setattr(program_store._process, "from_command_line", True)
    yield tmp_path / "sterling-programs"
    jax.config.update("jax_compilation_cache_dir", before)


def call(settings=SETTINGS, size=8, scale=2.0):
    """Run a function that is new to JAX, as in a new process; return its traces and results."""
    traces = []

    def double(x, y):
        traces.append(1)
        return jnp.cumsum(jnp.sin(x) * scale) + y, {"sum": y.sum()}

    program = StoredJit("test", jax.jit(double, donate_argnums=0), lambda x, y: (x, {"sum": y[0]}))
    x, y = jnp.linspace(0.0, 9.0, size), jnp.ones(size) / 3
    with opened(settings):
        found = program(x, y)
    assert x.is_deleted()  # donated, stored or not
    return len(traces), jax.device_get(found)


def test_second_process_loads_the_stored_program(command_line):
    first, second = call(), call()
    assert (first[0], second[0]) == (1, 0)
    jax.tree.map(np.testing.assert_array_equal, first[1], second[1])
    with opened(SETTINGS):
        names = [program_store.remembered("names", jnp.ones(3), lambda: ["a"]) for _ in range(2)]
        other = program_store.remembered("names", jnp.ones(3), lambda: ["b"])
    assert (*names, other) == (["a"], ["a"], ["a"])
    assert command_line.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in command_line.iterdir()} == {0o600}


def change_facts(monkeypatch, **changed):
    facts = program_facts.environment() | changed
    monkeypatch.setattr(program_facts, "environment", lambda: facts)


def test_source_hash_reads_every_file(monkeypatch, tmp_path):
    """A change anywhere in the package's code or tables is another hash."""
    place = tmp_path / "sterling" / "training" / "runtime" / "program_facts.py"
    place.parent.mkdir(parents=True)
    place.write_text("")
    monkeypatch.setattr(program_facts, "__file__", str(place))
    hashes = [program_facts.source_hash()]
    for name, text in (("nets.py", "a"), ("nets.py", "b"), ("presets.json", "{}")):
        (tmp_path / "sterling" / name).write_text(text)
        hashes.append(program_facts.source_hash())
    assert len(set(hashes)) == 4


@pytest.mark.parametrize("fact", ["source", "versions", "device", "processor", "options"])
def test_stored_program_is_not_used_under_other_facts(fact, monkeypatch):
    call()
    change_facts(monkeypatch, **{fact: "other"})
    traces, found = call(scale=3.0)  # what a changed source would compute
    assert traces == 1
    assert found[0][-1] != call(scale=2.0, size=9)[1][0][-1]


def test_stored_program_is_not_used_for_other_settings_or_shapes():
    call()
    for change in ({"seeds": (1,)}, {"env_options": {"max_episode_steps": 9}}, {"envs": 3}):
        assert call(dataclasses.replace(SETTINGS, **change))[0] == 1
    assert call(size=9)[0] == 1
    assert call()[0] == 0


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def swap(path):
    """Put another file of the same user in its place."""
    path.write_bytes(max(path.parent.iterdir(), key=lambda each: each.stat().st_size).read_bytes())


@pytest.mark.parametrize(
    "spoil", [damage, swap, lambda path: path.write_bytes(b""), lambda path: path.chmod(0o666)]
)
def test_damaged_program_files_are_not_loaded(spoil, command_line):
    _, wanted = call()
    small = min(command_line.iterdir(), key=lambda path: path.stat().st_size)
    spoil(small)
    traces, found = call()
    assert traces == 1
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    assert call()[0] == 0  # it was written anew
    large = max(command_line.iterdir(), key=lambda path: path.stat().st_size)
    damage(large)
    assert call()[0] == 1


def test_program_store_ignores_world_writable_folders_and_symlinks(command_line, tmp_path):
    call()
    command_line.chmod(0o777)
    assert call()[0] == 1
    command_line.chmod(0o700)
    assert call()[0] == 0
    for path in command_line.iterdir():
        elsewhere = tmp_path / f"moved-{path.name}"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    assert call()[0] == 1


def test_trusted_folder_evicts_the_least_recently_used_file(tmp_path):
    folder = TrustedFolder(tmp_path / "few", max_bytes=1100)
    for age, name in enumerate(["a", "b", "c"]):
        folder.write(name, name.encode() * 300)
        os.utime(tmp_path / "few" / name, (age, age))
    assert folder.read("a") == b"a" * 300  # used now, so "b" is the oldest
    folder.write("d", b"d" * 300)
    assert [folder.read(name) is not None for name in "abcd"] == [True, False, True, True]
    folder.write("e", b"e" * 2000)
    assert folder.read("e") is None


def test_program_store_is_off_in_python_and_by_its_switch(monkeypatch):
    program_store.use_on_command_line()  # a program that calls a command's function
    assert (call()[0], call()[0]) == (1, 1)
    monkeypatch.setattr(own_process, "_own", [True])
    monkeypatch.setenv(program_store.SWITCH, "0")
    program_store.use_on_command_line()
    assert (call()[0], call()[0]) == (1, 1)
    monkeypatch.delenv(program_store.SWITCH)
    program_store.use_on_command_line()
    assert (call()[0], call()[0]) == (1, 0)


def test_programs_with_library_calls_are_not_stored(command_line):
    """Their functions are known to the process only after JAX has lowered such a call."""
    program = StoredJit("q", jax.jit(lambda x: jnp.linalg.qr(x)[0]), lambda x: x)
    with opened(SETTINGS):
        found = program(jnp.eye(3))
    np.testing.assert_allclose(np.abs(found), np.eye(3), atol=1e-6)
    assert not list(command_line.iterdir())


def test_programs_of_user_code_are_not_stored(tmp_path):
    assert is_storable(SETTINGS)
    code = tmp_path / "mine.py"
    code.write_text("def make(): pass")
    for change in (
        {"algorithm": str(code)},
        {"environment": f"{code}:make"},
        {"environment": lambda: None},
        {"environment": "gymnax:CartPole-v1"},
        {"environment": "HalfCheetah-v5"},
        {"schedules": {"lr": print}},
        {"encoder": f"{code}:make"},
        {"sources": "plr"},
    ):
        assert not is_storable(dataclasses.replace(SETTINGS, **change)), change


@pytest.mark.slow
def test_runs_are_equal_with_and_without_stored_programs(tmp_path):
    """Fresh, storing, stored, and resumed with stored programs: the same policies bit for bit."""

    def sterling(*words, **more):
        known = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_LOG_COMPILES": "1"}
        known = {name: value for name, value in known.items() if "CACHE_DIR" not in name} | more
        command = [sys.executable, "-m", "sterling", *words]
        done = subprocess.run(command, env=known, capture_output=True, text=True, check=True)
        return re.findall(r"Compiling jit\((\w+)\)", done.stderr)

    def leaves(name):
        folder = tmp_path / name / "checkpoints"
        return max(folder.iterdir()).joinpath("tree.safetensors").read_bytes()

    words = ("train", "ppo", "CartPole-v1", "--steps", "4_000")
    lowered = {
        name: sterling(*words, "--out", str(tmp_path / name), **more)
        for name, more in (("fresh", {program_store.SWITCH: "0"}), ("first", {}), ("second", {}))
    }
    assert "make" in lowered["fresh"]
    # what creates an agent calls LAPACK, and such programs are not stored
    assert "_advance_traced" in lowered["fresh"]
    assert "_advance_traced" not in lowered["second"]
    assert leaves("fresh") == leaves("first") == leaves("second")
    for name, more in (("fresh", {program_store.SWITCH: "0"}), ("second", {})):
        sterling("resume", str(tmp_path / name), "--steps", "8_000", **more)
    assert leaves("fresh") == leaves("second")
