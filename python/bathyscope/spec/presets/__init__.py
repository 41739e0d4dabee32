"""The packaged plans; `bathy bench list` shows them."""
