"""The conductor of a benchmark: resources, steps, guards, journal, resume."""
