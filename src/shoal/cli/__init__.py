"""
The command line: a client of the API, one module per noun.

`catalogue` names every command; its module is imported when the command is called, and what the command needs inside its function, so
that `shoal --help` and `shoal queue` stay fast. Commands may import client, formats, render and run, never store, control or api.
"""
