"""Handlers: what this server is, how it does, and the OpenAPI document. None needs a token, so none tells anything of anybody."""

from __future__ import annotations

from shoal import __version__
from shoal.api.operations import Answer, Call
from shoal.base import limits
from shoal.base.errors import Unavailable
from shoal.model.wire import Meta

FEATURES = ("arrays", "batch", "cancel.by-key", "exec", "idempotency", "logs.follow", "watch.sse")
LIMITS = {
    "batch_jobs": limits.BATCH_JOBS_MAX,
    "long_poll_ms": limits.LONG_POLL_MS_MAX,
    "page_rows": limits.PAGE_ROWS_MAX,
    "page_rows_default": limits.PAGE_ROWS_DEFAULT,
    "request_bytes": limits.REQUEST_BYTES_MAX,
    "blob_bytes": limits.WORKDIR_BYTES_MAX,
    "watchers": limits.WATCHERS_MAX,
    "idempotency_keys_kept_ms": limits.KEYS_KEPT_MS,
    "event_versions_kept": limits.EVENT_VERSIONS_KEPT,
}


async def get_meta(call: Call) -> Answer:
    """What this server is."""
    plane = call.service.plane
    return Answer(
        Meta(
            version=__version__,
            store_id=plane.store.store_id,
            features=FEATURES,
            limits=LIMITS,
            ready=call.service.health().ok,
            nodes=len(plane.world.nodes),
            now_ms=plane.clock.now_ms(),
        )
    )


async def get_health(call: Call) -> Answer:
    """200 when it is well, 503 with its faults when not."""
    health = call.service.health()
    if not health.ok:
        raise Unavailable("; ".join(health.faults), retry_after_ms=1_000)
    return Answer(health)


async def get_openapi(call: Call) -> Answer:
    """The document, printed at the first request."""
    from shoal.api.openapi import document
    from shoal.api.table import OPERATIONS

    return Answer(call.service.print_openapi(lambda: document(OPERATIONS)))
