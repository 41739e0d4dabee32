"""Recording: runs sources by the clock and hands their answers on. It does not know who uses it."""
