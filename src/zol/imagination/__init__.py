"""Learned worlds: dynamics learned from the same reward-free data, and rollouts in them."""
