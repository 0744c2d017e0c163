"""The batched world itself: replay, independence, action scaling, closed forms, and how it refuses."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from control_reference import DOMAINS
from dm_control import suite
from dm_control.suite.wrappers import action_scale

import zol.worlds
from zol.common import registry
from zol.common.errors import DataError, MissingExtra, WorldError
from zol.worlds import World, make
from zol.worlds.dmc.world import ROWS_AT_ONCE, ControlWorld


def episode(world: ControlWorld, steps: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(world.physics), world.action_dim)
    return [world.step(torch.rand(shape, generator=generator) * 2 - 1).obs for _ in range(steps)]


@pytest.fixture(params=DOMAINS)
def world(request):
    made = make(request.param)
    made.reset(3, torch.Generator().manual_seed(0))
    return made


def test_it_keeps_the_contract(world):
    assert isinstance(world, World)
    assert world.episode_length == 1000
    assert world.discount == (0.99 if world.name == "point_mass_maze" else 0.98)
    states = world.step(torch.zeros(3, world.action_dim))
    assert states.obs.shape == (3, world.layout.obs_dim)
    assert states.obs.dtype == torch.float64
    assert states.physics is not None
    assert states.action is not None
    assert torch.equal(states.physics, world.physics)
    assert torch.equal(states.action, torch.zeros(3, world.action_dim, dtype=torch.float64))


def test_set_physics_starts_the_same_episodes_again(world):
    starts = world.physics
    first = episode(world, 20)
    world.set_physics(starts)
    assert all(map(torch.equal, first, episode(world, 20)))


def test_environments_do_not_depend_on_their_neighbours_or_on_threads(world):
    starts = world.physics
    together = episode(world, 20)
    world.set_physics(starts[[1, 1, 2, 0, 1]])
    generator = torch.Generator().manual_seed(0)
    alone = ControlWorld(world.domain, threads=1)
    alone.set_physics(starts[1:2])
    for expected in together:
        actions = torch.rand((3, world.action_dim), generator=generator) * 2 - 1
        assert torch.equal(alone.step(actions[1:2]).obs[0], expected[1])
        assert torch.equal(world.step(actions[[1, 1, 2, 0, 1]]).obs, expected[[1, 1, 2, 0, 1]])


def test_observe_leaves_the_running_environments_alone(world):
    starts = world.physics
    undisturbed = episode(world, 10)
    world.set_physics(starts)
    half = episode(world, 5)
    world.observe(world.physics)
    generator = torch.Generator().manual_seed(0)
    actions = [torch.rand((3, world.action_dim), generator=generator) * 2 - 1 for _ in range(10)]
    assert all(map(torch.equal, undisturbed, half + [world.step(a).obs for a in actions[5:]]))


def test_observe_gives_what_was_seen(world):
    """Exactly, but for the quadruped's 27 acceleration-stage columns, which the state does not determine."""
    seen = episode(world, 10)[-1]
    again = world.observe(world.physics)
    known = torch.ones(world.layout.obs_dim, dtype=torch.bool)
    if world.name == "quadruped":
        known[[*range(48, 51), *range(54, 78)]] = False
        assert not torch.equal(again[:, ~known], seen[:, ~known])
    assert torch.equal(again[:, known], seen[:, known])
    assert torch.equal(again, world.set_physics(world.physics).obs)


def test_observe_takes_more_rows_than_fit_at_once():
    world = make("quadruped")
    states = world.reset(5, torch.Generator().manual_seed(0))
    repeats = ROWS_AT_ONCE // 5 + 3
    assert states.physics is not None
    rows = states.physics.repeat(repeats, 1)
    assert len(rows) % ROWS_AT_ONCE != 0
    assert torch.equal(world.observe(rows), states.obs.repeat(repeats, 1))


def test_returned_states_do_not_change_later(world):
    states = world.step(torch.ones(3, world.action_dim))
    obs, physics = states.obs.clone(), states.physics.clone()
    episode(world, 3)
    assert torch.equal(states.obs, obs)
    assert torch.equal(states.physics, physics)


@pytest.mark.parametrize(("domain", "task"), [("walker", "run"), ("cheetah", "run"), ("quadruped", "run")])
def test_actions_are_scaled_as_by_dm_controls_wrapper(domain, task):
    env = suite.load(domain, task, task_kwargs={"random": 0})
    scaled = action_scale.Wrapper(env, minimum=-1.0, maximum=1.0)
    world = make(domain)
    assert isinstance(world, ControlWorld)
    world.reset(1, torch.Generator())
    generator = np.random.default_rng(0)
    for action in (np.full(world.action_dim, -1.0), generator.uniform(-1, 1, world.action_dim)):
        scaled.reset()
        scaled.step(action)
        world.step(torch.from_numpy(action)[None])
        np.testing.assert_allclose(world._running().ctrl[0], env.physics.data.ctrl, rtol=0, atol=1e-15)


