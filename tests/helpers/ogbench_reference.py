"""OGBench's own environments, put into the states that our worlds are in."""

from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from zol.worlds.base import World

NAMES = (
    "pointmaze-medium",
    "pointmaze-large",
    "antmaze-medium",
    "antmaze-large",
    "cube-single",
    "cube-double",
    "puzzle-3x3",
)


def package_env(name: str, task: int) -> Any:
    """The package's single-task environment, reset once."""
    ogbench = pytest.importorskip("ogbench", reason="the package that our worlds are compared with")
    how = "navigate" if "maze" in name else "play"
    env = ogbench.make_env_and_datasets(f"{name}-{how}-singletask-task{task}-v0", env_only=True)
    env.reset(seed=task)
    return env


def put(env: Any, physics: torch.Tensor) -> None:
    """Put the package's environment into a state of ours, as ``set_physics`` does it: without actuation."""
    inner = env.unwrapped
    model, data = inner.model, inner.data
    targets = data.mocap_pos.copy()
    mujoco.mj_resetData(model, data)
    data.mocap_pos[:] = targets
    data.qpos[:] = physics[: model.nq].numpy()
    data.qvel[:] = physics[model.nq : model.nq + model.nv].numpy()
    if hasattr(inner, "_cur_button_states"):
        inner._cur_button_states[:] = physics[model.nq + model.nv :].numpy()
    flags = model.opt.disableflags
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
    mujoco.mj_forward(model, data)
    model.opt.disableflags = flags
    data.cfrc_ext[:] = 0.0


def random_actions(world: World, steps: int, seed: int) -> Any:
    """Random actions ``[steps, 1, A]``; an arm goes down now and then, where there is something to touch."""
    actions = np.random.default_rng(seed).uniform(-1, 1, (steps, 1, world.action_dim))
    if world.action_dim == 5:
        actions[np.arange(steps) % 40 < 25, :, 2] = -1.0
    return actions
