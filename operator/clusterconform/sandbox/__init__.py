"""A real control plane with a mixed fleet on this machine: to try the operator on, to test it, to measure it.

Everything here is the real program, built from pinned sources when first needed (``parts``, ``builder``), run
on loopback in a directory of its own (``programs``, ``certificates``, ``control_plane``) and filled with real
and imitated nodes (``nodes``, ``fleet``). Nothing here decides about a node, and the operator never needs
this room.
"""
