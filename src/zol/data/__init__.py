"""Where experience comes from: reward-free transitions, grouped into episodes."""

from zol.data.batch import Batch
from zol.data.dataset import Dataset
from zol.data.sampling import BatchSpec, Sampler
from zol.data.writer import DatasetWriter

__all__ = ["Batch", "BatchSpec", "Dataset", "DatasetWriter", "Sampler"]
