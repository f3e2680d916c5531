"""
HTTP in; thin. Start at `table` (every operation in one list), then `endpoint` (what happens around each), then the handlers.

A handler decodes nothing, authenticates nobody and knows no status code of an error: `endpoint` does that for all of them, from the
operation's record. It calls one use case of `control`, waits until the write is durable, and answers.
"""
