"""What a latent is worth, offline, with an interval."""

from zol.value.estimates import Worth, by_imagination, by_ratio, by_value

__all__ = ["Worth", "by_imagination", "by_ratio", "by_value"]
