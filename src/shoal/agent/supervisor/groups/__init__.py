"""
Control groups: how all processes of an allocation are found again, children that called setsid or double-forked included.

Three drivers behind `protocol.Groups`: cgroup2 (`cgroup.kill`), cgroup1 (freezer and kill), and weak, which has no kernel group and
looks for an environment mark and descent. `choose.choose_groups` takes the best that the machine allows.
"""
