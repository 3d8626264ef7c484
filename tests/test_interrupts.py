"""Ctrl-C ends a command wherever it comes, in one line, with what is to be tidied up tidied up."""

import os
import signal
import subprocess
import sys

import pytest

from sterling.system import interrupts
from sterling.system.interrupts import CtrlCHandler

BEGIN = """
import gc, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from sterling import cli, commands
from sterling.system import interrupts

interrupts.GRACE_SECONDS = 600.0  # on a busy machine too it is not used up

class Command:
    @staticmethod
    def add_options(parser):
        pass

    @staticmethod
    def carry_out(chosen):
        try:
            work()
        finally:
            pathlib.Path(sys.argv[1]).write_text("tidy")
        return 0

commands.command_module = lambda name: Command
"""
END = """
sys.exit(cli.main(["list"]))
"""
WORK = {
    "python": """
def work():
    print("ready", flush=True)
    time.sleep(60)
""",
    "a callback of the collector": """
def heard(phase, info):
    gc.callbacks.clear()
    print("ready", flush=True)
    time.sleep(60)

def work():
    gc.callbacks.append(heard)
    gc.collect()
    time.sleep(60)
""",
    "an import": """
def work():
    folder = pathlib.Path(sys.argv[1]).parent
    (folder / "slow_to_import.py").write_text(
        "import sys\\nprint('ready', flush=True)\\ntry:\\n    sys.stdin.read()\\n"
        "except BaseException:\\n    print('interrupted in an import')\\n    raise ImportError"
    )
    sys.path.insert(0, str(folder))
    import slow_to_import
    time.sleep(60)
""",
    "an error of another kind": """
def work():
    print("ready", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError("failed, as it was interrupted") from None
""",
}
DEAF = """
interrupts.GRACE_SECONDS = 1.0

def work():
    said = False
    while True:
        try:
            if not said:
                said = True
                print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("forgotten", flush=True)
"""


@pytest.fixture(autouse=True)
def _python_answers():
    """Who runs the tests in the background of a shell has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(program, tmp_path, times=1):
    """Exit code, what was printed and complained of, and whether it was tidied up."""
    tidy = tmp_path / "tidy"
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + program + END, str(tidy)],
        stdin=subprocess.PIPE,  # it ends when the signals have been sent
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err, tidy.exists()


@pytest.mark.parametrize("where", WORK)
def test_ctrl_c_ends_the_command_with_code_130(where, tmp_path):
    for times in (1, 3) if where == "python" else (1,):  # terminals deliver it twice
        code, out, err, tidy = interrupted(WORK[where], tmp_path, times)
        assert (code, out, err) == (130, "", "stopped\n")
        assert tidy


def test_ctrl_c_swallowed_by_user_code_still_ends_the_command(tmp_path):
    code, out, err, _ = interrupted(DEAF, tmp_path)
    assert (code, out, err) == (130, "forgotten\n", "stopped\n")


def test_a_repeated_ctrl_c_does_not_break_the_clean_up_of_the_first(monkeypatch):
    monkeypatch.setattr(interrupts, "DEBOUNCE_SECONDS", 600.0)  # however slow this machine is
    monkeypatch.setattr(interrupts, "GRACE_SECONDS", 600.0)
    tidied = []

    def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            tidied.append(True)

    with pytest.raises(KeyboardInterrupt), CtrlCHandler():
        work()
    assert tidied


def test_ctrl_c_handler_restores_previous_handlers():
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    leaving = CtrlCHandler()
    with pytest.raises(KeyboardInterrupt), leaving:
        os.kill(os.getpid(), signal.SIGINT)
    assert leaving.asked
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_ctrl_c_handler_keeps_an_ignored_sigint_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with CtrlCHandler() as leaving:
        os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert not leaving.asked


def test_ctrl_c_during_import_exits_silently():
    line = "\n".join(
        [
            "import runpy, sys",
            "class Interrupted:",
            "    def find_spec(name, *_):",
            "        if name == 'sterling.cli': raise KeyboardInterrupt",
            "sys.meta_path.insert(0, Interrupted)",
            "runpy.run_module('sterling', run_name='__main__')",
        ]
    )
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
