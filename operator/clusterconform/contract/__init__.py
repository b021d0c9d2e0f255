"""What is promised: names on the wire, the matrix, profiles, node facts, verdicts, plans and memory.

Values only: nothing here reads a clock, a file or the network, and a raw API object goes no further than the
doors of this room (``facts.read_node``, ``profile.read_profile``). Next: ``decisions``.
"""
