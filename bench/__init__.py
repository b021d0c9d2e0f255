"""Benchmarks on the sandbox's real API server: ``python -m bench`` from the root of the tree.

``client`` and ``bare`` are the floor that everything is compared with, ``scene`` a cluster with a fleet at
rest, ``subjects`` the operators that are measured. Then one module for each benchmark, and ``report`` for
what comes out. docs/benchmarks.md says what each figure means.
"""
