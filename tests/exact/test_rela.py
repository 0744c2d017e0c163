"""ReLA's parts: the gradient's path, targets at the end of time, separate tasks, sources of batches."""

from typing import Any

import pytest
import torch

from zol.adapt import rela
from zol.adapt.critic import FrozenCritic
from zol.adapt.rela import ReLA, ReLAConfig, rela_search
from zol.adapt.replay import Replay, Steps
from zol.collect.donut import collect
from zol.common.config import ConfigError
from zol.evidence import Evidence
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.worlds.donut import Donut

TASKS = ("square", "cross")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def fb() -> Network:
    config = FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=0.9, hidden=32, backward_hidden=32)
    return fb_network(config, generator(4)).double()


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    world = Donut()
    states = world.reset(400, generator(5))
    found = Evidence.label(states, [world.tasks[name] for name in TASKS], states.obs[:10])
    return Evidence(found.tasks, found.obs.double(), found.rewards.double(), found.starts.double())


def random_steps(n: int = 40, seed: int = 6) -> Steps:
    obs, action, reached = (
        torch.randn(2, n, 2, generator=generator(seed + k), dtype=torch.float64) for k in range(3)
    )
    unseen = torch.randn(2, n, generator=generator(seed + 3), dtype=torch.float64)
    return Steps(obs, action, reached, unseen, torch.zeros(2, n, dtype=torch.bool))


def learner(fb: Network, evidence: Evidence, **settings: float) -> ReLA:
    """A ReLA whose residual critics are no longer zero."""
    rates: dict[str, Any] = {"learning_rate": 0.05, "critic_learning_rate": 0.01}
    config = ReLAConfig(**rates | settings)
    made = ReLA(FrozenCritic.of(fb, evidence), evidence.prompt(fb), evidence.obs, config, generator(7))
    with torch.no_grad():
        for net in (made.residual, made.target):
            for k, parameter in enumerate(net.parameters()):
                noise = torch.randn(parameter.shape, generator=generator(k), dtype=torch.float64)
                parameter.add_(0.3 * noise)
    return made


def test_the_first_steps_follow_the_frozen_value_alone(fb: Network, evidence: Evidence) -> None:
    made = ReLA(FrozenCritic.of(fb, evidence), evidence.prompt(fb), evidence.obs, ReLAConfig(), generator(7))
    steps = random_steps()
    assert not made.residual(steps.obs, steps.action).any()


@pytest.mark.parametrize("part", ["both", "frozen", "residual"])
def test_the_gradient_passes_through_the_actor_into_both_critics(
    fb: Network, evidence: Evidence, part: str
) -> None:
    """Public code acts without gradients, so that z hears of neither the actor nor the residual."""
    made, obs = learner(fb, evidence), random_steps().obs
    if part == "frozen":
        for parameter in made.residual.parameters():
            parameter.data.zero_()
    elif part == "residual":
        made.base.moment.zero_()
    (gradient,) = torch.autograd.grad(made.value(obs).mean(-1).sum(), made.z)

    def value(z: torch.Tensor) -> torch.Tensor:
        action = fb.act(obs, z.unsqueeze(1))
        base = made.base.value(obs, made.z.detach().unsqueeze(1), action).mean(0)
        return (base + made.residual(obs, action).amin(0)).mean(-1).sum()

    step, at, numeric = 1e-6, made.z.detach(), torch.zeros_like(made.z)
    with torch.no_grad():
        for t in range(2):
            for i in range(8):
                e = torch.zeros_like(at)
                e[t, i] = step
                numeric[t, i] = (value(at + e) - value(at - e)) / (2 * step)
    torch.testing.assert_close(gradient, numeric, rtol=1e-5, atol=1e-8)
    assert bool((gradient.norm(dim=-1) > 1e-4).all())


def test_targets_end_where_the_world_ends_and_nowhere_else(fb: Network, evidence: Evidence) -> None:
    made, steps = learner(fb, evidence), random_steps()
    steps.terminated[:, ::2] = True
    y = made.target_values(steps)
    action = fb.act(steps.next_obs, made.z.unsqueeze(1)).detach()
    following = made.target(steps.next_obs, action).amin(0)
    torch.testing.assert_close(y[:, ::2], steps.unseen[:, ::2])
    torch.testing.assert_close(y[:, 1::2], (steps.unseen + 0.9 * following)[:, 1::2])


