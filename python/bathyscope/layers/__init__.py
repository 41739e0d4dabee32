"""Layers: one file per layer of the ladder, behind one interface."""
