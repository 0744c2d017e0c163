"""A learned world: dynamics trained on the same data, and rollouts of latents in it."""
