"""
The supervisor: one small process per node that outlives the agent.

It is the parent (subreaper) of all tasks, keeps their exit statuses, puts them into control groups, copies their output to files,
and stops work by itself when the agent has not fed it for too long. It knows processes, groups and one deadline; nothing of jobs,
servers or GPUs. START HERE: `loop.py`. The agent's side of the socket is `link.py`.

It must start fast and stay small, so it imports msgspec and the standard library only, and nothing of Shoal outside this package
but `base.limits`. Kept in its own package so that this can be checked (`tests/unit/agent/test_supervisor_imports.py`).
"""
