"""Our own agents as a backend: they dial out, so acting means to leave the command where the next poll finds it."""

from shoal.backends.agents.mailbox import AgentsBackend

__all__ = ["AgentsBackend"]
