"""One environment of a control world behind the gymnasium interface, for code that already speaks it."""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from zol.common.errors import DataError, MissingExtra
from zol.fields import States
from zol.worlds import find_task, make
from zol.worlds.base import Image
from zol.worlds.dmc.render import Renderer
from zol.worlds.dmc.world import ControlWorld

try:
    import gymnasium
except ModuleNotFoundError as missing:
    raise MissingExtra("gymnasium", "dmc", "the gymnasium view of a world") from missing

Observation = NDArray[np.float32]


class GymView(gymnasium.Env[Observation, Observation]):
    """``GymView("walker", "run")``: float32 observations, actions in [−1, 1], truncated after 1000 steps.

    An episode terminates in a terminal state of the world, or at success if the task ends there.
    ``info["physics"]`` is the simulator state, for ``set_physics`` and rendering; ``info["success"]`` says
    whether the task is solved, if it has a test of that.

    With ``timing="pre"`` reward, success and its end are those of the state that a step *began* in, as in
    OGBench's single-task environments; a start state counts then, and the last state of an episode does not.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self, world: str, task: str, render_mode: str | None = None, timing: Literal["post", "pre"] = "post"
    ) -> None:
        if timing not in ("post", "pre"):
            raise DataError(f"timing is 'post' or 'pre', got '{timing}'")
        if render_mode not in (None, "rgb_array"):
            raise DataError(f"render_mode is None or 'rgb_array', got '{render_mode}'")
        made = make(world)
        if not isinstance(made, ControlWorld):
            raise DataError(f"GymView shows control worlds, and '{world}' is none")
        self.world = made
        self.task = find_task(made, task)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1 / made.domain.control_timestep)}
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (made.layout.obs_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (made.action_dim,), np.float32)
        self.timing = timing
        self._steps = 0
        self._judged: States | None = None  # what the next step is paid for, with timing="pre"
        self._renderer: Renderer | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A fresh start state, determined by the seed."""
        super().reset(seed=seed)
        generator = torch.Generator().manual_seed(int(self.np_random.integers(2**63 - 1)))
        states = self.world.reset(1, generator)
        if self.task.starts is not None:
            states = self.world.set_physics(self.task.starts(1, generator))
        self._steps, self._judged = 0, states
        return states.obs[0].float().numpy(), {"physics": self.world.physics[0].numpy()}

    def step(self, action: Observation) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One control step; the reward is that of the state it leads to, unless ``timing`` says otherwise."""
        states = self.world.step(torch.as_tensor(action)[None])
        self._steps += 1
        truncated = self._steps >= self.world.episode_length
        terminated = states.terminated is not None and bool(states.terminated[0])
        info: dict[str, Any] = {"physics": self.world.physics[0].numpy()}
        judged = states if self.timing == "post" or self._judged is None else self._judged
        self._judged = states
        if self.task.success is not None:
            info["success"] = bool(self.task.succeeded(judged)[0])
            terminated = terminated or (self.task.ends_at_success and info["success"])
        return states.obs[0].float().numpy(), float(self.task(judged)[0]), terminated, truncated, info

    def render(self) -> Image | None:
        """The present state as a picture, when made with ``render_mode="rgb_array"``."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = Renderer(self.world)
        return self._renderer.frame(self.world.physics[0])

    def close(self) -> None:
        """Give the renderer back."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
