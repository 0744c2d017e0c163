"""What every part of zol may use: errors, configurations, files, progress, threads and provenance."""
