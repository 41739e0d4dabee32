"""Windows of time over what was recorded: the join of `analysis.window`, carried out by the store."""
