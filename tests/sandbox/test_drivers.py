"""The drivers' encoding agrees with `agentloop.plain`; the system call filter, run instruction by instruction."""

from __future__ import annotations

import errno
import json
import math
import os
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import plain
from agentloop.sandbox import seccomp
from agentloop.sandbox.drivers import python_driver as driver
from agentloop.sandbox.shared import MAPPED

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary(max_size=20)
)
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.sets(hashables, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_what_the_driver_writes_we_read(value: Any) -> None:
    text = driver.encode(value)
    assert text.isascii()
    assert "\n" not in text
    assert plain.decode(json.loads(text)) == value


@given(values)
def test_what_we_write_the_driver_reads(value: Any) -> None:
    assert driver.decode(driver.parse(json.dumps(plain.encode(value)))) == value


def test_a_set_iterates_as_the_one_that_an_assert_displays() -> None:
    """`tuple({12, 13, 14, 15, 16})` begins with 16; that of `set([12, 13, 14, 15, 16])` does not."""
    for display in ({12, 13, 14, 15, 16}, {30, 21, 2, 47}, {5}, set(range(40))):
        read = driver.decode(driver.parse(json.dumps(plain.encode(display))))
        assert tuple(read) == tuple(display)


def test_floats_without_a_number() -> None:
    assert driver.encode(math.nan) == '{"float":"nan"}'
    assert [driver.encode(x) for x in (math.inf, -math.inf, -0.0)] == ['{"float":"inf"}', '{"float":"-inf"}', "-0.0"]


class Sly(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "[1, 2]"


def test_a_subclass_does_not_speak_for_itself() -> None:
    assert driver.encode([Sly(7), True]) == "[7,true]"
    assert driver.encode({Sly(1): 2}.keys()) == '{"set":[1]}'


@pytest.mark.parametrize("value", [object(), int, len, [1, {2: object()}], memoryview(b"x")])
def test_unplain(value: Any) -> None:
    with pytest.raises(driver.Unplain):
        driver.encode(value)


def run(filter_: bytes, number: int, args: tuple[int, ...] = (), architecture: int | None = None) -> int:
    """Interpret a classic BPF program as the kernel does; the action it returns."""
    arch = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[os.uname().machine] if architecture is None else architecture
    data = struct.pack("IIQ6Q", number, arch, 0, *(args + (0,) * 6)[:6])
    lines = list(struct.iter_unpack("HBBI", filter_))
    at = accumulator = 0
    while True:
        code, yes, no, k = lines[at]
        at += 1
        if code == 0x20:
            accumulator = int(struct.unpack_from("I", data, k)[0])
        elif code == 0x54:
            accumulator &= k
        elif code == 0x06:
            return int(k)
        else:
            hit = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[code]
            at += yes if hit else no


ALLOW = 0x7FFF0000


def refuse(code: int) -> int:
    return 0x00050000 | code


@pytest.mark.skipif(not seccomp.machine_is_known(), reason=f"no filter for {os.uname().machine}")
def test_filter() -> None:
    x86 = os.uname().machine == "x86_64"
    read, clone, clone3, socket, pair, ioctl, unshare, ptrace, kill, shmget, prlimit = (
        (0, 56, 435, 41, 53, 16, 272, 101, 62, 29, 302) if x86 else (63, 220, 435, 198, 199, 29, 97, 117, 129, 194, 261)
    )
    full, reduced = seccomp.program(), seccomp.program(reduced=True, same_user=77, only_signal=77)
    for filter_ in (full, reduced):
        assert run(filter_, read, architecture=0x40000003) == 0x80000000
        assert run(filter_, read) == run(filter_, pair) == run(filter_, clone, (0x1200011,)) == ALLOW
        assert (
            run(filter_, clone, (0x10000000,)) == run(filter_, unshare) == run(filter_, ptrace) == refuse(errno.EPERM)
        )
        assert run(filter_, clone3) == refuse(errno.ENOSYS)
        assert run(filter_, ioctl, (0, 0x5412)) == refuse(errno.EPERM)
        assert run(filter_, ioctl, (0, 0x5401)) == ALLOW
        if x86:
            assert run(filter_, 0x40000000 + read) == refuse(errno.ENOSYS)
    assert [run(full, socket, (family,)) for family in (1, 2, 10)] == [ALLOW] * 3
    assert [run(full, socket, (family,)) for family in (16, 17, 40)] == [refuse(errno.EAFNOSUPPORT)] * 3
    assert run(full, shmget) == run(full, kill, (1, 9)) == run(full, prlimit, (1,)) == ALLOW
    assert [run(reduced, socket, (family,)) for family in (1, 2, 16)] == [refuse(errno.EACCES)] * 3
    assert run(reduced, shmget) == run(reduced, kill, (1, 9)) == run(reduced, prlimit, (1,)) == refuse(errno.EPERM)
    # What Landlock leaves to a user's own programs: attributes of files, shared IPC by number, datagrams, scheduling of
    # others, signals by way of a file's owner or of a descriptor.
    chmod, setxattr, truncate, shmctl, affinity, priority, fcntl, pidfd_signal, openat = (
        (90, 188, 76, 31, 203, 141, 72, 424, 257) if x86 else (53, 5, 45, 195, 122, 140, 25, 424, 56)
    )
    alone = seccomp.program(reduced=True)
    refused, others = refuse(errno.EPERM), (full, alone)
    assert run(reduced, chmod) == refuse(0)
    assert run(reduced, setxattr) == run(reduced, truncate) == refused
    assert run(seccomp.program(reduced=True, same_user=77, may_truncate=True), truncate) == ALLOW
    assert [run(seccomp.program(below_init=True), prlimit, (pid,)) for pid in (0, 1, 2)] == [ALLOW, refused, ALLOW]
    assert all(run(each, call) == ALLOW for each in others for call in (chmod, setxattr, truncate, pidfd_signal))
    assert run(reduced, shmctl, (1, 0)) == run(alone, shmctl, (1, 0)) == refused
    assert [run(reduced, pair, (1, kind)) for kind in (1, 0x80801, 5)] == [ALLOW] * 3
    assert [run(alone, call, (3,)) for call in ((49, 42) if x86 else (200, 203))] == [refused] * 2  # bind, connect
    assert [run(reduced, pair, (1, kind)) for kind in (2, 0x80802, 3)] == [refuse(errno.EACCES)] * 3
    assert [run(reduced, affinity, (pid,)) for pid in (0, 77, 78)] == [ALLOW, ALLOW, refused]
    assert [run(reduced, priority, (which, who)) for which, who in ((0, 0), (0, 78), (2, 0))] == [
        ALLOW,
        refused,
        refused,
    ]
    assert [run(reduced, fcntl, (3, command)) for command in (3, 4, 8, 15)] == [ALLOW, ALLOW, refused, refused]
    assert [run(reduced, ioctl, (3, setting)) for setting in (0x8901, 0x8902, 0x40086602)] == [refused] * 3
    assert run(reduced, pidfd_signal, (0, 9)) == refused
    allowed, emptying = (0, 3, 0x241, 0x242), (0x200, 0x203)
    assert [run(reduced, openat, (4, 0, flags)) for flags in allowed + emptying] == [ALLOW] * 4 + [refused] * 2
    assert run(reduced, kill, (77, 9)) == run(reduced, kill, (0, 9)) == run(reduced, prlimit, (0,)) == ALLOW


def test_shared_memory_is_found_in_a_map_under_each_of_its_names() -> None:
    text = b"""\
7f0000000000-7f0000001000 rw-s 00005000 00:01 4711                       /dev/zero (deleted)
7f0000002000-7f0000003000 r--s 00000000 00:01 12                         /SYSV00001267 (deleted)
7f0000004000-7f0000006000 rw-s 00000000 00:01 13                         [anon_shmem:a name (deleted)]
7f0000006000-7f0000007000 rw-p 00000000 00:01 14                         /dev/zero (deleted)
7f0000007000-7f0000008000 rw-s 00000000 00:2a 15                         /dev/shm/file
"""
    found = [(offset, number) for *_, offset, number in MAPPED.findall(text)]
    assert found == [(b"00005000", b"4711"), (b"00000000", b"12"), (b"00000000", b"13")]
