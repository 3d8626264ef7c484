"""Attacks on the walls by system calls, made for real by the code in the sandbox.

Where no walls can be built every run is refused, which is asserted instead. Numbers of calls are
written here once more: those of the filter could be wrong.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sterling.language.sandbox import Limits, isolation, run_python

LIMITS = Limits(seconds=30.0)
ROOT = Path(__file__).parents[2]
ARM = os.uname().machine == "aarch64"
KEYCTL, ADD_KEY, REQUEST_KEY = (219, 217, 218) if ARM else (250, 248, 249)
HEAD = """import ctypes, os, json
c = ctypes.CDLL(None, use_errno=True)
def plain(given):
    return given if isinstance(given, int) else ctypes.cast(given, ctypes.c_void_p).value
def call(number, *given):
    "The error of a call, or OK."
    ctypes.set_errno(0)
    result = c.syscall(*(ctypes.c_long(plain(each)) for each in (number, *given)))
    if result == 0 and os.getpid() != HERE: os._exit(0)  # a clone
    return "OK" if result >= 0 else os.strerror(ctypes.get_errno())
HERE = os.getpid()
"""
MISSING, REFUSED, NO_LOCK = map(os.strerror, (38, 1, 37))


def inside(code: str) -> str:
    """What the code prints behind the walls; "" where there are none, and the run was refused."""
    outcome = run_python(HEAD + code, LIMITS)
    if isolation() != "namespaces":
        assert outcome.verdict == "refused"
        return ""
    assert outcome.verdict == "pass", outcome
    return outcome.output


# name -> number on x86_64, on aarch64, arguments with which it goes well or fails of something
# else where there is no filter, the answer of the walls
CALLS = {
    "add_key": (248, 217, (b"user", b"planted", b"x", 1, -5), MISSING),
    "request_key": (249, 218, (b"user", b"secret", 0, 0), MISSING),
    "keyctl: read the session's keyring": (250, 219, (11, -3, 0, 0), MISSING),
    "keyctl: the user's keyring": (250, 219, (0, -4, 1), MISSING),
    "io_uring_setup": (425, 425, (4, bytes(120)), MISSING),
    "io_uring_enter": (426, 426, (0, 0, 0, 0, 0, 0), MISSING),
    "io_uring_register": (427, 427, (0, 0, 0, 0), MISSING),
    "io_setup": (206, 0, (4, bytes(8)), MISSING),
    "userfaultfd": (323, 282, (1,), MISSING),
    "bpf": (321, 280, (0, bytes(128), 128), MISSING),
    "perf_event_open": (298, 241, (bytes(128), 0, -1, -1, 0), MISSING),
    "memfd_create": (319, 279, (b"a", 0), MISSING),
    "memfd_secret": (447, 447, (0,), MISSING),
    "shmget": (29, 194, (0, 4096, 0o1600), MISSING),
    "msgget": (68, 186, (0, 0o1600), MISSING),
    "semget": (64, 190, (0, 1, 0o1600), MISSING),
    "mq_open": (240, 180, (b"a", os.O_CREAT | os.O_RDWR, 0o600, 0), MISSING),
    "vmsplice": (278, 75, (1, 0, 0, 0), MISSING),
    "inotify_init1": (294, 26, (0,), MISSING),
    "fanotify_init": (300, 262, (0x200, 0), MISSING),
    "clone3": (435, 435, (bytes(88), 88), MISSING),
    "pidfd_open": (434, 434, (1, 0), MISSING),
    "pidfd_getfd": (438, 438, (0, 0, 0), MISSING),
    "open_tree": (428, 428, (-100, b"/", 1), MISSING),
    "fsopen": (430, 430, (b"tmpfs", 0), MISSING),
    "mount_setattr": (442, 442, (-100, b"/", 0, bytes(32), 32), MISSING),
    "landlock": (444, 444, (0, 0, 1), MISSING),
    "statmount": (457, 457, (0, 0, 0, 0), MISSING),
    "a call of the future": (1000, 1000, (), MISSING),
    "ptrace": (101, 117, (0, 0, 0, 0), REFUSED),
    "process_vm_readv": (310, 270, (2, 0, 0, 0, 0, 0), REFUSED),
    "process_vm_writev": (311, 271, (2, 0, 0, 0, 0, 0), REFUSED),
    "kcmp": (312, 272, (1, 2, 0, 0, 0), REFUSED),
    "name_to_handle_at": (303, 264, (-100, b"/", bytes(200), bytes(8), 0), REFUSED),
    "open_by_handle_at": (304, 265, (-100, bytes(200), 0), REFUSED),
    "unshare": (272, 97, (0x10000000,), REFUSED),
    "setns": (308, 268, (0, 0), REFUSED),
    "mount": (165, 40, (b"a", b"/box", b"tmpfs", 0, 0), REFUSED),
    "chroot": (161, 51, (b"/",), REFUSED),
    "socket: unix": (41, 198, (1, 1, 0), REFUSED),
    "socket: netlink": (41, 198, (16, 3, 0), REFUSED),
    "socket: crypto": (41, 198, (38, 5, 0), REFUSED),
    "seccomp": (317, 277, (2, 0, 0), REFUSED),
    "prctl: seccomp": (157, 167, (22, 1, 0, 0, 0), REFUSED),
    "personality": (135, 92, (0xFFFFFFFF,), REFUSED),
    "clone: users": (56, 220, (0x10000000 | 17, 0, 0, 0, 0), REFUSED),
    "clone: mounts": (56, 220, (0x00020000 | 17, 0, 0, 0, 0), REFUSED),
    "clone: network": (56, 220, (0x40000000 | 17, 0, 0, 0, 0), REFUSED),
    "clone: processes": (56, 220, (0x20000000 | 17, 0, 0, 0, 0), REFUSED),
    "clone: cgroups": (56, 220, (0x02000000 | 17, 0, 0, 0, 0), REFUSED),
    "fcntl: F_SETPIPE_SZ": (72, 25, (1, 1031, 1 << 20), REFUSED),
    "fcntl: F_SETLK": (72, 25, (0, 6, bytes(32)), NO_LOCK),
    "fcntl: F_OFD_SETLK": (72, 25, (0, 37, bytes(32)), NO_LOCK),
    "fcntl: F_GETFL": (72, 25, (1, 3), "OK"),
    "getpid": (39, 172, (), "OK"),
    "close_range": (436, 436, (90, 90, 0), "OK"),
}


def test_sandbox_filter_answers_forbidden_system_calls():
    """Every answer is the filter's own, also where this kernel lacks the call or would refuse it
    for another reason: the kernel is not asked."""
    asked = {name: (number[ARM], *number[2]) for name, number in CALLS.items()}
    said = inside(f"print(json.dumps({{k: call(*v) for k, v in {asked!r}.items()}}))")
    if said:
        assert json.loads(said) == {name: answer for name, (*_, answer) in CALLS.items()}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have no such calls")
def test_sandbox_filter_blocks_system_calls_of_other_abis():
    """x32's numbers, and those of 32 bits by an interrupt: the filter knows the machine."""
    code = """import mmap
print(call(0x40000000 + 39), call(0x40000000 + 520))
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("53 b8 14 00 00 00 cd 80 5b c3"))  # getpid by int 0x80
made = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print(made())
"""
    said = inside(code)
    assert not said or said.splitlines() == [f"{MISSING} {MISSING}", str(-38)]


