"""Public contract checks: run them on your own datasets, models and worlds."""

from zol.testing.datasets import check_dataset
from zol.testing.models import check_model
from zol.testing.stand_in import stand_in_checkpoint
from zol.testing.worlds import check_world

__all__ = ["check_dataset", "check_model", "check_world", "stand_in_checkpoint"]
