"""One file per verb: the only place where sources, store, analysis and views meet."""
