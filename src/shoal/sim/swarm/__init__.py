"""
The whole plane on virtual time, from one seed: real store, steps, API handlers, agents and supervisors; pretended processes and wires.

`run.run_seed` plays one life: a storm of faults, then calm, in which everything must come to its end. START HERE: `run`.
"""
