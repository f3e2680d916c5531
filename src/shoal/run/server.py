"""
The control plane as a process: store, plane and its thread, the HTTP API. Started by `shoal up`, or alone:

    python -m shoal.run.server --state-dir DIR [--host 127.0.0.1] [--port 7461] [--tls-cert FILE --tls-key FILE | --insecure]

Ready when `url` is in the state directory. Ends cleanly on SIGTERM and SIGINT: long answers are ended, writes handed over are written.
What is killed instead is found whole by the next start.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shoal.base import limits
from shoal.base.errors import Malformed, Refused, ShoalError
from shoal.base.units import parse_duration_ms
from shoal.client.settings import state_dir_of
from shoal.model.wire import LeaseTerms
from shoal.run.database import kept_database
from shoal.run.first_start import ensure_secret, ensure_tokens, make_state_dir, write_public
from shoal.run.log_lines import start_logging

if TYPE_CHECKING:
    from shoal.control.plane import Plane
    from shoal.run.driver import Driver
    from shoal.run.http_server import HttpServer
    from shoal.scheduling.packing.table import TableFile
    from shoal.scheduling.policy import Policy
    from shoal.store.protocol import Store

log = logging.getLogger("shoal.run")

DEFAULT_PORT = 7461
BACKLOG = 2_048
SWITCH_S = 0.001
"""The interpreter's turn between threads. Its default of 5 ms is a long time for a request that waits for the writer's thread."""
GC_THRESHOLDS = (10_000, 10, 20)
"""Rarer than the default: of what a request allocates next to nothing is garbage that only the collector can free."""
PACKINGS = ("best-fit", "spread", "fragmentation", "value")
LEASE_FIELDS = {
    "renew": "renew_every_ms",
    "ttl": "ttl_ms",
    "kill": "kill_bound_ms",
    "skew": "skew_ms",
    "start": "start_deadline_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    state_dir: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    public_url: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    preempt: bool = True
    terms: LeaseTerms
    log_level: str = "info"
    log_file: Path | None = None
    commit_group: int = limits.COMMIT_GROUP_MAX
    database: str | None = None
    fair_share: Literal["dominant", "decayed", "fair-tree"] = "dominant"
    estimate: Literal["limit", "history"] = "limit"
    packing: Literal["best-fit", "spread", "fragmentation", "value"] = "best-fit"
    packing_table: TableFile | None = None
    half_life_ms: int = limits.HALF_LIFE_MS
    credit_max: float = 1.0
    age_unit_ms: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """The process's exit code: 0 after a clean end, 2 for options that cannot be, 1 where it cannot start."""
    options = read_options(sys.argv[1:] if argv is None else argv)
    try:
        check_exposure(options)
        os.umask(0o077)  # Whatever is made below the state directory is its owner's alone.
        make_state_dir(options.state_dir)
        start_logging(options.log_level, options.log_file)
        run_server(options)
    except ShoalError as error:
        sys.stderr.write(f"shoal server: {error.message}\n")
        return 1
    return 0


