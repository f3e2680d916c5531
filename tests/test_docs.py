"""Pages are complete, current and connected: printed ones match the code, lists hold every code, links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from from_path import load
from shoal.base import errors
from shoal.formats.jobfile import read_jobs
from shoal.lifecycle.spec_rules import check_spec
from shoal.model.reason import ReasonCode

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


PRINTED: dict[str, object] = load("tools/docs.py").PAGES


def rows_of(page: str) -> dict[str, list[str]]:
    """By their first cell, the rows of a page's tables whose first cell is one code."""
    text = (DOCS / "reference" / page).read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line.startswith("|")]
    return {cells[0]: cells[1:] for cells in rows}


@pytest.mark.parametrize("page", sorted(PRINTED))
def test_a_printed_page_is_current(page: str) -> None:
    text = PRINTED[page]
    assert callable(text)
    assert (DOCS / "reference" / page).read_text(encoding="utf-8") == text(), "run `make docs`"


def test_there_are_four_kinds_of_pages_and_decisions() -> None:
    for kind in ("tutorial", "howto", "reference", "explanation", "adr"):
        assert list((DOCS / kind).glob("*.md")), f"docs/{kind} is empty"
    assert {page.parent.name for page in DOCS.rglob("*.md")} == {"tutorial", "howto", "reference", "explanation", "adr"}


def anchors_of(page: Path) -> set[str]:
    """Anchors of the headings, as they are made where the repository is shown."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{target} is not there"
        assert ROOT in there.parents, f"{target} leads out of the repository"
        assert not anchor or anchor in anchors_of(there), f"{target}: no such heading"


def test_every_page_is_linked_from_somewhere() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    }
    alone = [page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md") if page not in linked and page.parent.name != "adr"]
    assert not alone, f"no page leads to {alone}"


def test_every_error_code_is_documented_and_no_other() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.ShoalError)]
    codes = {kind.code for kind in kinds}
    documented = {name.strip("`") for name in rows_of("errors.md") if name.startswith("`")}
    assert codes - documented == set(), "error codes without a row"
    assert {name for name in documented - codes if name not in ("internal",)} == set(), "rows for codes that no error has"


def test_every_reason_code_is_documented_and_no_other() -> None:
    documented = {name.strip("`") for name in rows_of("reasons.md") if name.startswith("`")}
    assert documented == {code.value for code in ReasonCode}


def test_every_variable_of_a_task_is_documented_and_no_other() -> None:
    """The names are what stands as a key in `agent.environment`."""
    tree = ast.parse((ROOT / "src/shoal/agent/environment.py").read_text(encoding="utf-8"))
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    keys += [
        node.targets[0].slice for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    ]
    names = {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    documented = {
        name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`([A-Z][\w]+)`", line.split(" | ")[0])
    }
    assert documented == names


def test_the_readme_shows_two_commands_first() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert commands[0].startswith("git clone ")
    assert commands[1] == "make demo"
    session = text.partition("## A first session")[2].partition("\n## ")[0]
    assert len([line for line in session.splitlines() if line.startswith("    ")]) <= 10


def test_commands_that_pages_show_exist() -> None:
    from shoal.cli.catalogue import CATALOGUE

    pages = [page for page in PAGES if page.parent.name != "adr"]
    shown = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"(?:^    |`|\| )shoal ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {(page, name) for page, name in shown if name not in CATALOGUE} == set()


def test_targets_that_pages_show_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {
        name for page in PAGES for name in re.findall(r"(?:^    |`)make ([a-z][a-z0-9-]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert shown - targets == set()


def job_texts() -> list[tuple[str, str]]:
    """The examples, and every YAML block of a page that is a whole job."""
    found = [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in EXAMPLES]
    for page in PAGES:
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        found += [(f"{page.name} block {number}", block) for number, block in enumerate(blocks, 1)]
    return found


@pytest.mark.parametrize(("where", "text"), job_texts(), ids=lambda value: value if "\n" not in value else "")
def test_jobs_that_are_shown_can_be_submitted(where: str, text: str) -> None:
    whole = text if "run:" in text else f"run: 'true'\n{text}"
    for file in read_jobs(whole, where):
        assert check_spec(file.spec) == ()
