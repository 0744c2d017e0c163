"""OGBench's worlds against the package itself: motion, rewards, success, starts and goals."""

import warnings

import numpy as np
import pytest
import torch
from ogbench_reference import NAMES, package_env, put, random_actions
from scipy import stats

from zol.common.errors import MissingExtra, WorldError
from zol.fields import States
from zol.testing import check_world
from zol.worlds import make
from zol.worlds.dmc.gym import GymView
from zol.worlds.ogbench import package
from zol.worlds.ogbench.maze_map import MAZES
from zol.worlds.ogbench.puzzle import SWITCHES

pytestmark = pytest.mark.filterwarnings("ignore")  # the package's, about spaces and old attributes

# NumPy rounds cosines of arrays and of single numbers differently in the last bit; contacts multiply that.
CLOSE = 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_world_keeps_its_promises(name: str) -> None:
    check_world(make(name), envs=3)


@pytest.mark.parametrize(("task", "name"), list(enumerate(NAMES, start=1)))
def test_two_hundred_random_steps_are_the_packages(task: int, name: str) -> None:
    world, number = make(name), (task - 1) % 5 + 1
    env, own = package_env(name, number), world.tasks[f"task{number}"]
    assert own.starts is not None
    states = world.set_physics(own.starts(1, torch.Generator().manual_seed(task)))
    put(env, world.physics[0])
    for action in random_actions(world, 200, task):
        before, states = states, world.step(torch.from_numpy(action))
        seen, reward, over, _, info = env.step(action[0])
        assert np.abs(seen - states.obs[0].numpy()).max() <= CLOSE
        assert reward == float(own(before)[0])  # 'pre': what the state was worth that the step began in
        assert bool(info["success"]) == over == bool(own.succeeded(before)[0])
        if over:
            break


@pytest.mark.parametrize("name", NAMES)
def test_rewards_of_all_tasks_are_the_packages_relabelling(name: str) -> None:
    relabel = pytest.importorskip("ogbench.relabel_utils").relabel_dataset
    world, env = make(name), package_env(name, 1)
    model = env.unwrapped.model
    physics = _near_goals_and_elsewhere(name)
    states = States(world.observe(physics).float(), world.layout)
    data = {"qpos": physics[:, : model.nq].float().numpy(), "button_states": physics[:, -9:].numpy()}
    for number in range(1, 6):
        env.unwrapped._reward_task_id = number
        relabel(name, env, data)
        task = world.tasks[f"task{number}"]
        assert np.array_equal(data["rewards"], task(states).numpy())
        assert np.array_equal(1 - data["masks"], task.succeeded(states).double().numpy())
        assert torch.equal(world.tasks[f"task{number}_shifted"](states), task(states) + 1)
        assert len(set(data["rewards"].tolist())) > 1  # or this compared nothing


def _near_goals_and_elsewhere(name: str) -> torch.Tensor:
    """States of all tasks' starts, half of them moved towards where some task wants things to be."""
    world, generator = make(name), torch.Generator().manual_seed(3)
    parts = []
    for number in range(1, 6):
        task = world.tasks[f"task{number}"]
        assert task.starts is not None
        physics = task.starts(40, generator)
        chance = torch.rand(20, 1, generator=generator, dtype=torch.float64)
        if "maze" in name:
            assert task.place is not None
            off = torch.randn(20, 2, generator=generator, dtype=torch.float64)
            physics[:20, :2] = torch.tensor(task.place[:2], dtype=torch.float64) + chance * off
        elif "cube" in name:
            assert task.goal is not None
            for k in range(world.layout.obs_dim // 9 - 2):
                place = task.goal[19 + 9 * k : 22 + 9 * k] / 10 + torch.tensor([0.425, 0, 0]).double()
                off = 0.05 * torch.randn(20, 3, generator=generator, dtype=torch.float64)
                physics[:20, 14 + 7 * k : 17 + 7 * k] = place + chance * off
        else:
            assert task.goal is not None
            flips = torch.rand(20, 9, generator=generator) < 0.1
            physics[:20, -9:] = (task.goal[20::4][:9].bool() ^ flips).double()
        parts.append(physics)
    return torch.cat(parts)


@pytest.mark.parametrize("name", NAMES)
def test_starts_and_goals_are_distributed_like_the_packages(name: str) -> None:
    world, env = make(name), package_env(name, 2)
    np.random.seed(0)  # noqa: NPY002 - the package draws the noise of maze starts from here
    theirs = np.stack([env.reset(seed=seed)[0] for seed in range(60)])
    task = world.tasks["task2"]
    assert task.starts is not None
    ours = world.observe(task.starts(300, torch.Generator().manual_seed(0))).numpy()
    for column in range(world.layout.obs_dim):
        if column == 18 and world.action_dim == 5:
            continue  # the force on a finger, which the package leaves over from before the reset
        if ours[:, column].std() < 1e-9:
            assert np.allclose(theirs[:, column], ours[0, column], atol=1e-6), column
        else:
            assert stats.ks_2samp(theirs[:, column], ours[:, column]).pvalue > 1e-5, column
    if "maze" in name:
        assert np.allclose(env.unwrapped.cur_goal_xy, task.place[:2])  # type: ignore[index]


def test_the_gymnasium_view_has_both_timings() -> None:
    early, late = (GymView("pointmaze-medium", "task3", timing=timing) for timing in ("pre", "post"))
    first, _ = early.reset(seed=0)
    late.reset(seed=0)
    goal = early.task.goal
    assert goal is not None
    paid = {"pre": [], "post": []}  # type: ignore[var-annotated]
    for view in (early, late):
        view.world.set_physics(torch.cat([goal, torch.zeros(2)]).unsqueeze(0))
        view._judged = States(torch.from_numpy(first)[None].double(), view.world.layout)
        for _ in range(2):
            _, reward, over, _, info = view.step(np.zeros(2, np.float32))
            paid[view.timing].append((reward, over, info["success"]))
    assert paid["post"] == [(0.0, True, True), (0.0, True, True)]
    assert paid["pre"] == [(-1.0, False, False), (0.0, True, True)]


def test_ways_through_the_mazes_are_shortest() -> None:
    for maze in MAZES.values():
        count = len(maze.free)
        assert (maze.distances >= 0).all()
        assert (maze.distances == maze.distances.T).all()
        here, goal = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
        onwards = maze.distances[maze.next_cell[here, goal], goal]
        assert (onwards == np.maximum(maze.distances - 1, 0)).all()
        assert (maze.cell_of(maze.centres + 1.9) == np.arange(count)).all()


def test_a_press_switches_a_cross() -> None:
    assert SWITCHES[4].reshape(3, 3).tolist() == [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    assert SWITCHES[0].reshape(3, 3).tolist() == [[1, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_what_is_missing_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    package.package_folder.cache_clear()
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="ogbench"):
        package.package_folder()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "4.0.0")
    with pytest.raises(WorldError, match=r"mujoco 4\.0\.0 is installed.*pip install"):
        package.check_mujoco()
    monkeypatch.undo()
    package.package_folder.cache_clear()
    with pytest.raises(WorldError, match="has no locomaze/assets/elephant"):
        package.model_file("locomaze/assets/elephant.xml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert package.model_file("locomaze/assets/ant.xml").is_file()
