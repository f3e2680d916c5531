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
from shoal.model.wire import Sample, Upload, UploadReply

log = logging.getLogger(__name__)

SAMPLE_EVERY_MS = 5_000
HEALTH_EVERY_MS = 10_000
LOOK_EVERY_MS = 200
"""How soon new output of a running task is on its way."""
GAP_MS = 20
"""Between uploads on a busy node: what happens meanwhile goes in one. The first news after a pause goes at once."""


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

    # --- rounds ---------------------------------------------------------------------------------------------------------
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

    def _try_once(self) -> None:
        try:
            if self.session.epoch and self.session.lease.has_run_out():
                log.warning("the lease has run out; registering again, since what is held here may be given to others by now")
                self.session.leave()
            if not self.session.epoch:
                self.session.register()
            self._upload()
            self.pauses.reset()
        except Conflict as error:
            log.warning("registering again: %s", error.message)
            self.session.leave()
        except (NotFound, Unauthenticated) as error:
            log.error("the control plane does not know this node any more: %s", error.message)
            self.session.leave()
            self._pause()
            self.rejoin()
        except ShoalError as error:
            log.warning("no answer from the control plane: %s", error.message)
            self._pause()
        except Exception:
            log.exception("a defect in the upload loop; it goes on")
            self._pause()

    def _pause(self) -> None:
        self._stop.wait(self.pauses.next_s())
        self.mail.news.set()

    def _upload(self) -> None:
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
        reply = self.session.control.upload(upload)
        self._sent_ms = now_ms
        self._take(parcel, reply, sent_ms)

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