# Run outside, in a session keyring of its own: a secret that the code in the sandbox looks for.
SEARCH = f'print(call({REQUEST_KEY}, b"user", b"secret", 0, 0))\n'
PLANT = f"""
print(call({KEYCTL}, 1, 0), call({ADD_KEY}, b"user", b"secret", b"hush", 4, -3))
{SEARCH}
from sterling.language.sandbox import Limits, run_python, sandbox_walls
if CUT: sandbox_walls.leave_keyring()
{SEARCH}
print(run_python(CODE, Limits(30.0)).output)
"""
PRY = f"""
print(call({KEYCTL}, 11, -3, 0, 0), call({ADD_KEY}, b"user", b"planted", b"x", 1, -4))
print(os.path.exists("/proc/keys"))
"""


@pytest.mark.parametrize("cut", [False, True])
def test_sandbox_hides_the_session_keyring(cut):
    """Two walls: the keyring is not the session's, and calls that ask for keys are missing."""
    program = f"{HEAD}CUT, CODE = {cut}, {HEAD + SEARCH + PRY!r}{PLANT}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    planted, found, after, *walled = done.stdout.splitlines()
    if planted != f"{MISSING} {MISSING}":  # a kernel with keyrings: the attack works outside
        assert (planted, found) == ("OK OK", "OK")
        assert after == ("Required key not available" if cut else "OK")
    if isolation() == "namespaces":
        assert walled[:3] == [MISSING, f"{MISSING} {MISSING}", "False"]


