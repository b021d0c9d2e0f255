"""The human's door: one program, ``clusterconform``, whose commands live in a module each."""
