"""What follows from the contract: pure functions from facts, memory and a moment to verdicts and plans.

No I/O, no clock, no randomness, so that the operator, ``simulate`` and the tests get the same answer from the
same input. Next: ``effects`` for what touches the world, ``handlers`` for when.
"""