def test_sandbox_limits_kernel_buffer_memory():
    """Of sockets and pipes, as many as one process may have open: bytes that stay in the kernel."""
    code = """import fcntl, socket
def fill(write):
    total = 0
    while True:
        try: total += write(bytes(65536))
        except OSError: return total
held, refused, kept = 0, set(), []
try:
    while True:
        pair = socket.socketpair()
        kept += pair
        for each in pair:
            each.setblocking(False)
            for option in (7, 8, 32, 33):
                try: each.setsockopt(socket.SOL_SOCKET, option, 1 << 30)
                except OSError as error: refused.add(error.strerror)
            held += fill(each.send)
except OSError: pass
del pair, each
kept.clear()
pipes = 0
try:
    while True:
        kept += os.pipe()
        os.set_blocking(kept[-1], False)
        try: fcntl.fcntl(kept[-1], 1031, 1 << 20)
        except OSError as error: refused.add(error.strerror)
        pipes += fill(lambda data: os.write(kept[-1], data))
except OSError: pass
for each in kept: os.close(each)
print(json.dumps([held, pipes, sorted(refused)]))"""
    said = inside(code)
    if said:
        sockets, pipes, refused = json.loads(said)
        assert 0 < sockets < 16 * 2**20  # 227 MiB where sizes could be asked for
        assert 0 < pipes < 4 * 2**20
        assert refused == [REFUSED]


def test_sandbox_forbids_sending_file_descriptors():
    """Files in a message count for no process: a chain of them holds more than any limit."""
    code = """import socket
one, other = socket.socketpair()
try: socket.send_fds(one, [b"x"], [0])
except OSError as error: print(error.strerror)"""
    assert inside(code) in ("", f"{REFUSED}\n")


def test_sandbox_allows_event_loops_pools_and_subprocesses():
    """Event loops, pools, pipes between processes, temporary files."""
    code = """import asyncio, concurrent.futures, multiprocessing, sqlite3, subprocess, tempfile
async def twice(x):
    await asyncio.sleep(0)
    return 2 * x
async def listed():
    done = await asyncio.create_subprocess_exec("/bin/true")
    return [*await asyncio.gather(*map(twice, range(3))), await done.wait()]
print(asyncio.run(listed()))
with concurrent.futures.ThreadPoolExecutor(2) as pool: print(list(pool.map(abs, [-1, 2])))
here, there = multiprocessing.Pipe()
here.send([1]); print(there.recv())
with tempfile.TemporaryFile(dir=".") as file: print(file.write(b"abc"))
print(sqlite3.connect(":memory:").execute("select 1").fetchone())
print(subprocess.run(["/bin/echo", "hi"], capture_output=True).stdout)"""
    said = inside(code)
    assert not said or said.splitlines() == [
        "[0, 2, 4, 0]",
        "[1, 2]",
        "[1]",
        "3",
        "(1,)",
        "b'hi\\n'",
    ]
