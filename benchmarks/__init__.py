"""Speed compared with the plain way, always in one run: python -m benchmarks.NAME [--json]."""
