"""Tasks and fields: shapes, types, gradients, composition, and the errors they give."""

import numpy as np
import pytest
import torch
from control_reference import DOMAINS
from dm_control.utils import rewards

from zol.common.errors import DataError
from zol.fields import States
from zol.tasks import Task, tolerance
from zol.worlds import find_task, make


@pytest.fixture(scope="module", params=DOMAINS)
def visited(request):
    """A world and 24 states of it with their actions."""
    world, generator = make(request.param), torch.Generator().manual_seed(2)
    world.reset(24, generator)
    for _ in range(30):
        states = world.step(torch.rand((24, world.action_dim), generator=generator) * 2 - 1)
    return world, states


@pytest.mark.parametrize("shape", ["gaussian", "linear", "quadratic"])
@pytest.mark.parametrize(("bounds", "margin"), [((0.0, 0.0), 1.0), ((1.0, np.inf), 0.5), ((-2.0, 0.5), 3.0)])
@pytest.mark.parametrize("at_margin", [0.1, 0.5])
def test_tolerance_is_dm_controls(shape, bounds, margin, at_margin):
    x = np.linspace(-8, 8, 2001)
    ours = tolerance(torch.from_numpy(x), *bounds, margin=margin, shape=shape, at_margin=at_margin)
    theirs = rewards.tolerance(x, bounds, margin=margin, sigmoid=shape, value_at_margin=at_margin)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-14)


def test_tolerance_without_margin_is_an_indicator():
    x = torch.tensor([0.9, 1.0, 2.0, 2.1])
    assert tolerance(x, 1.0, 2.0).tolist() == [0.0, 1.0, 1.0, 0.0]


def test_fields_cover_every_column_once_and_explain_themselves(visited):
    layout = visited[0].layout
    columns = [c for field in layout.fields for c in range(field.start, field.start + field.size)]
    assert columns == list(range(layout.obs_dim))
    assert all(field.meaning for field in layout.fields)
    assert all(function.__doc__ for function in layout.derived.values())


def test_rewards_work_in_float32_and_stay_in_the_unit_interval(visited):
    world, states = visited
    single = States(states.obs.float(), world.layout, states.action.float(), states.physics.float())
    for task in world.tasks.values():
        value = task(single)
        assert value.dtype == torch.float32
        # Linear flanks of slope ≤ 1 per unit, on speeds and momenta of up to ~30 with 24 bits.
        torch.testing.assert_close(value.double(), task(states), rtol=0, atol=1e-5)
        assert value.min() >= (-10.0 if task.name == "reach_bottom_left_long" else 0.0)  # it has fines
        assert value.max() <= 1.0


def test_leading_dimensions_are_free(visited):
    world, states = visited
    folded = States(
        states.obs.reshape(2, 3, 4, -1),
        world.layout,
        states.action.reshape(2, 3, 4, -1),
        states.physics.reshape(2, 3, 4, -1),
    )
    one = States(states.obs[5], world.layout, states.action[5], states.physics[5])
    for task in world.tasks.values():
        flat = task(states)
        torch.testing.assert_close(task(folded).reshape(-1), flat, rtol=0, atol=1e-13)
        torch.testing.assert_close(task(one), flat[5], rtol=0, atol=1e-13)


def test_rewards_have_the_gradient_of_finite_differences():
    """Imagined rollouts will differentiate them: walker run, where no part of the reward is clipped."""
    world = make("walker")
    states = world.reset(6, torch.Generator().manual_seed(1))
    obs = states.obs.clone()
    obs[:, 15:] = torch.linspace(-1.0, 1.0, 54, dtype=torch.float64).reshape(6, 9)
    obs[:, 16] = 3.0  # forward, slower than the target
    obs.requires_grad_()
    for name in ("run", "flip"):
        assert torch.autograd.gradcheck(lambda x, name=name: world.tasks[name](States(x, world.layout)), obs)


def test_every_gradient_is_finite(visited):
    world, states = visited
    for task in world.tasks.values():
        obs = states.obs.clone().requires_grad_()
        physics = states.physics.clone().requires_grad_()
        task(States(obs, world.layout, states.action, physics)).sum().backward()
        assert obs.grad.isfinite().all()


def test_tasks_add_scale_multiply_and_mask():
    world = make("walker")
    states = world.reset(16, torch.Generator().manual_seed(0))
    stand, spin = world.tasks["stand"], world.tasks["spin"]
    quiet = Task("quiet", lambda s: -s["qvel"].square().mean(-1))
    torch.testing.assert_close((stand + 0.1 * quiet)(states), stand(states) + 0.1 * quiet(states))
    torch.testing.assert_close((stand * 2.0 + spin)(states), 2 * stand(states) + spin(states))
    torch.testing.assert_close((stand - 0.5 * spin)(states), stand(states) - 0.5 * spin(states))
    torch.testing.assert_close((stand * spin)(states), stand(states) * spin(states))
    assert (stand - 0.5 * (spin + quiet)).name == "stand - (0.5·(spin + quiet))"
    upright = stand.where(lambda s: s["torso_upright"] > 0)
    up = states["torso_upright"] > 0
    assert up.any()
    assert not up.all()
    assert torch.equal(upright(states), torch.where(up, stand(states), 0.0))


def test_the_two_maze_margins():
    world = make("pointmass")
    action = torch.zeros(1, 2)
    for suffix, margin in (("", 0.09), ("_exorl", 0.015)):
        task = world.tasks["reach_bottom_right" + suffix]
        at = [
            States(torch.tensor([[0.15 + d, -0.15, 0.0, 0.0]]), world.layout, action)
            for d in (0.014, 0.015 + margin)
        ]
        assert float(task(at[0])) == 1.0
        assert float(task(at[1])) == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize(
    ("task", "lap", "other_way"),
    [("square", 1, 0), ("reach_bottom_left_long", 0.5, -10), ("fast_slow", 0, 1), ("loop", 1, 1 / 3)],
)
def test_a_lap_of_the_maze_is_paid_in_one_direction(task, lap, other_way):
    """The middle of every side of the square or diamond, at the speed the task wants there."""
    world = make("pointmass")
    sides = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])
    ahead = torch.tensor([[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]])  # clockwise
    if task == "loop":
        sides, ahead = (0.5 * (part + part.roll(-1, 0)) for part in (sides, ahead))
        place, velocity = 0.24 * sides, 0.16 * ahead
    else:
        pace = torch.tensor([0.045, 0.095, 0.045, 0.095]) if task == "fast_slow" else torch.full((4,), 0.1)
        place, velocity = 0.25 * sides, pace[:, None] * ahead
    for direction, wage in ((1, lap), (-1, other_way)):
        states = States(torch.cat([place, direction * velocity], -1), world.layout, torch.zeros(4, 2))
        paid = world.tasks[task](states)
        torch.testing.assert_close(paid, torch.full((4,), float(wage)), rtol=0, atol=1e-5)


def test_what_a_task_needs_is_said():
    walker, maze, quadruped = make("walker"), make("pointmass"), make("quadruped")
    with pytest.raises(DataError, match=r"depends on the action"):
        maze.tasks["reach_top_left"](States(torch.zeros(1, 4), maze.layout))
    with pytest.raises(DataError, match=r"needs the simulator state"):
        quadruped.tasks["jump"](States(torch.zeros(1, 78), quadruped.layout))
    with pytest.raises(DataError, match=r"did you mean 'torso_height'"):
        walker.reset(1, torch.Generator())["torso_hight"]
    with pytest.raises(DataError, match=r"no task of walker called 'rum'; did you mean 'run'"):
        find_task(walker, "rum")
