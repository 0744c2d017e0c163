"""Episodes in a user's own gymnasium environment, one after another, for whatever acts on observations.

    environment = GymEnvironment("Pendulum-v1")               # an id that gymnasium knows, or an environment
    for episode in environment.episodes(skill.act, count=20, seed=0):
        print(episode.rewards.sum())

Policies act in [−1, 1], as everywhere in zol; actions are stretched to the limits of the environment's action
space here. Episode k begins with ``env.reset(seed=seed + k)``: all policies meet the same start states.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from zol.common.errors import DataError, WorldError
from zol.common.extras import require
from zol.worlds.base import Image

Actor = Callable[[NDArray[np.float32]], NDArray[Any]]
"""An action ``[A]`` in [−1, 1] for an observation ``[D]``."""

UNLIMITED = 1000  # steps after which an episode is cut where the environment itself has no limit


@dataclass(frozen=True)
class PlayedEpisode:
    """What happened in T steps; ``obs`` are the states that they led to."""

    obs: NDArray[np.float32]  # [T, D]
    action: NDArray[np.float32]  # in [−1, 1], [T, A]
    rewards: NDArray[np.float64]  # the environment's own, [T]
    terminated: bool


class GymEnvironment:
    """A gymnasium environment with flat observations and continuous actions, as something to play in."""

    def __init__(self, env: Any, *, pictures: bool = False) -> None:
        """``env`` is an id or an environment; with ``pictures`` one that is made from an id can be filmed."""
        gymnasium = require("gymnasium", "dmc", "playing in a gymnasium environment")
        self._made = isinstance(env, str)
        if self._made:
            try:
                env = gymnasium.make(env, **({"render_mode": "rgb_array"} if pictures else {}))
            except (gymnasium.error.Error, ImportError) as error:
                raise WorldError(f"gymnasium cannot make '{env}': {error}") from error
        if not isinstance(env, gymnasium.Env):
            raise DataError(
                f"env is a {type(env).__name__}: expected a gymnasium environment or its id, such as "
                "'Pendulum-v1'"
            )
        spaces, space = gymnasium.spaces, env.action_space
        if not isinstance(env.observation_space, spaces.Box) or not isinstance(space, spaces.Box):
            raise DataError(
                f"{_name(env)} observes {env.observation_space} and acts in {space}: zol plays in "
                "environments whose spaces are both boxes; gymnasium.wrappers may make them so"
            )
        self.env, self.name = env, _name(env)
        self.obs_dim = int(np.prod(env.observation_space.shape))
        self.action_dim = int(np.prod(space.shape))
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        self._low = np.where(bounded, space.low, -1.0)
        self._high = np.where(bounded, space.high, 1.0)
        limit = None if env.spec is None else env.spec.max_episode_steps
        self.episode_length = int(limit or UNLIMITED)

    def require_sizes(self, obs_dim: int, action_dim: int) -> None:
        """Stop if a policy with these observations and actions is made for something else."""
        if (self.obs_dim, self.action_dim) != (obs_dim, action_dim):
            raise DataError(
                f"{self.name} has {self.obs_dim} observation and {self.action_dim} action columns, the model "
                f"{obs_dim} and {action_dim}: was it trained on this environment's data?"
            )

    def episodes(
        self, act: Actor, count: int, *, seed: int, steps: int | None = None
    ) -> Iterator[PlayedEpisode]:
        """Play ``count`` episodes; ``steps`` cuts them earlier than the environment does."""
        for k in range(count):
            self._obs = self._reset(seed + k)
            played = list(self._played(act, steps))
            obs, action, rewards, terminated = zip(*played, strict=True)
            yield PlayedEpisode(np.stack(obs), np.stack(action), np.array(rewards), bool(terminated[-1]))

    def pictures(self, act: Actor, *, seed: int, steps: int | None = None) -> Iterator[Image]:
        """The pictures of one episode, beginning with the start state."""
        if self.env.render_mode != "rgb_array":
            raise WorldError(
                f"{self.name} was made with render_mode={self.env.render_mode!r}, and a film needs pictures: "
                "make it with render_mode='rgb_array'"
            )
        self._obs = self._reset(seed)
        yield self._picture()
        for _ in self._played(act, steps):
            yield self._picture()

    @property
    def pictures_per_second(self) -> float:
        """How fast a film of it runs in real time, as far as the environment says so."""
        return float(self.env.metadata.get("render_fps") or 30)

    def random_actor(self, seed: int) -> Actor:
        """Uniform actions."""
        rng = np.random.default_rng(seed)
        return lambda _: rng.uniform(-1.0, 1.0, self.action_dim)

    def _played(
        self, act: Actor, steps: int | None
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32], float, bool]]:
        for _ in range(min(steps or self.episode_length, self.episode_length)):
            action = np.clip(act(self._obs), -1.0, 1.0).astype(np.float32)
            space = self.env.action_space
            stretched = self._low + (action.reshape(space.shape) + 1) / 2 * (self._high - self._low)
            obs, reward, terminated, truncated, _ = self.env.step(stretched.astype(space.dtype))
            self._obs = _flat(obs)
            yield self._obs, action, float(reward), bool(terminated)
            if terminated or truncated:
                return

    def _reset(self, seed: int) -> NDArray[np.float32]:
        return _flat(self.env.reset(seed=seed)[0])

    def _picture(self) -> Image:
        try:
            picture = np.asarray(self.env.render())
        except ImportError as error:
            raise WorldError(f"{self.name} cannot draw itself here: {error}") from error
        height, width = (side // 2 * 2 for side in picture.shape[:2])  # videos have even sides
        return picture[:height, :width, :3].astype(np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made:  # one that was given is not ours to close
            self.env.close()


def _flat(obs: Any) -> NDArray[np.float32]:
    return np.asarray(obs, dtype=np.float32).reshape(-1)


def _name(env: Any) -> str:
    return str(env.spec.id) if env.spec is not None else type(env.unwrapped).__name__
