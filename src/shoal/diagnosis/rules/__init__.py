"""Facts to findings: what a combination of signs means, one table per part of the stack. The form is in `rule`, all rows in `table`."""
