"""Ways to run a task. `host`: a plain process on the machine, in groups and directories of its own."""
