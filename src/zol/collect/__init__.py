"""Filling a dataset from a world: explorers, scripted walks, and replayed actions."""
