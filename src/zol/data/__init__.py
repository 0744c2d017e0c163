"""Where experience comes from: reward-free transitions, grouped into episodes."""

from zol.data.dataset import Batch, Dataset

__all__ = ["Batch", "Dataset"]
