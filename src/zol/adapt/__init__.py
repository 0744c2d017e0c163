"""Search over z with all networks frozen."""
