"""Charts: Altair specifications from findings, for pages and as pictures. They draw, they do not compute."""
