"""
Composition roots: the only place with a real clock, the environment and entropy. `server` is the control plane, `agent` a node's agent.
"""
