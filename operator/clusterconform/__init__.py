"""Keeps the nodes of a mixed cluster to the contract of their backend.

Rooms, in reading order: ``contract`` (what is promised), ``decisions`` (what follows), ``effects`` (what
touches the world), ``handlers`` (when), ``cli`` (the human's door), ``sandbox`` (a real control plane to try
it on). The order is enforced: see the import-linter contracts in ``pyproject.toml``.
"""
