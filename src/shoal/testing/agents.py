"""
Agents on virtual time over a wire that loses, doubles and reorders: the fake side of `agent`, driven by hand.

`Fleet` holds machines (which outlive their agents, see `testing.tasks`), agents (which crash) and the wire. The control plane is seen
through `Door` alone, which a test implements with the real use cases. Everything random comes from one stream.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from shoal.base.errors import Conflict, ShoalError, Unavailable
from shoal.base.rng import Rng
from shoal.model.node import NodeFacts
from shoal.model.wire import Commands, LeaseTerms, Register, Registered, Sample, Upload, UploadReply
from shoal.testing.tasks import Machine


class Door(Protocol):
    """The control plane as an agent sees it. May raise any ShoalError."""

    def register(self, node: str, register: Register) -> Registered: ...

    def poll(self, node: str, after: int) -> Commands: ...

    def upload(self, node: str, upload: Upload) -> UploadReply: ...


@dataclass(slots=True)
class Faults:
    """Chances in hundredths, for each exchange."""

    lose_request: int = 0
    lose_reply: int = 0
    repeat: int = 0
    """The same request comes once more, some exchanges later: doubled and out of order at once."""


@dataclass(slots=True)
class Wire:
    """What stands between agents and door."""

    door: Door
    rng: Rng
    faults: Faults = field(default_factory=Faults)
    cut: dict[str, None] = field(default_factory=dict)
    """Nodes that nothing comes from or to."""
    _ghosts: list[tuple[str, Upload]] = field(default_factory=list)

    def register(self, node: str, register: Register) -> Registered:
        self._go(node)
        answer = self.door.register(node, register)
        self._come_back()
        return answer

    def poll(self, node: str, after: int) -> Commands:
        self._go(node)
        answer = self.door.poll(node, after)
        self._come_back()
        return answer

    def upload(self, node: str, upload: Upload) -> UploadReply:
        self._go(node)
        answer = self.door.upload(node, upload)
        if self._chance(self.faults.repeat):
            self._ghosts.append((node, upload))
        elif self._ghosts and self._chance(50):
            self._haunt(*self._ghosts.pop(self.rng.below(len(self._ghosts))))
        self._come_back()
        return answer

    def _haunt(self, node: str, upload: Upload) -> None:
        with suppress(ShoalError):  # Nobody waits for the answer of a repeat.
            self.door.upload(node, upload)

    def _go(self, node: str) -> None:
        if node in self.cut or self._chance(self.faults.lose_request):
            raise Unavailable("the request was lost")

    def _come_back(self) -> None:
        if self._chance(self.faults.lose_reply):
            raise Unavailable("the reply was lost")

    def _chance(self, hundredths: int) -> bool:
        return hundredths > 0 and self.rng.below(100) < hundredths


@dataclass(slots=True)
class Agent:
    """What an agent process knows: all of it is gone when it crashes, but for what its machine keeps."""

    machine: Machine
    facts: NodeFacts
    wire: Wire
    epoch: int = 0
    """0: not registered."""
    after: int = 0
    store_id: str = ""

    def tick(self, now_ms: int) -> None:
        """One round: register if need be, poll and obey, upload. A lost exchange ends the round."""
        try:
            if self.epoch == 0:
                self._register(now_ms)
            self._poll(now_ms)
            self.machine.advance(now_ms)
            self._upload(now_ms)
        except Conflict:
            self.epoch = 0
        except ShoalError:
            pass  # The next round tries again.

    def _register(self, now_ms: int) -> None:
        answer = self.wire.register(self.machine.name, Register(facts=self.facts, store_id=self.store_id, held=self.machine.held()))
        self.epoch, self.store_id = answer.epoch, answer.store_id
        self.machine.renewed_ms = now_ms
        self.machine.first_seq = 0
        for allocation in answer.kill:
            self.machine.kill(allocation, now_ms)

    def _poll(self, now_ms: int) -> None:
        commands = self.wire.poll(self.machine.name, self.after)
        for row in commands.rows:
            self.machine.obey(row.body, now_ms)
        self.after = max(self.after, commands.last)

    def _upload(self, now_ms: int) -> None:
        machine = self.machine
        samples = tuple(
            Sample(allocation=name, job=work.order.job, at_ms=now_ms, cpu_ms=1, memory_bytes=1)
            for name, work in machine.works.items()
            if work.phase == "running"
        )
        upload = Upload(
            epoch=self.epoch, boot_id=self.facts.boot_id, first_seq=machine.first_seq, reports=tuple(machine.reports), samples=samples
        )
        reply = self.wire.upload(machine.name, upload)
        machine.renewed_ms = now_ms
        machine.confirm(reply.recorded)
        for allocation in reply.forget:
            machine.forget(allocation)
        for allocation in reply.kill:
            machine.kill(allocation, now_ms)


@dataclass(slots=True)
class Fleet:
    """Machines with their agents. `crash` and `start` are an agent's; its machine works on."""

    wire: Wire
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    machines: dict[str, Machine] = field(default_factory=dict)
    facts: dict[str, NodeFacts] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def add(self, facts: NodeFacts) -> None:
        """A machine, named by its host name, with an agent that starts at the next tick."""
        self.facts[facts.hostname] = facts
        self.machines[facts.hostname] = Machine(facts.hostname, self.terms)
        self.start(facts.hostname)

    def crash(self, node: str) -> None:
        self.agents.pop(node, None)

    def start(self, node: str) -> None:
        if node not in self.agents:
            self.agents[node] = Agent(self.machines[node], self.facts[node], self.wire)

    def reboot(self, node: str, boot_id: str) -> None:
        """Nothing of the machine's work is left, and its agent starts."""
        self.facts[node] = msgspec.structs.replace(self.facts[node], boot_id=boot_id)
        old = self.machines[node]
        self.machines[node] = Machine(node, self.terms, violations=old.violations, ran=old.ran)
        self.crash(node)
        self.start(node)

    def tick(self, now_ms: int) -> None:
        """One round of everybody, in order of names."""
        for node in sorted(self.machines):
            self.machines[node].advance(now_ms)
            agent = self.agents.get(node)
            if agent is not None:
                agent.tick(now_ms)
        self._witness()

    def next_ms(self) -> int | None:
        """When time alone brings some machine something to do."""
        return min((t for m in self.machines.values() if (t := m.next_ms()) is not None), default=None)

    def _witness(self) -> None:
        """At most one attempt of a job has processes anywhere."""
        seen: dict[str, int] = {}
        for machine in self.machines.values():
            for job, attempt in machine.running():
                if seen.setdefault(job, attempt) != attempt:
                    self.violations.append(f"job {job} runs as attempt {seen[job]} and as attempt {attempt} at once")
            self.violations.extend(machine.violations)
            machine.violations.clear()