def test_actions_beyond_the_range_are_clipped(world):
    starts = world.physics
    wild = world.step(torch.full((3, world.action_dim), 7.0))
    world.set_physics(starts)
    full = world.step(torch.ones(3, world.action_dim))
    assert torch.equal(wild.obs, full.obs)
    assert torch.equal(wild.action, full.action)


def test_the_maze_moves_freely_by_its_closed_form():
    """v' = (0.3 v + 0.02·0.1·a) / (0.3 + 0.02), x' = x + 0.02 v', away from walls."""
    world = make("point_mass_maze")
    x = torch.tensor([[-0.2, 0.2], [0.15, -0.15], [-0.1, -0.2]], dtype=torch.float64)
    v = torch.zeros(3, 2, dtype=torch.float64)
    world.set_physics(torch.cat([x, v], dim=1))
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        a = torch.rand((3, 2), generator=generator, dtype=torch.float64) * 2 - 1
        v = (0.3 * v + 0.02 * 0.1 * a) / (0.3 + 0.02)
        x = x + 0.02 * v
        obs = world.step(a).obs
        torch.testing.assert_close(obs, torch.cat([x, v], dim=1), rtol=0, atol=1e-9)


def test_the_maze_has_walls_and_gaps():
    """Pushed right from the top left room: the wall's arm stops a ball near the middle, not in the gap."""
    world = make("pointmass")
    world.set_physics(torch.tensor([[-0.1, 0.1, 0.0, 0.0], [-0.1, 0.25, 0.0, 0.0]], dtype=torch.float64))
    right = torch.tensor([[1.0, 0.0]]).repeat(2, 1)
    for _ in range(300):
        states = world.step(right)
    assert states.obs[0, 0] == pytest.approx(-0.03, abs=1e-3)
    assert states.obs[1, 0] == pytest.approx(0.29, abs=1e-3)


def test_unknown_worlds_and_missing_packages(monkeypatch):
    with pytest.raises(DataError, match=r"no world called 'walkr'; did you mean 'walker'"):
        make("walkr")

    def fail(module: str) -> None:
        raise ModuleNotFoundError("No module named 'mujoco'", name="mujoco")

    monkeypatch.setattr(registry, "import_module", fail)
    monkeypatch.setattr(zol.worlds, "WORLDS", registry.Registry("world", "zol.worlds", zol.worlds.WORLDS.own))
    with pytest.raises(MissingExtra, match=r"the world 'walker' needs mujoco.*pip install -e '\.\[dmc\]'"):
        make("walker")


def test_naming_worlds_does_not_import_a_simulator():
    code = (
        "import sys, zol.worlds; sys.exit(any(m in sys.modules for m in ('mujoco', 'dm_control', 'OpenGL')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_making_a_world_imports_neither_dm_control_nor_opengl_and_writes_nothing(tmp_path):
    code = (
        "import sys; from zol.worlds import make; make('cheetah'); "
        "sys.exit(any(m in sys.modules for m in ('dm_control', 'OpenGL')))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert run.returncode == 0
    assert run.stderr == b""
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_explained(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo logs an unstable simulation into the working directory
    broken = torch.zeros(3, world.action_dim)
    broken[0, 0] = float("nan")
    with pytest.raises(DataError, match=r"expects finite actions of shape \(3, "):
        world.step(torch.zeros(2, world.action_dim))
    with pytest.raises(DataError, match=r"1 numbers that are not finite"):
        world.step(broken)
    with pytest.raises(DataError, match=r"expects simulator states of shape \(n, "):
        world.set_physics(torch.zeros(3, 5))
    with pytest.raises(DataError, match=r"1 of these 3 .* states have NaN"):
        world.observe(world.physics.index_fill(0, torch.tensor(1), float("nan")))
    with pytest.raises(DataError, match=r"at least one"):
        world.reset(0, torch.Generator())
    with pytest.raises(WorldError, match=r"holds no environments yet"):
        ControlWorld(world.domain).step(torch.zeros(3, world.action_dim))
    world.set_physics(world.physics.index_fill(0, torch.tensor(2), 1e9))
    with pytest.raises(WorldError, match=r"environment 2 of .* became unstable"):
        world.step(torch.zeros(3, world.action_dim))
    world.reset(3, torch.Generator())
    world.step(torch.zeros(3, world.action_dim))  # and it recovers
