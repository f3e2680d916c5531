"""
Simulations beside the formulas: each closed form of `planning` has one here that shares no line with it. Pure, given an Rng.

Tests hold them to each other within three standard errors; a reader who doubts a formula runs them with his own numbers.
"""
