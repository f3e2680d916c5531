"""
The upload loop: reports, log bytes and samples as they come, at least one upload per renewal time. Its own thread.

An upload is also the lease's renewal: the supervisor is fed with the instant at which an answered one was *sent*. A server that cannot
be reached is tried for ever, with growing jittered pauses; work goes on until the lease runs out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.agent.control import Pauses
from shoal.agent.holds import Hold, Phase
from shoal.agent.mail import Mail, Parcel
from shoal.agent.messages import DevicesLost, Judged, Message
from shoal.agent.probe.protocol import Probe
from shoal.agent.session import Session
from shoal.agent.use import Meter
from shoal.base.clock import Clock
from shoal.base.errors import Conflict, NotFound, ShoalError, Unauthenticated
from shoal.model.reason import Reason
from shoal.model.wire import Register, Registered, Sample, Upload, UploadReply

log = logging.getLogger(__name__)

SAMPLE_EVERY_MS = 5_000
HEALTH_EVERY_MS = 10_000
LOOK_EVERY_MS = 200
"""How soon new output of a running task is on its way."""
GAP_MS = 20
"""Between uploads on a busy node: what happens meanwhile goes in one. The first news after a pause goes at once."""


@dataclass(frozen=True, slots=True)
class Letter:
    """An upload with what its answer is to be held against. `begun_ms` is monotonic, `sent_ms` boot-time."""

    upload: Upload
    parcel: Parcel
    begun_ms: int
    sent_ms: int


@dataclass(slots=True)
class Uploader:
    """`holds` gives the holds as they are; `rejoin` is called when the node's token is not taken any more."""

    session: Session
    mail: Mail
    meter: Meter
    probe: Probe
    clock: Clock
    boot_id: str
    pauses: Pauses
    holds: Callable[[], tuple[Hold, ...]]
    post: Callable[[Message], None]
    rejoin: Callable[[], None]
    _stop: threading.Event = field(default_factory=threading.Event)
    _sent_ms: int = -1_000_000
    _sampled_ms: int = -1_000_000
    _looked_ms: int = -1_000_000
    _asked_ms: int = 0
    """When the last registration was sent, by the boot-time clock."""
    _paused_until_ms: int = 0
    _broken: tuple[tuple[str, Reason], ...] = ()

    def run(self) -> None:
        """Until `stop`; then one last try to get rid of what waits."""
        while not self._stop.is_set():
            self.mail.news.wait(self._wait_s())
            self._stop.wait(max(0, self._sent_ms + GAP_MS - self.clock.monotonic_ms()) / 1000)
            self.mail.news.clear()
            if not self._stop.is_set() and self._is_due():
                self._try_once()
        if self.session.epoch and self.mail.has_news():
            self._try_once()

    def stop(self) -> None:
        self._stop.set()
        self.mail.news.set()

    # --- rounds, as steps: `due_ms`, `next_call`, the answer, `answered` or `failed` ------------------------------------------
    def due_ms(self) -> int:
        """When there will be something to say, if nothing happens meanwhile; by the monotonic clock."""
        now_ms = self.clock.monotonic_ms()
        soonest_ms = max(now_ms, self._sent_ms + GAP_MS, self._paused_until_ms)
        return max(soonest_ms, now_ms + int(self._wait_s() * 1000))

    def next_call(self) -> Register | Letter | None:
        """What is to be said now: None if nothing is due, a registration before anything else while there is no epoch."""
        if not self._is_due():
            return None
        if self.session.epoch and self.session.lease.has_run_out():
            log.warning("the lease has run out; registering again, since what is held here may be given to others by now")
            self.session.leave()
        if not self.session.epoch:
            self._asked_ms = self.clock.boottime_ms()
            return self.session.registration()
        return self._letter()

    def answered(self, call: Register | Letter, answer: Registered | UploadReply) -> None:
        """The control plane has answered what `next_call` gave."""
        if isinstance(answer, Registered):
            self.session.accept(answer, self._asked_ms)
            return
        assert isinstance(call, Letter)
        self._sent_ms = call.begun_ms
        self._take(call.parcel, answer, call.sent_ms)
        self.pauses.reset()

    def failed(self, error: Exception) -> float:
        """It did not get through, or was refused: how many seconds to wait before the next try."""
        match error:
            case Conflict():
                log.warning("registering again: %s", error.message)
                self.session.leave()
                return 0.0
            case NotFound() | Unauthenticated():
                log.error("the control plane does not know this node any more: %s", error.message)
                self.session.leave()
            case ShoalError():
                log.warning("no answer from the control plane: %s", error.message)
            case _:
                log.error("a defect in the upload loop; it goes on", exc_info=error)
        return self.pauses.next_s()

    def pause(self, seconds: float) -> None:
        """Nothing is due before so long from now."""
        self._paused_until_ms = self.clock.monotonic_ms() + int(seconds * 1000)

    def _try_once(self) -> None:
        try:
            while (call := self.next_call()) is not None:
                self.answered(call, self._ask(call))
                if isinstance(call, Letter):
                    return
        except Exception as error:
            pause_s = self.failed(error)
            if pause_s:
                self._stop.wait(pause_s)
                self.mail.news.set()
            if isinstance(error, NotFound | Unauthenticated):
                self.rejoin()

    def _ask(self, call: Register | Letter) -> Registered | UploadReply:
        control = self.session.control
        return control.register(call) if isinstance(call, Register) else control.upload(call.upload)

    def _wait_s(self) -> float:
        if self.mail.has_news():
            return 0.0
        running = any(hold.phase is Phase.STARTED for hold in self.holds())
        left_ms = self._sent_ms + self.session.terms.renew_every_ms - self.clock.monotonic_ms()
        return max(0.0, min(left_ms, LOOK_EVERY_MS) if running else left_ms) / 1000

    def _is_due(self) -> bool:
        now_ms = self.clock.monotonic_ms()
        if not self.session.epoch or now_ms - self._sent_ms >= self.session.terms.renew_every_ms:
            return True
        return self.mail.has_news() or (now_ms - self._sampled_ms >= SAMPLE_EVERY_MS and self._anything_runs())

    def _anything_runs(self) -> bool:
        return any(hold.phase is Phase.STARTED for hold in self.holds())

    def _letter(self) -> Letter:
        now_ms = self.clock.monotonic_ms()
        parcel, sent_ms = self.mail.load(), self.clock.boottime_ms()
        self._look_at_devices(now_ms)
        upload = Upload(
            epoch=self.session.epoch,
            boot_id=self.boot_id,
            first_seq=parcel.first_seq,
            reports=parcel.reports,
            logs=parcel.logs,
            samples=self._samples(now_ms),
            dirty=parcel.dirty,
            broken=self._broken,
        )
        return Letter(upload, parcel, now_ms, sent_ms)

    def _take(self, parcel: Parcel, reply: UploadReply, sent_ms: int) -> None:
        self.mail.confirm(parcel, reply)
        self.session.renew(sent_ms)
        if reply.kill or reply.forget:
            self.post(Judged(kill=reply.kill, forget=reply.forget))

    # --- samples and findings -------------------------------------------------------------------------------------------
    def _samples(self, now_ms: int) -> tuple[Sample, ...]:
        if now_ms - self._sampled_ms < SAMPLE_EVERY_MS:
            return ()
        self._sampled_ms = now_ms
        samples = (self.meter.sample(hold.order) for hold in self.holds() if hold.phase is Phase.STARTED)
        return tuple(sample for sample in samples if sample is not None)

    def _look_at_devices(self, now_ms: int) -> None:
        if now_ms - self._looked_ms < HEALTH_EVERY_MS:
            return
        self._looked_ms = now_ms
        broken = tuple((device.uuid, device.broken) for device in self.probe.devices() if device.broken is not None)
        known = {uuid for uuid, _ in self._broken}
        fresh = tuple(uuid for uuid, _ in broken if uuid not in known)
        self._broken = broken
        if fresh:
            self.post(DevicesLost(fresh))
