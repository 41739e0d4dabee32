"""Pure analysis: tables in, findings out; no clock, no files, no network."""
