"""What touches the world: the clock, the API client with its write fence, the node stream, events, metrics.

No rule about nodes lives here; what to write comes from ``decisions`` as a value. Next: ``handlers``.
"""