def read_options(argv: Sequence[str]) -> Options:
    """The options of a command line; a mistake ends the process with code 2, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m shoal.run.server", description="The control plane of Shoal.")
    parser.add_argument("--state-dir", type=Path, default=state_dir_of(os.environ), help="where everything is kept")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; beyond loopback it needs a certificate or --insecure")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 picks a free one")
    parser.add_argument("--public-url", help="the address that clients on this machine are told; by default from --host and --port")
    parser.add_argument("--tls-cert", type=Path, help="certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, help="its private key, PEM")
    parser.add_argument("--insecure", action="store_true", help="serve plain HTTP beyond loopback: tokens and logs can be read on the way")
    parser.add_argument("--no-preempt", dest="preempt", action="store_false", help="nobody is stopped for a priority or a guarantee")
    parser.add_argument("--database", help="postgresql://USER@HOST/NAME; by default what `shoal up --database` kept, else a file beside it")
    parser.add_argument("--fair-share", default="dominant", choices=["dominant", "decayed", "fair-tree"], help="how queues compare")
    parser.add_argument("--estimate", default="limit", choices=["limit", "history"], help="what a job's end is planned by")
    parser.add_argument("--packing", default="best-fit", choices=PACKINGS, help="which of the nodes that fit is taken")
    parser.add_argument("--packing-table", type=Path, help="what `shoal plan fragmentation --train` wrote, for value and fragmentation")
    parser.add_argument("--age-unit", default="0s", help="waiting for so long is worth one step of priority; 0s: never")
    parser.add_argument("--half-life", default="7d", help="use that lies so far back counts half, for decayed and fair-tree")
    parser.add_argument("--credit-max", type=float, default=1.0, help="what little use of late earns at most, as a part of the fleet")
    parser.add_argument("--lease", default="", help="lease terms, for example renew=1s,ttl=3s,kill=2s,skew=100ms,start=30s")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-file", type=Path, help="by default standard error")
    parser.add_argument("--commit-group", type=int, default=limits.COMMIT_GROUP_MAX, help="writes per transaction; 1 is for comparison")
    given = parser.parse_args(argv)
    try:
        terms = read_terms(given.lease)
    except ValueError as error:
        parser.error(f"--lease: {error}")
    if (given.tls_cert is None) != (given.tls_key is None):
        parser.error("--tls-cert and --tls-key go together")
    if not 0 <= given.port <= 65_535 or given.commit_group < 1:
        parser.error("--port lies between 0 and 65535, --commit-group is 1 or more")
    try:
        half_life_ms, age_unit_ms = parse_duration_ms(given.half_life), parse_duration_ms(given.age_unit)
    except ValueError as error:
        parser.error(f"--half-life, --age-unit: {error}")
    if not 0 <= given.credit_max <= 1:
        parser.error(f"--credit-max {given.credit_max:g}: a part of the fleet lies between 0 and 1")
    if half_life_ms < 60_000:
        parser.error(f"--half-life {given.half_life}: a minute or more")
    try:
        table = None if given.packing_table is None else read_packing(given.packing_table)
    except (OSError, Malformed) as error:
        parser.error(f"--packing-table {given.packing_table}: {error}")
    if table is not None and given.packing not in ("value", "fragmentation"):
        parser.error(f"--packing-table: {given.packing} goes by no table; say --packing value or --packing fragmentation")
    read = ("lease", "half_life", "age_unit", "packing_table")
    fields = {name: value for name, value in vars(given).items() if name not in read}
    return Options(**fields, terms=terms, half_life_ms=half_life_ms, age_unit_ms=age_unit_ms, packing_table=table)


def read_packing(path: Path) -> TableFile:
    """A trained table that stood its check. Raises OSError, and Malformed for a file that is none or a table that fills too little."""
    from shoal.scheduling.packing.table import read_table
    from shoal.scheduling.packing.train import faults_of

    file = read_table(path.read_bytes())[1]
    faults = faults_of(file.checked)
    if faults:
        raise Malformed("; ".join(faults))
    return file


def read_terms(text: str) -> LeaseTerms:
    """Lease terms from `renew=1s,ttl=3s`; what is not named keeps its default. Raises ValueError."""
    changed: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in LEASE_FIELDS:
            raise ValueError(f"no term {name!r}; there are {', '.join(LEASE_FIELDS)}")
        changed[LEASE_FIELDS[name]] = parse_duration_ms(value)
    terms = LeaseTerms(**changed)
    if not terms.renew_every_ms < terms.ttl_ms:
        raise ValueError(f"renew ({terms.renew_every_ms} ms) must be shorter than ttl ({terms.ttl_ms} ms)")
    return terms


def check_exposure(options: Options) -> None:
    """Raises Refused for plain HTTP beyond loopback that nobody asked for."""
    if options.tls_cert is None and not options.insecure and not is_loopback(options.host):
        raise Refused(
            f"listening on {options.host} without a certificate would send tokens and logs in the clear: give --tls-cert and --tls-key, "
            "or --insecure if something in front of it encrypts"
        )


def is_loopback(host: str) -> bool:
    """True for addresses that other machines cannot reach, and for names that mean only such."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


# --- composing -----------------------------------------------------------------------------------------------------------------
def run_server(options: Options, begun: Callable[[HttpServer], None] | None = None) -> None:
    """
    Serves until it is told to stop. Raises Refused where the state is in use or the address is taken.

    `begun` gets the server before it listens, on its loop; by default it then obeys SIGTERM and SIGINT, which only a main thread can.
    """
    begun = begun or _obey_signals
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    with _opened(options) as (plane, driver), _listening(options) as listener:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, plane, driver, listener, begun))


