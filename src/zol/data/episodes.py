"""From plain transition arrays to rows of states, grouped into episodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zol.common.errors import DataError
from zol.data.disk import canonical, column_name

# How far actions may lie outside [−1, 1]: scaling in single precision does not end exactly at 1.
ROUNDING = 1e-4


def matrix(name: str, values: ArrayLike) -> NDArray[np.float32]:
    """``values`` as a finite float32 table, or an error that says what is wrong with them."""
    array = np.asarray(values)
    if array.ndim != 2:
        raise DataError(f"{name} has shape {array.shape}; expected two dimensions, [rows, columns]")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} has type {array.dtype}; expected numbers")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        array = array.astype(np.float32)
    check_finite(name, array)
    return array


def actions(values: ArrayLike) -> NDArray[np.float32]:
    """Actions as such a table, within [−1, 1]: policies give nothing else, and worlds scale from there."""
    table = matrix("action", values)
    reach = np.abs(table).max(axis=0, initial=0.0)
    if (reach > 1.0 + ROUNDING).any():
        column = int(reach.argmax())
        raise DataError(
            f"action reaches {reach[column]:.4g} in column {column}; expected [-1, 1]: divide each column by "
            "the largest value that the system accepts there, and clip what lies beyond"
        )
    return table


def check_finite(name: str, values: NDArray[Any]) -> None:
    """Refuse NaN and infinity, naming the first row that has one."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        raise DataError(f"{name} has NaN or infinite values in {bad.sum()} rows, first in row {bad.argmax()}")


def join(
    obs: ArrayLike,
    action: ArrayLike,
    next_obs: ArrayLike,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None,
    extras: Mapping[str, ArrayLike],
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Transition arrays → columns of rows and episode lengths (drawn at the top of dataset.py)."""
    s, a, s2 = matrix("obs", obs), actions(action), matrix("next_obs", next_obs)
    n = len(s)
    if n == 0:
        raise DataError("obs is empty: a dataset needs at least one transition")
    if len(a) != n or s2.shape != s.shape:
        raise DataError(
            f"obs {s.shape}, action {a.shape} and next_obs {s2.shape} do not belong together: "
            "all need the same number of rows, and obs and next_obs the same columns"
        )
    end, cut = flags("terminated", terminated, n), flags("truncated", truncated, n)
    last = end | cut | np.append((s2[:-1] != s[1:]).any(axis=1), True)
    lengths = np.diff(np.flatnonzero(np.append(True, last))).astype(np.int64)
    step_rows = np.arange(n) + np.cumsum(last) - last
    final_rows = step_rows[last] + 1

    def spread(values: NDArray[Any], final: NDArray[Any] | None) -> NDArray[Any]:
        column = np.zeros((n + len(lengths), *values.shape[1:]), dtype=values.dtype)
        column[step_rows] = values
        if final is not None:
            column[final_rows] = final[last]
        return column

    columns: dict[str, NDArray[Any]] = {
        "obs": spread(s, s2),
        "action": spread(a, None),
        "terminated": spread(end, None),
        "truncated": spread(cut | (last & ~end), None),
    }
    for name, values in extras.items():
        if name.startswith("next_") and name.removeprefix("next_") in extras:
            continue
        after = extras.get(f"next_{name}")
        columns[column_name(name)] = spread(
            _extra(name, values, n), None if after is None else _extra(f"next_{name}", after, n)
        )
    return columns, lengths


def _extra(name: str, values: ArrayLike, n: int) -> NDArray[Any]:
    array = canonical(name.removeprefix("next_"), np.asarray(values))
    if array.ndim == 0 or len(array) != n:
        raise DataError(f"{name} has shape {array.shape}; expected one row for each of the {n} rows of obs")
    check_finite(name, array)
    return array


def flags(name: str, values: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    """One mark for each of ``n`` rows, from whatever numbers they are stored as; none set without values."""
    if values is None:
        return np.zeros(n, dtype=bool)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} has type {array.dtype}; expected booleans or numbers")
    if array.size != n:
        raise DataError(f"{name} has {array.size} entries, obs has {n} rows")
    check_finite(name, array)
    return array.reshape(-1).astype(bool)