def test_tasks_do_not_touch_each_other(fb: Network, evidence: Evidence) -> None:
    one, other, steps, changed = learner(fb, evidence), learner(fb, evidence), random_steps(), random_steps()
    changed.unseen[1] += 5.0
    changed.obs[1] *= 2.0
    for _ in range(3):
        one.update(steps)
        other.update(changed)
    torch.testing.assert_close(one.z[0], other.z[0], rtol=0, atol=0)
    assert not torch.equal(one.z[1], other.z[1])
    together = [m.residual(steps.obs, steps.action).detach() for m in (one, other)]
    torch.testing.assert_close(together[0][:, 0], together[1][:, 0], rtol=0, atol=0)
    assert not torch.equal(together[0][:, 1], together[1][:, 1])


def test_the_buffer_keeps_the_latest_steps() -> None:
    replay = Replay(5)
    for t in range(7):
        at = torch.full((2, 1, 1), float(t))
        replay.add(Steps(at, at, at, at[..., 0], torch.zeros(2, 1, dtype=torch.bool)))
    drawn = replay.sample(200, generator())
    assert len(replay) == 5
    assert sorted(set(drawn.unseen.flatten().tolist())) == [2.0, 3.0, 4.0, 5.0, 6.0]


def test_half_of_every_batch_is_offline_if_data_are_given(
    fb: Network, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public code learns from its own buffer alone."""
    world, batches = Donut(), list[Steps]()

    def update(self: ReLA, batch: Steps) -> torch.Tensor:
        batches.append(batch)
        return torch.zeros(2)

    monkeypatch.setattr(ReLA, "update", update)
    config = ReLAConfig(environment_steps=30, warmup=10, batch_size=10, environments=3)
    tasks = [world.tasks[name] for name in TASKS]
    data = collect(200, generator(1))
    arguments = (fb, evidence, evidence.prompt(fb), world, tasks, config)
    found = rela_search(*arguments, generator=generator(2), data=data)
    known = {tuple(row) for row in torch.as_tensor(data.transitions().obs).double().tolist()}
    offline = [sum(tuple(row) in known for row in b.obs[0].tolist()) for b in batches]
    assert set(offline) == {5}
    assert all(b.obs.shape == (2, 10, 2) for b in batches)
    # 30 steps, of which 10 warm up; the first round of 3 that passes them is the fourth.
    assert len(batches) == 30 - 9
    assert found.diagnostics["environment_steps"].tolist() == [[30.0, 30.0]]
    batches.clear()
    rela_search(*arguments, generator=generator(2))
    assert not any(tuple(row) in known for b in batches for row in b.obs[0].tolist())


def test_networks_stay_frozen_and_the_same_seed_gives_the_same_latents(
    fb: Network, evidence: Evidence
) -> None:
    world, before = Donut(), {name: value.clone() for name, value in fb.state_dict().items()}
    config = ReLAConfig(environment_steps=24, warmup=4, batch_size=8, environments=2, learning_rate=0.05)
    tasks = {name: world.tasks[name] for name in TASKS}
    start = evidence.prompt(fb)
    one, two = (rela_search(fb, evidence, start, world, tasks, config, generator=generator(2)) for _ in "12")
    assert torch.equal(one.z, two.z)
    assert bool((one.distance > 0).all())
    torch.testing.assert_close(one.z, fb.project(one.z))
    assert one.trace["reward"].shape == (12, 1, 2)
    assert all(torch.equal(before[name], value) for name, value in fb.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in fb.parameters())


def test_mistakes_are_explained(fb: Network, evidence: Evidence) -> None:
    world = Donut()
    tasks = [world.tasks[name] for name in TASKS]
    for settings in ({"environment_steps": 100}, {"environment_steps": 10_001, "environments": 2}):
        with pytest.raises(ConfigError, match="multiple of the environments, and larger than the warm-up"):
            rela.rela_search(
                fb, evidence, evidence.prompt(fb), world, tasks, ReLAConfig(**settings), generator=generator()
            )
