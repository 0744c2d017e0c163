"""Small whole files of every format that zol reads, to be damaged."""

import io
import json
import math
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_files
import h5py
import numpy as np
import pytest
import torch

from zol import checkpoint
from zol.bench.store import Key, Result, Store, canonical
from zol.common.tensors import write_tensors
from zol.data import Dataset
from zol.imagination.dynamics import Dynamics, DynamicsConfig
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.train.run_folder import RunFolder

RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "obs": RNG.standard_normal((20, 3)),
    "action": RNG.uniform(-1, 1, (20, 2)),
    "next_obs": RNG.standard_normal((20, 3)),
    "terminated": np.zeros(20),
}
EPISODE: dict[str, Any] = {
    "observation": RNG.standard_normal((6, 4)),
    "action": RNG.uniform(-1, 1, (6, 2)),
    "discount": np.ones((6, 1)),
    "reward": np.ones((6, 1)),
    "physics": RNG.standard_normal((6, 4)),
}
BUFFER = {name: RNG.uniform(-1, 1, (10, 3)) for name in ("action", "next_qpos", "next_qvel")}
BUFFER["next_observation"] = RNG.standard_normal((10, 4))


def native(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    model = fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=4, hidden=8, backward_hidden=8), generator)
    obs = torch.randn(6, 3, generator=generator)
    sample = {"obs": obs, "starts": obs[:2], "action": torch.zeros(6, 2), "physics": obs.double()}
    checkpoint.save(model, folder, prompt=sample, facts={"world": "donut", "metrics": [{"loss": 1.0}]})
    dynamics = Dynamics(DynamicsConfig(obs_dim=3, action_dim=2, hidden=4, layers=1, members=2), generator)
    states = torch.zeros(2, 4, 3)
    LearnedWorld(dynamics, obs, states, torch.zeros(2, 3, 2)).save(folder / checkpoint.DYNAMICS)


def first_format(folder: Path) -> None:
    """As zol wrote checkpoints before architectures were written out."""
    native(folder)
    facts = json.loads((folder / "config.json").read_text())
    config = FBConfig(obs_dim=3, action_dim=2, z_dim=4, hidden=8, backward_hidden=8).model_dump(mode="json")
    old = {"schema": 1, "kind": "fb", "config": config, "weights": facts["weights"], "world": "donut"}
    (folder / "config.json").write_text(json.dumps(old | {"measure": facts["network"]["measure"]}))


def foreign(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        config, stored = getattr(foreign_files, name)()
        kwargs = foreign_files.BFM_KWARGS if name == "bfm_zero" else foreign_files.KWARGS
        foreign_files.write(folder, config, stored, kwargs)

    return write


def latent(folder: Path) -> None:
    model = fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=4, hidden=8))
    found = Latent(torch.ones(4), identity(model), "t", "zol", estimate=0.5, diagnostics={"x": 1.0})
    found.save(folder / "z.json")


def state(folder: Path) -> None:
    tensors = {"model.x": torch.ones(3), "generator": torch.Generator().get_state()}
    write_tensors(
        folder / "training.safetensors", tensors, {"step": "3", "settings": '{"steps": 4, "tag": "x"}'}
    )


def dataset(folder: Path) -> None:
    shutil.rmtree(folder)
    facts = {"world": "walker", "coverage": {"scale": [1.0, 1.0, 1.0]}}
    Dataset.from_arrays(**ARRAYS, resets=ARRAYS["obs"], provenance=facts).save(folder)


def store(folder: Path) -> None:
    """A result store of four cells."""
    cells = [
        Result(
            Key("exorl", "walker", task, method, canonical({"revision": 1, "steps": 200}), "abc", 0, 1),
            RNG.uniform(0, 1, 3),
            estimate=0.5,
            diagnostics={"ess": 0.5},
            chosen={"steps": 200, "rate": {"first": 0.1}},
            facts={"command": "zol bench", "versions": {"torch": "2"}},
        )
        for task in ("walk", "run")
        for method in ("fb", "zol")
    ]
    assert Store(folder / "s.sqlite").add(cells) == len(cells)


def metrics(folder: Path) -> None:
    """What a run of a few steps logs."""
    run = RunFolder(folder)
    for step in range(0, 50, 10):
        run.log({"step": step, "loss": 1.0 / (step + 1), "rank": math.nan})
        run.log({"step": step, "return/mean": 1.5, "return/walk": 1.5, "random/mean": 1.0})
    (folder / "run.json").write_text(json.dumps({"shown": {"loss": "loss"}, "sessions": [{"from_step": 0}]}))


def minari_set(folder: Path) -> None:
    """The files of a Minari dataset, written by Minari."""
    import minari
    from gymnasium.spaces import Box, Dict
    from minari.data_collector import EpisodeBuffer

    observed = Dict([("goal", Box(-9, 9, (2,), np.float32)), ("here", Box(-9, 9, (1,), np.float32))])
    buffers = [
        EpisodeBuffer(
            observations={"goal": RNG.uniform(-1, 1, (n + 1, 2)), "here": RNG.uniform(-1, 1, (n + 1, 1))},
            actions=RNG.uniform(-1, 1, (n, 2)).astype("f4"),
            rewards=[0.0] * n,
            terminations=[False] * n,
            truncations=[False] * (n - 1) + [True],
            infos={"energy": np.arange(n + 1.0)},
        )
        for n in (2, 3)
    ]
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "root"))
        minari.create_dataset_from_buffers(
            "toy-v0", buffers, observation_space=observed, action_space=Box(-1, 1, (2,), np.float32)
        )
    for file in (folder / "root" / "toy-v0" / "data").iterdir():
        file.rename(folder / file.name)
    shutil.rmtree(folder / "root")


def npz_bytes(arrays: dict[str, Any], *, small: bool = False) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if small else np.savez)(file, **arrays)
    return file.getvalue()


def exorl_bytes(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number, episode in enumerate((EPISODE, arrays)):
            archive.writestr(f"buffer/episode_{number}_5.npz", npz_bytes(episode))
    return file.getvalue()


def hdf5_bytes(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as stored:
        for name, values in arrays.items():
            kept = {"U": bytes, "M": np.int64}.get(values.dtype.kind)  # HDF5 has neither
            data = values if kept is None else values.astype(kept)
            packed = "gzip" if data.dtype.kind in "biuf" and data.ndim and data.size else None
            stored.create_dataset(name, data=data, compression=packed)
    return file.getvalue()
