"""The account of a load: demands, ceilings, shares of the OSDs, where the latency is, and the merging of repeats."""
