"""Sterling without what only Linux has: every module imports, and a run is trained and resumed.

A child process hides what macOS or Windows lack. This machine's file system, sockets and JAX remain
those of Linux, so nothing here replaces a try on such a machine: see docs/platforms.md.
"""

import json
import os
import subprocess
import sys

import pytest

HIDE = """
import os, sys, signal, subprocess, importlib, pkgutil
# packages with builds for every system; these builds are for Linux
import equinox, gymnasium, h5py, imageio_ffmpeg, jax, matplotlib.pyplot, mujoco, optax, psutil
import tokenizers
psutil.virtual_memory()
system = sys.argv.pop(1)
sys.modules["envpool"] = None
hidden = ["memfd_create", "sched_getaffinity", "setresuid", "setresgid"]
if system == "windows":
    import fcntl, types
    locks = types.ModuleType("msvcrt")  # the two functions of Windows that Sterling calls
    locks.LK_NBLCK, locks.LK_UNLCK = 2, 0
    def locking(descriptor, mode, size):
        how = fcntl.LOCK_EX | fcntl.LOCK_NB if mode == locks.LK_NBLCK else fcntl.LOCK_UN
        fcntl.lockf(descriptor, how, size, os.lseek(descriptor, 0, os.SEEK_CUR))
    locks.locking = locking
    sys.modules["msvcrt"] = locks
    for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty"):
        sys.modules[name] = None
    hidden += ["fork", "setsid", "killpg", "getpgid", "getuid", "sysconf", "uname", "tcgetpgrp"]
    hidden += ["register_at_fork"]
    for name in ("SIGHUP", "SIGALRM", "setitimer", "pthread_kill"):
        delattr(signal, name)
    import sterling.system.windows_limits as limits
    limits.IS_WINDOWS = True
for name in hidden:
    if hasattr(os, name):
        delattr(os, name)
"""
IMPORT_ALL = (
    HIDE
    + """
import sterling
child = {"start_guarded", "solution_process"}  # run in a sandbox's process only
for found in pkgutil.walk_packages(sterling.__path__, "sterling."):
    if found.name.rpartition(".")[2] not in {*child, "__main__"}:
        importlib.import_module(found.name)
"""
)
COMMAND = (
    HIDE
    + """
from sterling.__main__ import main
sys.exit(main())
"""
)


def run(script, *words):
    quick = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", ""), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **quick},
        timeout=600,
    )


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_every_module_imports(system):
    done = run(IMPORT_ALL, system)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("system", [pytest.param("macos", marks=pytest.mark.slow), "windows"])
def test_a_run_is_trained_and_resumed(system, tmp_path):
    out = tmp_path / "run"
    words = ("train", "ppo", "CartPole-v1", "--steps", "2_048", "--out", out)
    done = run(COMMAND, system, *words, "--evaluate-episodes", "2")
    assert done.returncode == 0, done.stderr[-2000:]
    more = run(COMMAND, system, "resume", out, "--steps", "4_096")
    assert more.returncode == 0, more.stderr[-2000:]
    assert json.loads((out / "result.json").read_text())["steps"] == 4_096


@pytest.mark.slow
def test_windows_steps_gymnasium_environments_in_the_trainers_process(tmp_path):
    words = ("train", "ppo", "gymnasium:CartPole-v1", "--steps", "256", "--length", "32")
    done = run(COMMAND, "windows", *words, "--evaluate-episodes", "1", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_windows_limits_are_named_in_one_line(tmp_path):
    for words, reason in (
        (("ppo", "Pong-v5", "--steps", "100"), "EnvPool is not installed"),
        (("ppo", "gymnasium:CartPole-v1", "--steps", "2_048", "--env", "workers=1"), "workers=0"),
    ):
        done = run(COMMAND, "windows", "train", *words, "--out", tmp_path / "run")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1, done.stderr[-2000:]
        assert reason in done.stderr
