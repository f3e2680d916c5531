"""Records: frozen values with no behaviour beyond their own invariants. `values` and `codec` first, then `job`."""
