"""Code that cheats, hangs, hoards or breaks out gets no pass and leaves nothing behind."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sterling.language.sandbox import Limits, isolation, run_code, run_python
from sterling.types import Mistake

# Attacks that walls must stop run with walls or not at all; the others run everywhere.
# The clock is for what would never end: a busy machine is slow at everything else.
WALLED = Limits(seconds=30.0)
LIMITS = replace(WALLED, allow_unsandboxed=True)
BRIEF = 1.0
ROOT = Path(__file__).parents[2]


def processes() -> set[int]:
    """The descendants of this process, zombies included, and those of guards that are orphans."""
    seen = psutil.process_iter(["cmdline", "ppid"])
    orphans = {
        p.pid for p in seen if p.info["ppid"] == 1 and "start_guarded.py" in str(p.info["cmdline"])
    }
    return orphans | {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = processes()
    yield
    assert not processes() - before
    assert not list(tmp_path.iterdir())


ADD = "def add(a, b):\n    return a + b\n"
TESTS = "assert add(1, 2) == 3\nassert add('a', 'b') == 'ab'\n"


def test_sandbox_passes_a_right_program_and_names_the_failing_test_line():
    assert run_code(ADD, TESTS, LIMITS).verdict == "pass"
    wrong = run_code("def add(a, b):\n    return 3\n", TESTS, LIMITS)
    assert (wrong.verdict, wrong.detail) == ("fail", "line 2: assert add('a', 'b') == 'ab'")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("def add(a, b) return", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def add(a, b): return a.nothing", "AttributeError"),
        ("def sub(a, b): return a - b", "NameError"),
        ("def add(a, b): return add(a, b)", "RecursionError"),
        ("import ctypes; ctypes.string_at(0)", "signal 11"),
    ],
)
def test_sandbox_reports_a_broken_program_as_error(code, word):
    outcome = run_code(code, TESTS, LIMITS)
    assert outcome.verdict == "error"
    assert word in outcome.detail


def test_sandbox_returns_every_python_value_type_unchanged():
    values = [1, -2.5, float("inf"), 10**40, "é\n", b"\x00\xff", None, True, 2 + 1j]
    values += [(1, (2,)), [[]], {1, 2}, frozenset({3}), {"a": [1], (1, 2): {}}]
    tests = f"inf = float('inf')\nassert same({values!r}) == {values!r}\n"
    tests += "assert same((1,)) != [1]\nassert type(same(True)) is bool\n"
    assert run_code("def same(x): return x", tests, LIMITS).verdict == "pass"


def test_sandbox_tests_see_objects_generators_exceptions_and_mutations():
    code = """
class Bad(ValueError): pass
class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item); return self
    def __len__(self): return len(self.items)
    def __str__(self): return f"Stack{self.items}"
def count(n): yield from range(n)
def fail(): raise Bad("no")
def tidy(items): items.sort()
def sum(items): return 42
"""
    tests = """
stack = Stack().push(1).push([2])
assert len(stack) == 2 and stack.items == [1, [2]] and str(stack) == "Stack[1, [2]]"
assert list(count(3)) == [0, 1, 2]
items = [3, 1, 2]
assert tidy(items) is None and items == [1, 2, 3]
assert sum([1, 2]) == 3 and solution.sum([1]) == 42
try:
    fail()
except ValueError as error:
    assert str(error) == "Bad: no"
else:
    raise AssertionError("nothing was raised")
