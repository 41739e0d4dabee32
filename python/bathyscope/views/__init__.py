"""Renderers: findings in, text or files out. Views never compute."""
