"""Benchmarks: published protocols, run the same way for every method."""
