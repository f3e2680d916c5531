"""What /proc tells of processes: parents, start times, environment marks. Used where the kernel keeps no group for us."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

YOUNG_MS = 200
"""From a fork to the start of another program, on a machine that has much to do."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    group: int
    state: str
    started: int
    """Clock ticks after boot; with the pid it names a process for good."""


def read_process(pid: int) -> Process | None:
    """The process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[2]), chr(fields[0][0]), int(fields[19]))


def is_ready_for(process: Process, number: int, boottime_ms: int) -> bool:
    """
    Whether the process has said what to do at this signal (it catches it, or waits for it blocked); at another it would die of it.

    One that is younger than YOUNG_MS has its parent's handlers and may be about to become a program that has none: it is not ready yet.
    """
    if boottime_ms - process.started * 1_000 // _TICKS_PER_S < YOUNG_MS:
        return False
    try:
        with open(f"/proc/{process.pid}/status", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    masks = (int(line.split()[1], 16) for line in lines if line.startswith((b"SigBlk:", b"SigCgt:")))
    return any(mask >> (number - 1) & 1 for mask in masks)


def outermost(leader: int, processes: dict[int, Process], ready: set[int]) -> list[int]:
    """
    Of a process and what descends from it those that are ready and below no other such: what these have started is theirs to tell.

    A shell or a launcher around a program is passed over, also one that starts it in a session of its own; workers that the program has
    forked, and which have its handlers, are not told beside it.
    """
    mine = with_descendants({leader}, processes)
    return sorted(pid for pid in ready & mine if not any(above in ready for above in _above(processes[pid], processes, mine)))


def _above(process: Process, processes: dict[int, Process], mine: set[int]) -> Iterator[int]:
    """Its ancestors inside the tree; bounded, should numbers have been given out anew while they were read."""
    for _ in mine:
        if process.parent not in mine:
            return
        yield process.parent
        process = processes[process.parent]


def all_processes() -> dict[int, Process]:
    """Every process that is no zombie, by pid."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None and process.state not in "ZX":
                found[process.pid] = process
    return found


def is_alive(pid: int) -> bool:
    """True for a process that is there and no zombie."""
    process = read_process(pid)
    return process is not None and process.state not in "ZX"


def mark_of(pid: int, name: bytes) -> str | None:
    """The value of an environment variable that the process was started with; None if unset or not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = b"\0" + file.read()
    except OSError:
        return None
    at = text.find(b"\0" + name + b"=")
    if at < 0:
        return None
    end = text.find(b"\0", at + 1)
    return text[at + len(name) + 2 : end if end >= 0 else len(text)].decode("utf-8", "replace")


def descendants_of(root: int) -> dict[int, Process]:
    """
    Every process below `root` that is no zombie, by pid; `root` itself is left out.

    By the kernel's lists of children where it keeps them, which costs nothing for the rest of the machine. A process whose parent ends
    while we walk may be seen at neither place: who must be sure that there is none walks again.
    """
    found: dict[int, Process] = {}
    todo = [root]
    while todo:
        children = _children_of(todo.pop())
        if children is None:
            processes = all_processes()
            return {pid: processes[pid] for pid in with_descendants({root}, processes) if pid != root}
        for pid in children:
            process = read_process(pid)
            if process is not None and pid not in found:
                todo.append(pid)
                found[pid] = process
    return {pid: process for pid, process in found.items() if process.state not in "ZX"}


def _children_of(pid: int) -> list[int] | None:
    """None where the kernel keeps no such list (CONFIG_PROC_CHILDREN)."""
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += [int(word) for word in file.read().split()]
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                return None
        except OSError:
            continue
    return children


def with_descendants(roots: set[int], processes: dict[int, Process]) -> set[int]:
    """`roots` that live, and everything that descends from them."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    seen: set[int] = set()
    todo = [pid for pid in roots if pid in processes]
    while todo:
        pid = todo.pop()
        if pid not in seen:
            seen.add(pid)
            todo.extend(children.get(pid, ()))
    return seen
