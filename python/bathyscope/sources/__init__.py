"""Sources: one file per tool or interface that is read. Each plans, collects and parses."""
