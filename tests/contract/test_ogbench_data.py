"""OGBench's data: the published format, and our own by its recipes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ogbench_reference import NAMES

from zol.collect.ant_config import AntConfig
from zol.collect.ant_expert import BEND, by_legs, load_expert, motors, own_view, unit_directions
from zol.collect.ant_training import train_expert, walk_test
from zol.collect.navigation import Navigator
from zol.collect.recipes import recipe
from zol.collect.scripted import collect
from zol.common.errors import DataError
from zol.data import Dataset
from zol.data.sources import import_dataset
from zol.data.sources.ogbench import SIZES
from zol.worlds import make
from zol.worlds.ogbench.maze import open_ground

pytestmark = pytest.mark.filterwarnings("ignore")  # the package's, about spaces and old attributes


def published(folder: Path, name: str, episodes: int = 3, rows: int = 6) -> Path:
    """A small file in the exact format of the published ones."""
    obs, act, qpos, qvel, buttons = SIZES[name.rpartition("-")[0]]
    rng, n = np.random.default_rng(0), episodes * rows
    arrays: dict[str, Any] = {
        "observations": rng.normal(size=(n, obs)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, act)).astype(np.float32),
        "terminals": np.tile(np.arange(rows) == rows - 1, episodes),
        "qpos": rng.normal(size=(n, qpos)).astype(np.float32),
        "qvel": rng.normal(size=(n, qvel)).astype(np.float32),
    }
    if buttons:
        arrays["button_states"] = rng.integers(0, 2, (n, buttons))
    path = folder / f"{name}-v0.npz"
    np.savez_compressed(path, **arrays)
    first: dict[str, Any] = {key: values[:rows] for key, values in arrays.items()}
    np.savez_compressed(folder / f"{name}-v0-val.npz", **first)
    return path


@pytest.mark.parametrize("name", ["antmaze-medium-stitch", "puzzle-3x3-play"])
def test_published_files_become_the_transitions_that_the_package_loads(tmp_path: Path, name: str) -> None:
    path = published(tmp_path, name)
    data = import_dataset(f"ogbench/{name}", tmp_path / "set", from_dir=tmp_path)
    load = pytest.importorskip("ogbench.utils").load_dataset
    theirs, batch = load(str(path), add_info=True), data.take(np.arange(len(data)))
    assert np.array_equal(batch.obs.numpy(), theirs["observations"])
    assert np.array_equal(batch.next_obs.numpy(), theirs["next_observations"])
    assert np.array_equal(batch.action.numpy(), theirs["actions"])
    assert not bool(batch.terminated.any())
    stored = [theirs[key] for key in ("qpos", "qvel", "button_states") if key in theirs]
    assert np.array_equal(
        data.episode(0)["physics"][:-1], np.concatenate(stored, axis=1)[:5].astype(np.float32)
    )
    assert data.provenance["world"] == name.rpartition("-")[0]
    assert data.provenance["dataset"] == name
    assert import_dataset(f"ogbench/{name}-val", tmp_path / "val", from_dir=tmp_path).episodes == 1
    few = import_dataset(f"ogbench/{name}", tmp_path / "few", from_dir=tmp_path, episodes=2)
    assert (few.episodes, data.episodes) == (2, 3)
    world = make(name.rpartition("-")[0])
    assert data.columns["physics"].shape[1] == world.reset(1, torch.Generator()).need_physics().shape[1]


def test_wrong_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = published(tmp_path, "cube-single-play")
    path.rename(tmp_path / "cube-double-play-v0.npz")
    with pytest.raises(DataError, match="dataset of another environment"):
        import_dataset("ogbench/cube-double-play", tmp_path / "a", from_dir=tmp_path)
    whole = published(tmp_path, "cube-single-play").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a whole npz file"):
        import_dataset("ogbench/cube-single-play", tmp_path / "b", from_dir=tmp_path)
    with pytest.raises(DataError, match="did you mean 'cube-single-play'"):
        import_dataset("ogbench/cube-singel-play", tmp_path / "c", from_dir=tmp_path)
    with pytest.raises(DataError, match=r"no antmaze-large-navigate-v0\.npz in"):
        import_dataset("ogbench/antmaze-large-navigate", tmp_path / "d", from_dir=tmp_path)
    with pytest.raises(DataError, match="holds data of antmaze-large"):
        import_dataset("ogbench/antmaze-large-navigate", tmp_path / "e", world="cube-single")
    with pytest.raises(DataError, match="nothing proves"):
        import_dataset("ogbench/cube-single-play", tmp_path / "f", cache=tmp_path / "none")
    published(tmp_path, "cube-single-play")
    with pytest.raises(DataError, match="first 9 episodes"):
        import_dataset("ogbench/cube-single-play", tmp_path / "g", from_dir=tmp_path, episodes=9)


def test_a_recipe_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make("pointmaze-medium")
    whole = collect(world, recipe(world, "stitch"), tmp_path / "whole", how="stitch", steps=1000, envs=2)
    script, acted = Navigator(world, "stitch"), 0
    inner = script.act

    def stop(states):
        nonlocal acted
        acted += 1
        if acted == 300:
            raise KeyboardInterrupt
        return inner(states)

    monkeypatch.setattr(script, "act", stop)
    with pytest.raises(KeyboardInterrupt, match="400 steps in 2 episodes are saved"):
        collect(world, script, tmp_path / "cut", how="stitch", steps=1000, envs=2)
    again = collect(world, recipe(world, "stitch"), tmp_path / "cut", how="stitch", steps=1000, envs=2)
    assert again.fingerprint() == whole.fingerprint()
    assert dict(again.provenance["counts"]) == dict(whole.provenance["counts"])
    assert whole.episodes == 5
    assert whole.provenance["counts"]["first_goals"] == 5
    with pytest.raises(DataError, match="was made with seed=0, now 1 is asked for"):
        collect(world, recipe(world, "stitch"), tmp_path / "cut", how="stitch", steps=1000, envs=2, seed=1)


def test_recipes_know_their_worlds() -> None:
    with pytest.raises(DataError, match="walks through a maze"):
        recipe(make("cube-single"), "navigate")
    with pytest.raises(DataError, match="for cubes and buttons"):
        recipe(make("pointmaze-medium"), "play")


@pytest.mark.parametrize(("name", "steps"), [("cube-double", 130), ("puzzle-3x3", 70)])
def test_players_do_what_they_plan(name: str, steps: int) -> None:
    world = make(name)
    script = recipe(world, "play")
    states = world.set_physics(script.begin(3, torch.Generator().manual_seed(0)))
    for _ in range(steps):
        states = world.step(script.act(states))
    counts = script.end(states)
    assert counts["plans"] >= 3
    assert counts["achieved"] >= counts["plans"] - 1


def test_an_expert_sees_the_body_alike_from_four_sides() -> None:
    """A turned body with its legs counted on moves as the body does, seen from the command."""
    world, generator = open_ground(), torch.Generator().manual_seed(0)
    states = world.reset(8, generator)
    for _ in range(15):
        states = world.step(2 * torch.rand(8, 8, generator=generator) - 1)
    direction = unit_directions(8, generator).double()
    action = 2 * torch.rand(8, 8, generator=generator, dtype=torch.float64) - 1
    view, quarters = own_view(states.obs, direction)
    assert len(set(quarters.tolist())) > 1
    assert torch.allclose(by_legs(motors(action, quarters), quarters), action)
    ahead = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(8, 2)
    bend = torch.tensor([[1.0, sign] for sign in BEND], dtype=torch.float64)
    physics = torch.zeros(8, 29, dtype=torch.float64)
    physics[:, 2:7], physics[:, 15:21] = view[:, :5], view[:, 13:19]
    physics[:, 7:15] = (view[:, 5:13].unflatten(-1, (4, 2)) * bend).flatten(1)
    physics[:, 21:29] = (view[:, 19:27].unflatten(-1, (4, 2)) * bend).flatten(1)
    world.set_physics(states.need_physics())
    there, _ = own_view(world.step(motors(action, quarters)).obs, direction)
    turned = world.set_physics(physics)
    assert torch.allclose(own_view(turned.obs, ahead)[0], view, atol=1e-6)
    here, _ = own_view(world.step(motors(action, torch.zeros_like(quarters))).obs, ahead)
    assert torch.allclose(here, there, atol=1e-5)


def test_the_ant_that_comes_with_zol_goes_where_it_is_told() -> None:
    walked = walk_test(load_expert(), 36, torch.Generator().manual_seed(1))
    assert float(walked.followed.float().mean()) >= 0.9, walked.words()


def test_an_experts_training_goes_on(tmp_path: Path) -> None:
    config = AntConfig(steps=128, envs=8, updates=1, batch_size=16, hidden=16, random_steps=32, save_every=64)
    train_expert(tmp_path / "ant", config.updated(steps=64))
    before = load_expert(tmp_path / "ant" / "expert.safetensors").state_dict()
    train_expert(tmp_path / "ant", config)
    after = load_expert(tmp_path / "ant" / "expert.safetensors").state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_every_world_has_published_sizes() -> None:
    assert set(SIZES) == set(NAMES)
    for name, (obs, act, qpos, qvel, buttons) in SIZES.items():
        world = make(name)
        assert (world.layout.obs_dim, world.action_dim) == (obs, act)
        assert world.reset(1, torch.Generator()).need_physics().shape[1] == qpos + qvel + buttons
        assert isinstance(world.tasks, dict)


def test_a_set_names_its_dataset(tmp_path: Path) -> None:
    world = make("pointmaze-large")
    collect(world, recipe(world, "explore"), tmp_path / "set", how="explore", steps=500, envs=1)
    assert Dataset.open(tmp_path / "set").provenance["dataset"] == "pointmaze-large-explore"
