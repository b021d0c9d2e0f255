"""What the tests of this room share."""

from effects_leftovers import nothing_left_over

__all__ = ["nothing_left_over"]
