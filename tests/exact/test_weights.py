"""Shaping of ratios: positive, mean one, bounded, and never NaN."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zol import measure

ratios = st.lists(st.floats(-50, 50), min_size=2, max_size=40).map(
    lambda xs: torch.tensor(xs, dtype=torch.float64)
)


@settings(deadline=None, max_examples=60)
@given(ratios, st.sampled_from(["softplus", "relu", "exp"]))
def test_positive_and_mean_one(raw: torch.Tensor, how: measure.Shaping) -> None:
    w = measure.shape_weights(raw, how)
    assert bool((w >= 0).all())
    assert bool(torch.isfinite(w).all())
    if how != "relu" or bool((raw > 1e-6).any()):
        assert float(w.mean()) == pytest.approx(1.0, rel=1e-6)


@settings(deadline=None, max_examples=60)
@given(ratios, st.floats(0.5, 10))
def test_clip_bounds_after_normalising(raw: torch.Tensor, clip: float) -> None:
    assert float(measure.shape_weights(raw, clip=clip).max()) <= clip + 1e-12
    renormalised = measure.shape_weights(raw, clip=clip, renormalise=True)
    assert float(renormalised.mean()) == pytest.approx(1.0, rel=1e-6)


def test_softplus_is_the_papers_formula() -> None:
    raw = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    w = torch.tensor([math.log1p(math.exp(x)) for x in raw.tolist()], dtype=torch.float64)
    torch.testing.assert_close(measure.shape_weights(raw), w / w.mean())
    sharp = measure.shape_weights(raw, sharpness=1000.0, normalise=False)
    torch.testing.assert_close(sharp, raw.clamp_min(0.0), atol=1e-3, rtol=0)


def test_linear_keeps_negative_ratios() -> None:
    raw = torch.tensor([-1.0, 1.0, 3.0])
    torch.testing.assert_close(measure.shape_weights(raw, "linear"), raw)


def test_relu_of_only_negative_ratios_is_zero_not_nan() -> None:
    w = measure.shape_weights(torch.tensor([-1.0, -2.0]), "relu")
    assert w.tolist() == [0.0, 0.0]
    assert float(measure.effective_sample_size(w)) == 0.0


def test_diagnostics_by_hand() -> None:
    raw = torch.tensor([0.0, 0.0, 4.0, -1.0, 2.0])
    w = torch.tensor([0.0, 0.0, 5.0, 0.0, 0.0])
    d = measure.diagnose(raw, w)
    assert float(d["mean_ratio"]) == 1.0
    assert float(d["negative_share"]) == pytest.approx(0.2)
    assert float(d["ess"]) == pytest.approx(1 / 5)  # one of five samples carries everything
    assert float(d["chi_square"]) == pytest.approx((4 * 1 + 16) / 5)
