"""The walls around a sandbox: namespaces of Linux, a file system that cannot be written to, an
unprivileged user. They stop a careless or cheating program, not an attack on the kernel itself."""

import contextlib
import ctypes
import os
import signal
import sys
from typing import Any

from sterling.language.sandbox import calls

NOBODY = 65534
NEW_MOUNTS, NEW_NAMES, NEW_IPC = 0x20000, 0x4000000, 0x8000000  # numbers of linux/sched.h
NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
SPACES = NEW_MOUNTS | NEW_NAMES | NEW_IPC | NEW_PROCESSES | NEW_NETWORK
READ_ONLY, NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, DETACH = 442, -100, 0x8000, 2
PARENT_DEATH, DUMPABLE, SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 36, 38
CAPABILITY_VERSION = 0x20080522
SHOWN = ("/usr", "/lib", "/lib64", "/bin", "/nix/store", "/etc/ld.so.cache")
KEYCTL = {"x86_64": 250, "aarch64": 219}
JOIN_SESSION = 1  # of linux/keyctl.h
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


def build(folder: str, disk: int) -> None:
    """Put this process and its children behind walls; raises OSError where they cannot be built.

    Afterwards there is no network; the files are those that Python needs, read-only, and the
    working folder is an empty one of ``disk`` MiB in memory; the next child is the first process
    of a process namespace, and memory that no limit counts cannot be had. Root becomes *nobody*:
    no limit on processes holds for root.
    """
    if sys.platform != "linux":
        raise OSError("namespaces are a feature of Linux")
    root, user, group = os.getuid() == 0, os.getuid(), os.getgid()
    leave_keyring()
    _system("unshare", SPACES if root else SPACES | NEW_USERS)
    if not root:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _furnish(folder, disk)
    if root:
        become_nobody()
        _system("unshare", NEW_USERS)  # limits on processes are counted for each of these
    _disarm()


def become_nobody() -> None:
    """Give up root for good; raises OSError where that is not possible."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def leave_keyring() -> None:
    """Give this process and its children a keyring of their own instead of the session's, whose
    secrets they could read and which would outlive them."""
    number = KEYCTL.get(os.uname().machine) if sys.platform == "linux" else None
    if number is not None:
        with contextlib.suppress(OSError):  # a kernel without keyrings, or a container's own filter
            _system("syscall", number, JOIN_SESSION, None)


def guard_children() -> None:
    """Orphans among this process's descendants become its children, so that it can end them."""
    if sys.platform == "linux":
        _system("prctl", SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """This process is killed when its parent ends, and no other may read its memory."""
    if sys.platform == "linux":
        _system("prctl", PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        _system("prctl", DUMPABLE, 0, 0, 0, 0)


def _furnish(folder: str, disk: int) -> None:
    """Make a small read-only root in ``folder``, with a working folder, and move into it."""
    _mount(None, "/", None, RECURSIVE | PRIVATE)
    _mount("tmpfs", folder, "tmpfs", NO_SUID | NO_DEVICES, "size=1m,mode=755")
    prefixes = {sys.base_prefix, sys.base_exec_prefix, os.path.realpath(sys.base_prefix)}
    shown: list[str] = []
    for path in (*SHOWN, *sorted(prefixes), *DEVICES):
        if os.path.exists(path) and not any(f"{path}/".startswith(f"{one}/") for one in shown):
            _show(path, folder + path)
            shown.append(path)
    os.mkdir(f"{folder}/box")
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SUID, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    _system("syscall", MOUNT_SETATTR, AT_FDCWD, folder.encode(), AT_RECURSIVE, attributes, size)
    options = f"size={disk}m,nr_inodes=4096,mode=1777"
    _mount("tmpfs", f"{folder}/box", "tmpfs", NO_SUID | NO_DEVICES, options)
    os.chdir(folder)
    _system("pivot_root", b".", b".")
    _system("umount2", b".", DETACH)
    os.chdir("/box")


def _show(path: str, place: str) -> None:
    if os.path.isdir(path):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w"):
            pass  # a file to mount over
    _mount(path, place, None, BIND | RECURSIVE)


def _disarm() -> None:
    """Give up every capability, the ways to regain one, and calls that get round the limits."""
    _system("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _system("capset", header, none)
    calls.deny()


def _mount(source: str | None, place: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [each.encode() if each else None for each in (source, place, kind)]
    _system("mount", *words, ctypes.c_ulong(flags), options.encode() or None)


def _system(name: str, *arguments: Any) -> None:
    """A function of the C library; raises OSError where it fails or is missing."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, name):
        raise OSError(f"the C library has no {name}")
    if getattr(library, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
