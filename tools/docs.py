"""
Prints the pages of docs/reference that follow from code: `make docs`. A page that is out of date fails `tests/test_docs.py`.

Each page is a function that gives its text; nothing here is written by hand twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from dependency_tree import dependencies_page
from docs_api import api_page
from docs_cli import cli_page
from docs_doctor import doctor_page, xid_page
from docs_jobfile import jobfile_page
from docs_limits import limits_page
from docs_planning import planning_page
from docs_policy import policy_page

from shoal.lifecycle.states import markdown as states_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "dependencies.md": dependencies_page,
    "doctor.md": doctor_page,
    "http-api.md": api_page,
    "jobfile.md": jobfile_page,
    "limits.md": limits_page,
    "planning.md": planning_page,
    "policy.md": policy_page,
    "states.md": states_page,
    "xid.md": xid_page,
}


def main() -> None:
    for name, page in PAGES.items():
        path = REFERENCE / name
        text = page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(REFERENCE.parents[1])}")


if __name__ == "__main__":
    main()