"""
    assert run_code(code, tests, LIMITS) == run_code(ADD, TESTS, LIMITS)


CHEATS = {
    "exit": "import sys; sys.exit(0)",
    "hard exit": "import os; os._exit(0)",
    "exit when called": "import os\ndef add(a, b): os._exit(0)",
    "exception when called": "def add(a, b): raise SystemExit(0)",
    "stop iteration": "def add(a, b): raise StopIteration",
    "prints": 'print(\'{"verdict": "pass", "nonce": ""}\')',
    "always equal": "class E(int):\n __eq__ = lambda s, o: True\n __hash__ = int.__hash__\n"
    "def add(a, b): return E()",
    "equal type": "class M(type):\n __eq__ = lambda s, o: True\n __hash__ = type.__hash__\n"
    "class E(metaclass=M): pass\ndef add(a, b): return E",
    "contains all": "class E:\n __contains__ = lambda s, o: True\ndef add(a, b): return E()",
    "no assertions": "import builtins\nbuiltins.AssertionError = Exception\n"
    "builtins.exec = builtins.compile = lambda *a: None\ndef add(a, b): return 0",
    "patched json": "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\n",
    "patched judge": "import sys\nfor m in list(sys.modules.values()):\n"
    "  for n in dir(m):\n"
    "    if n in ('judge_solution', '_run_tests', 'send_verdict', '_exception_class'):\n"
    "      setattr(m, n, lambda *a, **k: ('pass', ''))\ndef add(a, b): return 0",
    "hides names": "all = any = isinstance = lambda *a: True\ndef add(a, b): return 0",
    "writes everywhere": "import os\nfor f in range(100):\n"
    '  try: os.write(f, b\'{"verdict": "pass", "nonce": "", "detail": ""}\\n\')\n'
    "  except OSError: pass\ndef add(a, b): return 0",
    "kills the judge": "import os, signal\nfor s in (2, 9, 15):\n"
    "  try: os.kill(os.getppid(), s)\n  except OSError: pass\ndef add(a, b): return 0",
    "searches memory": "import gc, sys\nfound = [o for o in gc.get_objects() if 'assert' in str(o)"
    " and 'call-me' in str(o)]\ndef add(a, b): return 3 if found else 0",
}


@pytest.mark.parametrize("name", CHEATS)
def test_sandbox_cheating_programs_do_not_pass(name):
    tests = "assert all(add(i, 1) == i + 1 for i in range(3)), 'call-me'\n"
    tests += "assert [*map(add, [1, 2], [3, 4])] == [4, 6]\nassert 4 in [add(1, 3)]\n"
    assert run_code(CHEATS[name], tests, LIMITS).verdict in (
        "fail",
        "error",
        "refused",
    )


BURDENS = {
    "endless loop": ("while True: pass", "timeout"),
    "sleep": ("import time; time.sleep(600)", "timeout"),
    "deaf to SIGTERM": (
        "import signal, time\nfor s in (1, 2, 3, 15, 24): signal.signal(s, signal.SIG_IGN)\n"
        "while True: time.sleep(60)",
        "timeout",
    ),
    "10 GB": ("x = bytearray(10 * 1024**3)", "oom"),
    "10 GB in steps": ("x = []\nwhile True: x.append('0' * 10**6 + str(len(x)))", "oom"),
    "1 GB of output": ("while True: print('x' * 100_000)", "error"),
    "large file": (
        "import os\nf = open('a', 'wb')\nfor i in range(64): f.write(os.urandom(2**20))",
        "error",
    ),
    "many files": ("f = [open('f' + str(i), 'w') for i in range(1000)]", "error"),
}


@pytest.mark.parametrize("name", BURDENS)
def test_sandbox_ends_programs_beyond_time_memory_output_and_file_limits(name):
    code, verdict = BURDENS[name]
    limits = replace(LIMITS, seconds=BRIEF) if verdict == "timeout" else LIMITS
    begun = time.monotonic()
    assert run_code(code, "assert True", limits).verdict == verdict
    assert run_code(code, "assert True", Limits(0.5)).verdict in (verdict, "timeout", "refused")
    assert time.monotonic() - begun < limits.seconds + 60


def test_a_fork_bomb_is_contained():
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    assert run_code(bomb, "assert True", Limits(BRIEF)).verdict in ("timeout", "refused")
    few = replace(WALLED, processes=5)
    code = "import subprocess, sys\np = []\ntry:\n  for i in range(50):\n"
    code += "    p.append(subprocess.Popen(['/bin/sleep', '9']))\nexcept OSError: pass\nlen(p)"
    outcome = run_python(code, few)
    assert outcome.verdict == "refused" or int(outcome.output) == 4


UNCOUNTED = {
    "memfd": "os.memfd_create('a')",
    "shared memory": "check(c.shmget(0, 100 << 20, 0o1600))",
    "queues": "check(c.msgget(0, 0o1600))",
    "semaphores": "check(c.semget(0, 30_000, 0o1600))",
    "a mount of its own": "check(c.unshare(0x10000000 | 0x20000))",
    "a clone with mounts of its own": "check(c.syscall(CLONE, 0x10000000 | 17, 0, 0, 0, 0))",
}


@pytest.mark.parametrize("name", UNCOUNTED)
def test_sandbox_denies_resources_outside_its_limits(name):
    code = f"""import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
CLONE = 56 if os.uname().machine == "x86_64" else 220
def check(result):
    if result == 0: os._exit(0)  # a clone
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
{UNCOUNTED[name]}"""
    outcome = run_python(code, WALLED)
    assert outcome.verdict in ("error", "refused")
    if outcome.verdict == "error":
        assert "Function not implemented" in outcome.detail or "not permitted" in outcome.detail


def test_sandbox_allows_threads_and_subprocesses():
    code = """import subprocess, threading
