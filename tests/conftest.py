"""
Shared by all tests: hypothesis runs without a deadline (two busy cores make single examples slow) and prints how to repeat a failure.

`tests/` is on the path by this file's being here, so that helpers such as `serving` can be imported from every kind of test.
"""

from hypothesis import settings

settings.register_profile("shoal", deadline=None, print_blob=True)
settings.load_profile("shoal")
