"""The demo behind ``clusterconform sandbox``: a world is built, a fleet arrives, three marks drift and heal.

``story`` tells it from beginning to end; ``screen`` shows it, ``world`` and ``population`` make it, ``profiles``
reads how the fleet does, ``acts`` lets marks drift and measures the repair. Nothing here decides about a node.
"""
