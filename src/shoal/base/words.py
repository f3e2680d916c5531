"""Words for people: the known word that somebody may have meant."""

from __future__ import annotations

from collections.abc import Collection


def did_you_mean(word: str, known: Collection[str]) -> str:
    """`; did you mean 'gpus'?`, or nothing where no known word is near."""
    import difflib  # 8 ms, needed only after a mistake

    near = difflib.get_close_matches(word.lower(), sorted(known), 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
