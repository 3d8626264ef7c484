"""System calls that code in the sandbox may not make, as a seccomp filter.

Three kinds of calls are refused: those that reach out of the sandbox or outlive a run (keyrings,
handles of files, other processes' memory, mounts, namespaces, sockets), those that take memory or
resources which no limit of the run counts (System V's segments and queues, buffers of sockets and
pipes, locks of byte ranges, rings of asynchronous input), and those that no program to be judged
needs and that attacks on the kernel often begin with (bpf, userfaultfd, perf, modules). Calls that
are newer than this list are refused unless they are in :data:`ALLOWED_NEW_CALLS`.
"""

import ctypes
import errno
import os
import struct

NO_SUCH_CALL, NOT_PERMITTED, NO_LOCK = errno.ENOSYS, errno.EPERM, errno.ENOLCK
# Number of a call: on x86_64, on aarch64 (-1: it has no such call). These are answered as if Linux
# did not have them; libraries then do without.
HIDDEN_CALLS = {
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),  # memory that belongs to no process, as that of the next three
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "io_setup": (206, 0),  # rings of which the machine has a fixed number
    "vmsplice": (278, 75),
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "modify_ldt": (154, -1),
    "uselib": (134, -1),
    "nfsservctl": (180, 42),
}
REFUSED_CALLS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "socket": (41, 198),
    "setsockopt": (54, 208),  # buffers as large as the machine allows: 8 MiB for a pair
    "sendmsg": (46, 211),  # open files in flight, which no limit counts
    "sendmmsg": (307, 269),
    "seccomp": (317, 277),
    "personality": (135, 92),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
}
# Calls refused for some values of an argument: call, index of the argument, values, error. System
# V's record locks take memory that nothing counts; the others enlarge a pipe's buffer, choose who
# is notified of changes, or install another filter.
FCNTL, PRCTL, CLONE = (72, 25), (157, 167), (56, 220)
REFUSED_ARGUMENTS = (
    (FCNTL, 1, (6, 7, 37, 38), NO_LOCK),  # F_SETLK, F_SETLKW, and those of open files
    (FCNTL, 1, (1024, 1026, 1031), NOT_PERMITTED),  # F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ
    (PRCTL, 0, (22,), NOT_PERMITTED),  # PR_SET_SECCOMP
)
NAMESPACE_FLAGS = (
    0x7E020000  # flags of clone: cgroup, names, IPC, users, processes, network, mounts
)
# From here on numbers are the same on all machines. clone3 is not allowed, because a filter cannot
# see its flags; libraries then use clone.
FIRST_NEW_CALL = 424
ALLOWED_NEW_CALLS = {"close_range": 436, "faccessat2": 439, "epoll_pwait2": 441, "fchmodat2": 452}
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # of linux/audit.h
FIRST_X32_CALL = 0x40000000  # from here on x86_64 numbers its calls a second time (x32)
CALL, MACHINE, ARGUMENTS = 0, 4, 16  # offsets in seccomp_data
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of linux/bpf_common.h
ALLOW, DENY = 0x7FFF0000, 0x00050000
SECCOMP, FILTER = 22, 2
FilterStep = tuple[int, int, int, int]  # code, steps to skip if true, steps to skip if false, value


class FilterProgram(ctypes.Structure):
    """The struct ``sock_fprog`` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def refuse_calls() -> None:
    """Refuse these calls to this process and its children, for good.

    Raises OSError if that is not possible. Call it once no new privileges can be gained.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(f"the system calls of {machine} are not known")
    steps = filter_program(*ARCHITECTURES[machine])
    program = FilterProgram(len(steps) // 8, steps)
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def filter_program(column: int, machine: int) -> bytes:
    """Return the filter of a machine, whose call numbers are in this column of the tables. A rule
    that does not match skips the return statement after it."""
    steps: list[FilterStep] = [
        (LOAD, 0, 0, MACHINE),
        (EQUAL, 1, 0, machine),
        _return_error(NO_SUCH_CALL),
    ]
    steps += [(LOAD, 0, 0, CALL), (AT_LEAST, 0, 1, FIRST_X32_CALL), _return_error(NO_SUCH_CALL)]
    for number in ALLOWED_NEW_CALLS.values():
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    steps += [(AT_LEAST, 0, 1, FIRST_NEW_CALL), _return_error(NO_SUCH_CALL)]
    for table, answer in ((HIDDEN_CALLS, NO_SUCH_CALL), (REFUSED_CALLS, NOT_PERMITTED)):
        for numbers in table.values():
            if numbers[column] >= 0:
                steps += [(EQUAL, 0, 1, numbers[column]), _return_error(answer)]
    for numbers, place, values, answer in REFUSED_ARGUMENTS:
        tests = [step for each in values for step in ((EQUAL, 0, 1, each), _return_error(answer))]
        steps += _check_argument(numbers[column], place, tests)
    steps += _check_argument(
        CLONE[column], 0, [(ANY_BIT, 0, 1, NAMESPACE_FLAGS), _return_error(NOT_PERMITTED)]
    )
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, (RETURN, 0, 0, ALLOW)])


def _return_error(answer: int) -> FilterStep:
    return (RETURN, 0, 0, DENY | answer)


def _check_argument(number: int, place: int, tests: list[FilterStep]) -> list[FilterStep]:
    """Return tests of the lower half of one call's argument; afterwards the call's number is loaded
    again."""
    load = (LOAD, 0, 0, ARGUMENTS + 8 * place)
    return [(EQUAL, 0, len(tests) + 2, number), load, *tests, (LOAD, 0, 0, CALL)]
