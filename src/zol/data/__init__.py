"""Where experience comes from: reward-free transitions, grouped into episodes."""

from zol.data.dataset import Batch, Dataset
from zol.data.writer import DatasetWriter

__all__ = ["Batch", "Dataset", "DatasetWriter"]
