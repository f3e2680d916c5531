"""The server as a process: first start, second start, exposure, TLS, the state directory, many clients at once."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from live_server import Serving, server_process, wait_until
from shoal.base.errors import Refused, Unauthenticated, Unavailable
from shoal.client.api import Api
from shoal.client.settings import find_settings
from shoal.run.server import check_exposure, is_loopback, read_options, read_terms

SERVER = [sys.executable, "-m", "shoal.run.server"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run_until_it_ends(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SERVER, *arguments], capture_output=True, text=True, timeout=30, check=False)


# --- first and second start ----------------------------------------------------------------------------------------------------
def test_a_first_start_makes_private_files_and_a_second_finds_them(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Serving(state) as first:
        admin = first.admin
        job = first.api().jobs.submit({"run": "true"})
        assert mode(state) == 0o700
        for name in ("admin.token", "join.token", "page.key"):
            assert mode(state / name) == 0o600, name
        assert (state / "server.pid").read_text() == f"{os.getpid()}\n"
        page = first.api().jobs.list(limit=1)
    assert not (state / "server.pid").exists()
    with Serving(state) as second:
        assert second.admin == admin
        assert second.api().jobs.get(job.number).job.id == job.id
        assert second.api().jobs.list(limit=1) == page


def test_a_lost_token_file_is_made_anew_and_the_old_token_is_known_as_before(tmp_path: Path) -> None:
    with Serving(tmp_path / "state") as first:
        old = first.admin
    (tmp_path / "state" / "admin.token").unlink()
    with Serving(tmp_path / "state") as second:
        assert second.admin != old
        assert {token.principal for token in second.api().tokens.list()} >= {"user/admin"}


def test_a_damaged_token_file_is_made_anew(tmp_path: Path) -> None:
    with Serving(tmp_path) as server:
        before = server.admin
    (tmp_path / "admin.token").write_bytes(b"\xff\xfe\x00 no token")
    with Serving(tmp_path) as server:
        assert server.admin != before
        assert server.api().jobs.list().items == ()


def test_a_token_file_written_before_its_record_is_made_known(tmp_path: Path) -> None:
    """Killed between the two: the next start takes the file's word. A store that was lost looks the same."""
    with Serving(tmp_path / "state") as first:
        admin = first.admin
    for path in (tmp_path / "state").glob("shoal.db*"):
        path.unlink()
    with Serving(tmp_path / "state") as second:
        assert second.admin == admin
        second.api().jobs.list()


def test_a_revoked_admin_token_is_replaced_at_the_next_start(tmp_path: Path) -> None:
    with Serving(tmp_path / "state") as first:
        old = first.admin
        first.api().tokens.revoke(old.split("_")[1])
        with pytest.raises(Unauthenticated):
            first.api().jobs.list()
    with Serving(tmp_path / "state") as second:
        assert second.admin != old
        second.api().jobs.list()


def test_fifty_clients_from_the_first_start_on(tmp_path: Path) -> None:
    """Platform case 36: nobody ever hears that a database is locked."""
    with Serving(tmp_path / "state") as server:

        def script(number: int) -> list[str]:
            api = server.api()
            job = api.jobs.submit({"run": "true", "name": f"client{number}"})
            seen = [api.jobs.get(job.id).job.spec.name, *(found.id for found in api.jobs.list(limit=100).items)]
            api.jobs.cancel(job.id)
            api.queues.list()
            api.nodes.list()
            return [job.id, api.jobs.wait(job.id, 10).state, *seen]

        with ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(script, range(50)))
    assert len({answer[0] for answer in answers}) == 50
    assert {answer[1] for answer in answers} == {"CANCELLED"}
    assert all(answer[0] in answer[3:] for answer in answers)


def test_two_servers_cannot_share_a_state_directory(tmp_path: Path) -> None:
    with Serving(tmp_path / "state"):
        second = run_until_it_ends("--state-dir", str(tmp_path / "state"), "--port", "0")
    assert second.returncode == 1
    assert "in use by" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    with Serving(tmp_path / "a") as server:
        port = server.url.rpartition(":")[2]
        second = run_until_it_ends("--state-dir", str(tmp_path / "b"), "--port", port)
    assert second.returncode == 1
    assert "cannot listen on" in second.stderr
    assert "Traceback" not in second.stderr


