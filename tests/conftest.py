"""What all tests share: how long the property tests search.

``short`` belongs to every run and tries the same examples each time; ``--hypothesis-profile=long`` seeks new
ones.
"""

from hypothesis import settings

settings.register_profile("short", max_examples=100, derandomize=True, deadline=None)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile("short")
