"""When: Kopf registrations, the cache, the work queue, the resync and the status reporter.

Every handler gathers, decides (in ``decisions``) and performs (through ``effects``). Next: ``cli``.
"""
