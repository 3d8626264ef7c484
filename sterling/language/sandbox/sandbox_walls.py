"""Build the walls around a sandbox: namespaces of Linux, a file system that cannot be written to,
an unprivileged user. They stop a careless or cheating program, not an attack on the kernel
itself."""

import contextlib
import ctypes
import os
import signal
import sys
from typing import Any

from sterling.language.sandbox import system_calls

NOBODY = 65534
NEW_MOUNTS, NEW_NAMES, NEW_IPC = 0x20000, 0x4000000, 0x8000000  # numbers of linux/sched.h
NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
NAMESPACE_FLAGS = NEW_MOUNTS | NEW_NAMES | NEW_IPC | NEW_PROCESSES | NEW_NETWORK
READ_ONLY, NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, DETACH = 442, -100, 0x8000, 2
PARENT_DEATH, DUMPABLE, SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 36, 38
CAPABILITY_VERSION = 0x20080522
VISIBLE_PATHS = ("/usr", "/lib", "/lib64", "/bin", "/nix/store", "/etc/ld.so.cache")
KEYCTL = {"x86_64": 250, "aarch64": 219}
JOIN_SESSION = 1  # of linux/keyctl.h
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


def build_walls(folder: str, disk: int) -> None:
    """Put this process and its children behind walls; raises OSError if they cannot be built.

    Afterwards there is no network. The only files are those that Python needs, read-only, and the
    working folder is an empty one of ``disk`` MiB in memory. The next child is the first process of
    a process namespace, and memory that no limit counts cannot be had. Root becomes *nobody*,
    because limits on processes do not hold for root.
    """
    if sys.platform != "linux":
        raise OSError("namespaces are a feature of Linux")
    root, user, group = os.getuid() == 0, os.getuid(), os.getgid()
    leave_keyring()
    _call_libc("unshare", NAMESPACE_FLAGS if root else NAMESPACE_FLAGS | NEW_USERS)
    if not root:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _make_root(folder, disk)
    if root:
        become_nobody()
        _call_libc("unshare", NEW_USERS)  # limits on processes are counted in each of these
    _drop_rights()


def become_nobody() -> None:
    """Give up root for good; raises OSError if that is not possible."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def leave_keyring() -> None:
    """Give this process and its children a keyring of their own. They could read the secrets in the
    session's keyring, and it would outlive them."""
    number = KEYCTL.get(os.uname().machine) if sys.platform == "linux" else None
    if number is not None:
        with contextlib.suppress(OSError):  # a kernel without keyrings, or a container's own filter
            _call_libc("syscall", number, JOIN_SESSION, None)


def adopt_orphans() -> None:
    """Make orphans among this process's descendants its children, so that it can end them."""
    if sys.platform == "linux":
        _call_libc("prctl", SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Kill this process when its parent ends, and let no other process read its memory."""
    if sys.platform == "linux":
        _call_libc("prctl", PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        _call_libc("prctl", DUMPABLE, 0, 0, 0, 0)


def _make_root(folder: str, disk: int) -> None:
    """Make a small read-only root in ``folder``, with a working folder, and move into it."""
    _mount(None, "/", None, RECURSIVE | PRIVATE)
    _mount("tmpfs", folder, "tmpfs", NO_SUID | NO_DEVICES, "size=1m,mode=755")
    prefixes = {sys.base_prefix, sys.base_exec_prefix, os.path.realpath(sys.base_prefix)}
    shown: list[str] = []
    for path in (*VISIBLE_PATHS, *sorted(prefixes), *DEVICES):
        if os.path.exists(path) and not any(f"{path}/".startswith(f"{one}/") for one in shown):
            _bind_path(path, folder + path)
            shown.append(path)
    os.mkdir(f"{folder}/box")
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SUID, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    _call_libc("syscall", MOUNT_SETATTR, AT_FDCWD, folder.encode(), AT_RECURSIVE, attributes, size)
    options = f"size={disk}m,nr_inodes=4096,mode=1777"
    _mount("tmpfs", f"{folder}/box", "tmpfs", NO_SUID | NO_DEVICES, options)
    os.chdir(folder)
    _call_libc("pivot_root", b".", b".")
    _call_libc("umount2", b".", DETACH)
    os.chdir("/box")


def _bind_path(path: str, place: str) -> None:
    if os.path.isdir(path):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w"):
            pass  # a file to mount over
    _mount(path, place, None, BIND | RECURSIVE)


def _drop_rights() -> None:
    """Give up every capability, the ways to regain one, and system calls that evade the limits."""
    _call_libc("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _call_libc("capset", header, none)
    system_calls.refuse_calls()


def _mount(source: str | None, place: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [each.encode() if each else None for each in (source, place, kind)]
    _call_libc("mount", *words, ctypes.c_ulong(flags), options.encode() or None)


def _call_libc(name: str, *arguments: Any) -> None:
    """Call a function of the C library; raises OSError if it fails or is missing."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, name):
        raise OSError(f"the C library has no {name}")
    if getattr(library, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
