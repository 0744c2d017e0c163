"""Latents over time."""

import math

import pytest
import torch

from zol import schedule
from zol.common.errors import DataError
from zol.models.layers import unit

D = 6
Z = unit(torch.randn(3, D, generator=torch.Generator().manual_seed(0)))


def test_hold_switch_and_follow():
    steps = torch.tensor([0, 4, 5, 9, 10, 99])
    assert schedule.hold(Z[0])(3).shape == (D,)
    assert schedule.hold(Z[0])(steps).shape == (6, D)
    plan = schedule.switch([Z[0], Z[1], Z[2]], at=[5, 10])
    assert torch.equal(plan(steps), Z[[0, 0, 1, 1, 2, 2]])
    assert torch.equal(plan(5), Z[1])
    assert torch.equal(schedule.follow(Z)(torch.tensor([0, 2, 7])), Z[[0, 2, 2]])
    assert torch.equal(schedule.follow(Z, loop=True)(torch.tensor([0, 2, 7])), Z[[0, 2, 1]])


def test_a_glide_stays_on_the_sphere_and_turns_at_constant_speed():
    plan = schedule.glide(Z[0], Z[1], begin=10, end=20)
    path = plan(torch.arange(31))
    torch.testing.assert_close(path.norm(dim=-1), torch.full((31,), math.sqrt(D)))
    torch.testing.assert_close(path[:11], Z[0].expand(11, D))
    torch.testing.assert_close(path[20:], Z[1].expand(11, D))
    cosines = torch.nn.functional.cosine_similarity(path[10:20], path[11:21])
    torch.testing.assert_close(cosines, cosines[:1].expand(10))


def test_slerp_of_equal_and_opposite_latents():
    torch.testing.assert_close(schedule.slerp(Z[0], Z[0], torch.tensor(0.3)), Z[0])
    with pytest.raises(DataError, match="opposite"):
        schedule.slerp(Z[0], -Z[0], torch.tensor(0.5))


def test_impossible_schedules_are_refused():
    with pytest.raises(DataError, match="3 latents switch at 2"):
        schedule.switch(list(Z), at=[5])
    with pytest.raises(DataError, match="increasing"):
        schedule.switch(list(Z), at=[5, 2])
    with pytest.raises(DataError, match="begin"):
        schedule.glide(Z[0], Z[1], begin=5, end=5)
    with pytest.raises(DataError, match="shape"):
        schedule.follow(Z[0])
