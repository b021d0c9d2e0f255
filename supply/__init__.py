"""What this project is built from, told to machines: ``python -m supply`` from the root of the tree.

``sbom`` writes bills of materials, ``audit`` asks which of those materials have known vulnerabilities.
"""
