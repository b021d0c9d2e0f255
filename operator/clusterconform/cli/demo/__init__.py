"""The demo behind ``clusterconform sandbox``: a fleet arrives, becomes conformant, drifts, and is healed.

``story`` tells it from beginning to end. ``screen`` and ``board`` show it, ``world`` and ``population`` make
it, ``profiles`` reads how the fleet does, ``acts`` lets marks drift and measures the repair. Nothing here
decides about a node.
"""
