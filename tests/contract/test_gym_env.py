"""Skills in a user's own gymnasium environment: what they earn there, films of it, and what does not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from zol.checkpoint import Checkpoint, description
from zol.common.errors import DataError, WorldError, ZolError
from zol.models.fb import FBConfig, fb_network
from zol.session import Agent, Skill
from zol.worlds.gym_env import GymEnvironment


class Cart(gymnasium.Env[Any, Any]):
    """A cart on a rail: the force is in [−2, 4], episodes end at the right buffer."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float64)
    action_space = gymnasium.spaces.Box(np.float32(-2.0), np.float32(4.0), (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.forces: list[float] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1)
        return np.array([self.x, 0.0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        self.forces.append(float(action[0]))
        self.x += 0.1 * float(action[0])
        return np.array([self.x, float(action[0])]), -abs(self.x), self.x > 2, False, {}

    def render(self) -> Any:
        picture = np.zeros((33, 64, 3), np.uint8)
        picture[:, int(np.clip(8 * self.x + 32, 0, 63))] = 255
        return picture


def agent_for(obs_dim: int, action_dim: int) -> Agent:
    model = fb_network(FBConfig(obs_dim=obs_dim, action_dim=action_dim, z_dim=4, hidden=8))
    generator = torch.Generator().manual_seed(1)
    states = {name: torch.randn(64, obs_dim, generator=generator) for name in ("obs", "starts")}
    return Agent(Checkpoint(model.freeze(), description(model), states))


@pytest.fixture
def agent() -> Agent:
    return agent_for(2, 1)


@pytest.fixture
def skill(agent: Agent) -> Skill:
    return agent.adapt(lambda s: s["obs"][:, 0] > 0)


def always(action: float) -> Callable[[Any], Any]:
    return lambda _: np.array([action])


def test_actions_are_stretched_to_the_limits_of_the_environment() -> None:
    env = Cart()
    for action, force in ((-1.0, -2.0), (0.0, 1.0), (1.0, 4.0), (7.0, 4.0)):  # beyond the limits is clipped
        (played,) = GymEnvironment(env).episodes(always(action), 1, seed=0, steps=3)
        assert set(env.forces) == {force}
        assert float(played.action.max()) == min(action, 1.0)
        env.forces.clear()


def test_returns_are_those_of_the_obvious_loop(agent: Agent, skill: Skill) -> None:
    tested = agent.evaluate(skill, episodes=4, env=Cart(), seed=3, steps=30)
    for k in range(4):
        env, earned, wanted = Cart(), 0.0, 0.0
        obs, _ = env.reset(seed=3 + k)
        for _ in range(30):
            obs, reward, over, _, _ = env.step((-2 + 6 * (skill.act(obs) + 1) / 2).astype(np.float32))
            earned, wanted = earned + reward, wanted + float(obs[0] > 0)
            if over:
                break
        np.testing.assert_allclose(tested.returns[0, k], earned, rtol=1e-5)
        assert tested.wanted is not None
        assert tested.wanted[0, k] == wanted
    assert tested.steps == 30
    text = str(tested)
    assert "4 episodes of 30 steps in Cart, whose own reward counts" in text
    assert "of the reward asked for" in text


def test_all_skills_and_random_actions_begin_alike(agent: Agent, skill: Skill) -> None:
    both = agent.evaluate([skill, skill], episodes=3, env=Cart(), steps=20)
    np.testing.assert_array_equal(both.returns[0], both.returns[1])
    np.testing.assert_array_equal(both.random[0], both.random[1])
    again = agent.evaluate(skill, episodes=3, env=Cart(), steps=20)
    np.testing.assert_array_equal(both.returns[0], again.returns[0])
    assert len(set(both.returns[0])) == 3


def test_a_skill_without_a_reward_is_scored_by_the_environment_alone(agent: Agent, skill: Skill) -> None:
    tested = agent.evaluate(Skill(agent.model, skill.latent), episodes=2, env=Cart(), steps=5)
    assert np.isfinite(tested.returns).all()
    assert "asked for" not in str(tested)


def test_by_name_with_the_environments_own_time_limit() -> None:
    agent = agent_for(3, 1)
    tested = agent.evaluate(agent.adapt(lambda s: s["obs"][:, 0]), episodes=1, env="Pendulum-v1")
    assert tested.world == "Pendulum-v1"
    assert tested.steps == 200
    assert -2000 < tested.random[0, 0] < -300


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        ("Pendulm-v1", WorldError, "Did you mean: `Pendulum`"),
        ("Pendulum-v1", DataError, "Pendulum-v1 has 3 observation and 1 action columns, the model 2 and 1"),
        ("CartPole-v1", DataError, "both boxes"),
        (3, DataError, "env is a int"),
    ],
)
def test_what_does_not_fit_is_one_sentence(agent: Agent, skill: Skill, env, error, message: str) -> None:
    with pytest.raises(error, match=message):
        agent.evaluate(skill, env=env)
    with pytest.raises(ZolError):
        agent.film(skill, "never", env=env)


def test_a_film_has_every_step_and_even_sides(agent: Agent, skill: Skill, tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    (path,) = agent.film(skill, tmp_path / "films", env=Cart("rgb_array"), steps=10)
    assert path == tmp_path / "films" / "reward.mp4"
    assert ffmpeg.count_frames_and_secs(str(path)) == (11, pytest.approx(11 / 20))
    with pytest.raises(WorldError, match="render_mode='rgb_array'"):
        agent.film(skill, tmp_path / "films", env=Cart())


def test_on_the_command_line(tmp_path: Path, zol_command) -> None:
    agent_for(3, 1).save(tmp_path / "pendulum")
    (tmp_path / "mine.py").write_text("def up(s): return s['obs'][..., 0]")
    words = ["adapt", str(tmp_path / "pendulum"), "--reward", f"{tmp_path / 'mine.py'}:up", "--episodes", "1"]
    code, out, _ = zol_command(*words, "--env", "Pendulum-v1")
    assert code == 0
    assert "return of 1" in out
    code, _, err = zol_command(*words, "--env", "MountainCarContinuous-v0")
    assert code == 2
    assert "has 2 observation and 1 action columns, the model 3 and 1" in err
    code, _, err = zol_command(*words)
    assert code == 2
    assert "--env Pendulum-v1" in err