def test_log_lines_are_json_and_term_ends_with_code_0(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with server_process(tmp_path / "state", "--log-file", str(log)) as server:
        assert server.process is not None
        assert server.api().health().ok
        assert int((server.state / "server.pid").read_text()) == server.process.pid
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["message"] for line in lines if line["logger"] == "shoal.run"] == ["server ready", "server stopped"]
    assert {"at", "level", "logger", "message"} <= set(lines[0])
    assert mode(log) == 0o600


def test_a_second_start_is_quick(tmp_path: Path) -> None:
    """CPU time from start to ready, as a ratio to importing what no HTTP server of this kind can do without, in the same run."""
    state = tmp_path / "state"
    with server_process(state, "--log-level", "error"):
        pass
    floor = min(cpu_of([sys.executable, "-c", "import uvloop, uvicorn, starlette.routing, numpy, msgspec"]) for _ in range(3))
    times = []
    for _ in range(3):
        with server_process(state, "--log-level", "error") as server:
            assert server.process is not None
            times.append(cpu_so_far(server.process.pid))
    assert min(times) < 3.0 * floor, f"{min(times):.2f} s of CPU against {floor:.2f} s for the imports alone"


def cpu_of(command: list[str]) -> float:
    before = os.times()
    subprocess.run(command, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def cpu_so_far(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- exposure ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_certificate(tmp_path: Path, host: str) -> None:
    assert is_loopback(host)
    check_exposure(read_options(["--state-dir", str(tmp_path), "--host", host]))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "no-such-host.invalid"])
def test_beyond_loopback_needs_a_certificate_or_a_word(tmp_path: Path, host: str) -> None:
    with pytest.raises(Refused, match=r"--tls-cert .* --insecure"):
        check_exposure(read_options(["--state-dir", str(tmp_path), "--host", host]))
    check_exposure(read_options(["--state-dir", str(tmp_path), "--host", host, "--insecure"]))


def test_an_exposed_server_does_not_start(tmp_path: Path) -> None:
    done = run_until_it_ends("--state-dir", str(tmp_path / "state"), "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 1
    assert "--insecure" in done.stderr
    assert not (tmp_path / "state").exists()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(*encoding))
    return cert_file, key_file


def test_over_tls_with_the_certificate_and_not_without(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with Serving(tmp_path / "state", "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        settings = find_settings({"SHOAL_STATE_DIR": str(server.state)})
        api = settings.api(patience_s=2)
        job = api.jobs.submit({"run": "true"})
        assert api.jobs.get(job.id).job.id == job.id
        assert api.events.read().items
        with pytest.raises(Unavailable, match="certificate"):
            Api(server.url, server.admin, patience_s=0).jobs.list()


# --- options -------------------------------------------------------------------------------------------------------------------
def test_lease_terms_are_read_by_name() -> None:
    terms = read_terms("renew=200ms,ttl=1s,kill=2s,skew=50ms,start=10s")
    assert (terms.renew_every_ms, terms.ttl_ms, terms.kill_bound_ms, terms.skew_ms, terms.start_deadline_ms) == (
        200,
        1_000,
        2_000,
        50,
        10_000,
    )


@pytest.mark.parametrize("text", ["renew", "renew=5", "foo=1s", "renew=2s,ttl=1s"])
def test_terms_that_cannot_be_end_the_process(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(["--lease", text])
    assert ended.value.code == 2
    assert "--lease" in capsys.readouterr().err


def test_a_server_that_is_gone_is_told_with_what_to_do(tmp_path: Path) -> None:
    with Serving(tmp_path / "state") as server:
        api = server.api(patience_s=0)
        url = server.url
    with pytest.raises(Unavailable, match=r"shoal up"):
        api.jobs.list()
    begun = time.monotonic()
    with pytest.raises(Unavailable):
        Api(url, "x", patience_s=30).jobs.list()
    assert time.monotonic() - begun < 5, "a server that never answered is told at once, however patient the client"


def test_a_patient_client_gets_over_a_restart(tmp_path: Path) -> None:
    with server_process(tmp_path / "state", "--log-level", "error") as server:
        api = server.api(patience_s=20)
        api.jobs.list()
        server.kill()
        with ThreadPoolExecutor(1) as pool:
            submitting = pool.submit(api.jobs.submit, {"run": "true"})
            server.start()
            job = submitting.result(20)
        wait_until(lambda: api.jobs.get(job.id).job.number == job.number, "the job to be there")
