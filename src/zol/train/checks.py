"""What can be known to fail before any time is spent on training."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from zol.collect.demonstrations import STATES_ONLY
from zol.common.errors import DataError
from zol.data import BatchSpec, Dataset
from zol.models.base import Model

ROWS_AT_ONCE = 1 << 16
TRAINED_ON = ("obs", "action")  # the columns that an update reads as numbers


def check_data(model: Model, dataset: Dataset, batch_size: int) -> None:
    """The data fit the model, fill a batch, and are numbers throughout."""
    if dataset.provenance.get(STATES_ONLY):
        raise DataError(
            "these are demonstrations, states without actions, and this model learns from transitions: "
            "zol explore collects some; zol train fb_cpr --demonstrations learns from both"
        )
    if (dataset.obs_dim, dataset.action_dim) != (model.obs_dim, model.action_dim):
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, the model "
            f"expects {model.obs_dim} and {model.action_dim}: was it made for another world?"
        )
    if len(dataset) < batch_size:
        raise DataError(
            f"{len(dataset)} transitions are fewer than one batch of {batch_size}: "
            "collect more data or lower batch_size"
        )
    for name in TRAINED_ON:
        _check_finite(dataset, name)
    if dataset.resets is not None and not np.isfinite(dataset.resets).all():
        raise DataError("the start states (resets) hold NaN or infinite numbers: import the data again")


def check_episodes(spec: BatchSpec, dataset: Dataset) -> None:
    """The data have episodes, if a learner looks further than one step."""
    if (spec.future or spec.next_action or spec.path > 1) and int(dataset.lengths.max()) < 2:
        raise DataError(
            "this model looks at what follows in an episode, and no episode of these data has two steps: "
            "import them with the flags that mark where episodes end (terminated, truncated)"
        )


def _check_finite(dataset: Dataset, name: str) -> None:
    """One pass over a column, some rows at a time: a sum is NaN or infinite if any of its terms is."""
    first, bad = -1, 0
    for begin, rows in _chunks(dataset, name):
        if math.isfinite(float(rows.sum(dtype=np.float64))):
            continue
        wrong = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
        if len(wrong):
            first = begin + int(wrong[0]) if bad == 0 else first
            bad += len(wrong)
    if bad:
        episode = int(np.searchsorted(dataset.first_rows, first, side="right")) - 1
        raise DataError(
            f"{bad} rows of '{name}' hold NaN or infinite numbers, the first in episode {episode}, step "
            f"{first - int(dataset.first_rows[episode])}: leave those episodes out (zol data subset), or "
            "import the data again"
        )


def _chunks(dataset: Dataset, name: str) -> Iterator[tuple[int, NDArray[np.floating]]]:
    column = dataset.columns[name]
    for begin in range(0, len(column), ROWS_AT_ONCE):
        yield begin, column[begin : begin + ROWS_AT_ONCE]
        if dataset.mapped is not None:
            dataset.mapped.release()  # a scan must not make the whole file count as our memory
