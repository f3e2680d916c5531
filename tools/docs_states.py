"""Writes docs/reference/states.md from the transition tables. Run it after a change of `shoal.lifecycle.states`; a test compares them."""

from __future__ import annotations

from pathlib import Path

from shoal.lifecycle.states import markdown

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "states.md"


def main() -> None:
    PAGE.write_text(markdown(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parents[2])}")


if __name__ == "__main__":
    main()
