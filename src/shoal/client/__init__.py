"""
The HTTP client that the CLI, the SDK and the agent share: synchronous, on the standard library, quick to import.

Start at `api.Api`: one object per server and token, with a part per noun (`api.jobs`, `api.logs`, `api.nodes`, ...). What is sent and
answered are the records of `model`; what goes wrong is raised as an error of `base.errors`, in the server's words.
"""
