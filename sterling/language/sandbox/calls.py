"""What code behind the walls may not ask of Linux: memory that no limit counts, and namespaces of
its own, in which it could mount more."""

import ctypes
import errno
import os
import struct

NEW_USERS = 0x10000000  # a flag of clone
NO_CALL, NO_RIGHT = errno.ENOSYS, errno.EPERM
# The memory of System V's segments, queues and semaphores and of memfds is no process's own.
# Flags of clone3 cannot be seen from a filter; where it is missing, libraries use clone.
DENIED = {
    "shmget": NO_CALL,
    "msgget": NO_CALL,
    "semget": NO_CALL,
    "memfd_create": NO_CALL,
    "memfd_secret": NO_CALL,
    "clone3": NO_CALL,
    "unshare": NO_RIGHT,
}
LATER = {"clone3": 435, "memfd_secret": 447}  # such late numbers are the same everywhere
# machine -> its number in linux/audit.h, and its numbers of calls
MACHINES = {
    "x86_64": (
        0xC000003E,
        {"shmget": 29, "msgget": 68, "semget": 64, "memfd_create": 319, "unshare": 272}
        | LATER
        | {"clone": 56},
    ),
    "aarch64": (
        0xC00000B7,
        {"shmget": 194, "msgget": 186, "semget": 190, "memfd_create": 279, "unshare": 97}
        | LATER
        | {"clone": 220},
    ),
}
OTHER_NUMBERS = 0x40000000  # from here on x86_64 counts its calls a second time (x32)
CALL, MACHINE, FIRST_ARGUMENT = 0, 4, 16  # places of seccomp_data
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of linux/bpf_common.h
ALLOW, DENY = 0x7FFF0000, 0x00050000
SECCOMP, FILTER = 22, 2


class Program(ctypes.Structure):
    """``sock_fprog`` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def deny() -> None:
    """Refuse these calls to this process and its children, for good.

    Raises OSError where that is not possible. To be called once no new privileges can be had.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        raise OSError(f"which calls of {machine} to refuse is not known")
    steps = rules(*MACHINES[machine])
    program = Program(len(steps) // 8, steps)
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def rules(machine: int, numbers: dict[str, int]) -> bytes:
    """The filter: each rule jumps over the answer behind it where it does not hold."""
    steps = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, machine), (RETURN, 0, 0, DENY | NO_CALL)]
    steps += [(LOAD, 0, 0, CALL), (AT_LEAST, 0, 1, OTHER_NUMBERS), (RETURN, 0, 0, DENY | NO_CALL)]
    for name, answer in DENIED.items():
        steps += [(EQUAL, 0, 1, numbers[name]), (RETURN, 0, 0, DENY | answer)]
    steps += [(EQUAL, 1, 0, numbers["clone"]), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST_ARGUMENT)]
    steps += [(ANY_BIT, 0, 1, NEW_USERS), (RETURN, 0, 0, DENY | NO_RIGHT), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
