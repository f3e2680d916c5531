"""Shoal: one control plane for GPUs that decides who runs where, when, and why not, and carries it out."""

__version__ = "0.1.0"
