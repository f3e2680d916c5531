"""
Where one more task leaves most of the fleet usable: scorers over arrays, and the memory that makes them cheap.

    nodes.py          what a scorer sees of nodes, and what a task asks; a fleet of arrays for benches and training
    packer.py         START HERE: scores remembered by shape and node, only changed nodes worked out again
    simple.py         best fit, spread, and "anywhere" for random placing
    fragmentation.py  fragmentation gradient (FGD, USENIX ATC 2023)
    value.py          residual value with scarcity
    table.py          the learned table behind it, and its file
    mix.py            the shapes that come and how often; what is scarce
    train.py          a table learned from a history, and the check before it may be used

Used by the cycle (through `scheduling.score`), by `bench/openb.py` and by `shoal plan fragmentation --train`: the same objects.
"""
