"""The doctor: evidence of a GPU node to the broken layer, its cause, the fix and the next look. Pure. Start at `judge.diagnose`."""
