"""The drawing in `docs/explanation/architecture.md` and the rule are the same: import-linter's contracts in `pyproject.toml` hold."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {path.parent.name for path in (ROOT / "src" / "shoal").glob("*/__init__.py")}
PURE = {"base", "facts", "model", "scheduling", "lifecycle", "planning", "diagnosis", "formats"}


def contracts() -> dict[str, dict[str, object]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return {contract["name"]: contract for contract in tomllib.load(file)["tool"]["importlinter"]["contracts"]}


def test_every_contract_is_kept() -> None:
    program = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert f"{len(contracts())} kept, 0 broken" in done.stdout


def test_the_layers_name_every_package() -> None:
    """`exhaustive` would let a package slip through if it were switched off; so both are looked at."""
    (layers,) = [contract for contract in contracts().values() if contract["type"] == "layers"]
    assert layers["exhaustive"] is True
    assert isinstance(layers["layers"], list)
    named = {name.strip() for row in layers["layers"] for name in str(row).split("|")}
    assert named >= PACKAGES


def test_the_pure_core_is_named_whole() -> None:
    (pure,) = [contract for name, contract in contracts().items() if name.startswith("pure core")]
    assert isinstance(pure["source_modules"], list)
    assert {str(name).removeprefix("shoal.") for name in pure["source_modules"]} >= PURE
