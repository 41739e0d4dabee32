"""Pages: a finding as one HTML file that needs nothing else, not even a network."""
