"""Node names and addresses as other systems' programs read them: Slurm's packed list, a hostfile for MPI. Pure."""

from __future__ import annotations

import re

from shoal.model.command import Member

_NUMBERED = re.compile(r"(.*?)(\d+)")


def pack_hosts(names: tuple[str, ...]) -> str:
    """
    `n1,n2,n3,x` as `n[1-3],x`: Slurm's form, in the order given.

    Only neighbours with equal prefix and equal width are joined, so unpacking gives back exactly `names`.
    """
    parts: list[str] = []
    for prefix, width, numbers in _runs(names):
        if width is None:
            parts.append(prefix)
        elif len(numbers) == 1:
            parts.append(f"{prefix}{numbers[0]:0{width}d}")
        else:
            parts.append(f"{prefix}[{_ranges(numbers, width)}]")
    return ",".join(parts)


def _runs(names: tuple[str, ...]) -> list[tuple[str, int | None, list[int]]]:
    runs: list[tuple[str, int | None, list[int]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            runs.append((name, None, []))
            continue
        prefix, digits = match[1], match[2]
        width = len(digits)
        if runs and runs[-1][:2] == (prefix, width):
            runs[-1][2].append(int(digits))
        else:
            runs.append((prefix, width, [int(digits)]))
    return runs


def _ranges(numbers: list[int], width: int) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}" for low, high in spans)


def tasks_per_node(members: tuple[Member, ...]) -> str:
    """Slurm's form of the task counts in node order: `2(x3),1`."""
    spans: list[list[int]] = []
    for member in members:
        if spans and spans[-1][0] == member.tasks:
            spans[-1][1] += 1
        else:
            spans.append([member.tasks, 1])
    return ",".join(str(tasks) if times == 1 else f"{tasks}(x{times})" for tasks, times in spans)


def hostfile(members: tuple[Member, ...]) -> str:
    """One line per node in rank order, `address slots=tasks`, as mpirun and horovodrun read it."""
    return "".join(f"{member.address or member.node} slots={member.tasks}\n" for member in members)
