"""Caches: their configurations on this machine, the daemon that serves each, and reports of what it answers.

`bathyd` (crates/bathyd) does the work and knows nothing of this package. What stands between them is one JSON file for
each cache, which is bathyd's own configuration, and a socket that answers a line with a line.
"""
