"""One per node: takes commands from the control plane, runs processes through the node's supervisor, reports what it saw."""