seen = []
thread = threading.Thread(target=seen.append, args=(1,))
thread.start(); thread.join()
seen.append(subprocess.run(["/bin/true"]).returncode)
seen"""
    outcome = run_python(code, WALLED)
    assert outcome.verdict == "refused" or outcome.output == "[1, 0]\n"


def test_a_daemon_does_not_outlive_its_run():
    code = "import os, time\nfor i in range(2):\n  if os.fork(): break\n  os.setsid()\n"
    code += "else:\n  for f in range(50):\n    try: os.close(f)\n    except OSError: pass\n"
    code += "  while True: time.sleep(1)\nos.wait() if 0 else None\n"
    assert run_python(code, LIMITS).verdict == "pass"


@pytest.mark.parametrize(
    "code",
    [
        "open('/tmp/sterling-escape', 'w')",
        "open('/usr/sterling-escape', 'w')",
        "open('/box/../sterling-escape', 'w')",
        "open('/etc/passwd').read()",
        "open('/proc/1/environ').read()",
        f"open({__file__!r}).read()",
        "import os; os.kill(os.getppid(), 0); os.mkdir('/a')",
        "import socket; socket.create_connection(('1.1.1.1', 80), 1)",
        "import socket; socket.socket().connect(('127.0.0.1', 22))",
        "import os; os.setuid(0)",
    ],
)
def test_sandbox_denies_outside_files_and_network(code):
    outcome = run_python(code, WALLED)
    assert outcome.verdict in ("error", "refused")
    assert "Error" in outcome.detail or outcome.verdict == "refused"
    assert not Path("/tmp/sterling-escape").exists()


def test_sandbox_hides_environment_variables(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    outcome = run_python("import os; print(dict(os.environ)); os.system('env')", LIMITS)
    assert outcome.verdict == "pass"
    assert "hush" not in outcome.output


def test_a_script_shows_its_output_and_its_last_value():
    outcome = run_python("name = input()\nprint('hi', name)\n[1] * 2", LIMITS, stdin="bo\n")
    assert (outcome.verdict, outcome.output) == ("pass", "hi bo\n[1, 1]\n")
    broken = run_python("print(1)\nprint(nothing)", LIMITS)
    assert broken.verdict == "error"
    assert broken.output.startswith("1\nTraceback")
    assert str(ROOT) not in broken.output


def test_output_is_cut_at_its_limit():
    outcome = run_python("print('x' * 500)", Limits(output=100, allow_unsandboxed=True))
    assert (outcome.verdict, outcome.output) == ("error", "x" * 100)


def test_sandbox_refuses_empty_or_invalid_hidden_tests():
    for tests in ("", "  \n# only words\n"):
        with pytest.raises(Mistake, match="every program would pass"):
            run_code(ADD, tests)
    with pytest.raises(Mistake, match="not valid Python"):
        run_code(ADD, "assert add(1, 2 ==")


def without_walls(body: str, stream: str = "stdout") -> str:
    """What a program says where namespaces of the network are used up, so that no walls stand."""
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$0" -c "$1"'
    head = "from sterling.language.sandbox import *\nl = Limits(1.0, allow_unsandboxed=True)\n"
    enter = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid]
    if isolation() != "namespaces":
        enter = ["sh", "-c", 'exec "$0" -c "$1"']
    done = subprocess.run(
        [*enter, sys.executable, head + body],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    return str(getattr(done, stream))


def test_sandbox_without_isolation_refuses_to_run_unless_allowed():
    body = f"print(isolation())\nprint(run_code({ADD!r}, {TESTS!r}))\n"
    body += f"print(run_code({ADD!r}, {TESTS!r}, l).verdict)\n"
    body += "print(run_code('import os; os._exit(0)', 'assert True', l).verdict)\n"
    body += "print(run_code('while True: pass', 'assert True', l).verdict)\n"
    body += "d = 'import os, time\\nif os.fork() == 0:\\n  os.setsid()\\n  time.sleep(60)'\n"
    body += "print(run_python(d, l).verdict)\n"
    lines = without_walls(body).splitlines()
    assert lines[0].startswith("none: ")
    assert "verdict='refused'" in lines[1]
    assert "Limits(allow_unsandboxed=True)" in lines[1]
    assert lines[2:] == ["pass", "error", "timeout", "pass"]


def test_sandbox_without_isolation_warns_once():
    said = without_walls("for _ in range(2): run_python('1', l)\n", "stderr").splitlines()
    assert len(said) == 1
    assert said[0].startswith("WARNING: no sandbox can be built here (")
    assert "runs with your rights, your files and your network" in said[0]
    assert not without_walls("run_python('1', Limits(1.0))\n", "stderr")
