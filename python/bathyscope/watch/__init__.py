"""A watch on a cluster that others load: which sources, how often, from its checks to its end."""
