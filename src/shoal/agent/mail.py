"""
What goes out with the next upload: reports, log bytes, findings about devices. Filled by the engine, emptied by the uploader.

An allocation's last word waits until the bytes of its logs are on the log store or go in the same upload (the control plane stores log
bytes before it records reports), so that no job is seen ended before its output can be read.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from shoal.agent.home import Home
from shoal.agent.logs import LogShipper
from shoal.agent.outbox import Outbox
from shoal.base import limits
from shoal.model.event import AllocationReleased, Report
from shoal.model.wire import LogChunk, UploadReply

LogsOf = tuple[str, int, tuple[int, ...]]
"""Job, attempt, ranks."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one upload carries of the mail."""

    first_seq: int
    reports: tuple[Report, ...]
    logs: tuple[LogChunk, ...]
    dirty: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not self.reports and not self.logs


@dataclass(slots=True)
class Mail:
    """Any thread."""

    home: Home
    outbox: Outbox
    news: threading.Event = field(default_factory=threading.Event)
    """Set when something waits that should go at once."""
    _shipper: LogShipper = field(init=False)
    _last_words: dict[str, tuple[AllocationReleased, LogsOf]] = field(default_factory=dict)
    _dirty: tuple[str, ...] = ()
    _told_dirty: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._shipper = LogShipper(self.home)

    # --- the engine's side ----------------------------------------------------------------------------------------------
    def report(self, report: Report) -> None:
        self.outbox.put(report)
        self.news.set()

    def last_word(self, report: AllocationReleased, logs: LogsOf) -> None:
        """To be reported once the logs are whole. Not on disk before that: the hold's journal has it."""
        with self._lock:
            self._last_words[report.allocation] = (report, logs)
        self.news.set()

    def follow(self, logs: LogsOf) -> None:
        with self._lock:
            self._shipper.follow(*logs)

    def forget(self, logs: LogsOf) -> None:
        with self._lock:
            self._shipper.forget(*logs)

    def set_dirty(self, uuids: tuple[str, ...]) -> None:
        with self._lock:
            changed, self._dirty = uuids != self._dirty, uuids
        if changed:
            self.news.set()

    # --- the uploader's side --------------------------------------------------------------------------------------------
    def load(self) -> Parcel:
        """What the next upload carries. The same again until `confirm`, and more."""
        with self._lock:
            logs = self._shipper.collect()
            for name, (report, of) in list(self._last_words.items()):
                if self._shipper.whole_with(*of, logs):
                    self.outbox.put(report)
                    del self._last_words[name]
            first_seq, reports = self.outbox.head(limits.REPORTS_PER_UPLOAD_MAX)
            return Parcel(first_seq, reports, logs, self._dirty)

    def confirm(self, parcel: Parcel, reply: UploadReply) -> None:
        """The control plane has it."""
        with self._lock:
            self._shipper.acknowledge(reply.log_offsets)
            self._told_dirty = parcel.dirty
        self.outbox.confirm(reply.recorded)

    def has_news(self) -> bool:
        """True if an upload now would carry something."""
        with self._lock:
            return bool(len(self.outbox) or self._last_words or self._dirty != self._told_dirty or self._shipper.has_news())
