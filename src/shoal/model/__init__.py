"""
Records: frozen values with no behaviour beyond their own invariants. `values` and `codec` first, then `job`.

Those that live long have `gc=False`: a frozen record of values can be part of no cycle, so the garbage collector need not look at it. It
would at every full collection: with 10,000 jobs in memory that stopped the whole server for 0.1 s, several times a minute.
"""