def policy_of(options: Options) -> Policy:
    """What the operator decided about the cycle."""
    from shoal.scheduling.policy import Policy

    return Policy(
        preempt=options.preempt,
        fair_share=options.fair_share,
        estimate=options.estimate,
        packing=options.packing,
        packing_table=options.packing_table,
        half_life_ms=options.half_life_ms,
        credit_max=options.credit_max,
        age_unit_ms=options.age_unit_ms,
    )


@contextmanager
def _opened(options: Options) -> Iterator[tuple[Plane, Driver]]:
    """The plane on its stores, its tokens made; all closed in the end, the store last."""
    from shoal.control.plane import Plane
    from shoal.run.clock import RealClock
    from shoal.run.driver import Driver, stop_all
    from shoal.run.entropy import OsIds, octets
    from shoal.store.blobs import BlobStore
    from shoal.store.logs import LogStore
    from shoal.store.sealing import Sealer
    from shoal.store.sql import open_store

    folder = options.state_dir
    clock = RealClock()
    store: Store = open_store(options.database or kept_database(folder), group_max=options.commit_group)
    try:
        for stale in ("url", "server.pid"):  # Of a server that was killed: whoever waits for this one must not take them for its own.
            (folder / stale).unlink(missing_ok=True)
        plane = Plane(
            store=store,
            logs=LogStore(folder / "logs"),
            blobs=BlobStore(folder / "blobs"),
            sealer=Sealer(folder / "key"),
            clock=clock,
            ids=OsIds(),
            entropy=octets,
            policy=policy_of(options),
            terms=options.terms,
            holder=f"{socket.gethostname()}:{os.getpid()}",
        )
        ensure_tokens(plane, folder)
        driver = Driver(plane, clock)
        try:
            yield plane, driver
        finally:
            stop_all(driver, plane)
    finally:
        store.close()


@contextmanager
def _listening(options: Options) -> Iterator[socket.socket]:
    """The bound socket. Bound before the loop runs, so that a taken port is told in one line."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, options.port))
        except OSError as error:
            where = f"{options.host}:{options.port}"
            raise Refused(f"cannot listen on {where}: {error.strerror}; choose another with --port, or --port 0 for any") from error
        listener.listen(BACKLOG)
        yield listener
    finally:
        listener.close()


async def _serve(options: Options, plane: Plane, driver: Driver, listener: socket.socket, begun: Callable[[HttpServer], None]) -> None:
    from shoal.api.service import Service
    from shoal.run.http_server import HttpServer

    loop = asyncio.get_running_loop()
    secret = ensure_secret(options.state_dir / "page.key")
    service: Service = Service(plane, loop, secret=secret, health=lambda: driver.health(service))
    server = HttpServer(service, lambda: _announce(options, listener), cert=options.tls_cert, key=options.tls_key)
    begun(server)
    gc.freeze()  # What was imported stays for ever; a full collection need not look at it again.
    driver.start()
    try:
        await server.serve(sockets=[listener])
    finally:
        service.close()
        (options.state_dir / "server.pid").unlink(missing_ok=True)
    log.info("server stopped")


def _obey_signals(server: HttpServer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)


def _announce(options: Options, listener: socket.socket) -> None:
    """Says where the server listens: to clients on this machine by `url`, to `shoal down` by `server.pid`."""
    url = options.public_url or url_of(options, listener.getsockname()[1])
    folder = options.state_dir
    if options.tls_cert is not None:
        write_public(folder / "ca.pem", options.tls_cert.read_text(encoding="utf-8"))
    write_public(folder / "server.pid", f"{os.getpid()}\n")
    write_public(folder / "url", f"{url}\n")
    log.info("server ready", extra={"url": url, "pid": os.getpid()})


def url_of(options: Options, port: int) -> str:
    """The address for clients on this machine."""
    scheme = "https" if options.tls_cert is not None else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(options.host, f"[{options.host}]" if ":" in options.host else options.host)  # noqa: S104
    return f"{scheme}://{host}:{port}"


if __name__ == "__main__":
    sys.exit(main())
