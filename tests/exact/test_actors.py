"""Actor losses against slow computations row by row, and what flows do at training and at test time."""

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from present import present

from zol.collect.donut import collect
from zol.common.config import ConfigError
from zol.common.errors import CheckpointError, DataError
from zol.data import Batch
from zol.models import MODELS
from zol.models.actors import require_trainable
from zol.models.base import sampled_policy
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.learner import NetworkLearner
from zol.session import Agent
from zol.train import pretrain

N, O, A, D = 12, 5, 3, 6
SMALL: dict[str, Any] = {"obs_dim": O, "action_dim": A, "z_dim": D, "hidden": 8, "backward_hidden": 8}
FLOW: dict[str, Any] = {"actor": "flow", "bc": 0.7, "flow_hidden": 8, "flow_layers": 2, "flow_steps": 4}


def batch(seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)

    def draw(columns: int) -> torch.Tensor:
        return torch.randn(N, columns, generator=g, dtype=torch.float64)

    return Batch(draw(O), draw(A).tanh(), draw(O), torch.zeros(N, dtype=torch.bool))


def learner_of(**settings: Any) -> FBLearner:
    config = FBConfig(**SMALL | settings)
    return FBLearner(fb_network(config, torch.Generator().manual_seed(1)).double(), config)


def step(learner: NetworkLearner, rows: Batch, z: torch.Tensor) -> dict[str, float]:
    """The actor's step alone."""
    terms = learner.update_actor(learner.view(rows.obs), z, torch.Generator().manual_seed(3), rows.action)
    return {name: float(value) for name, value in terms.items()}


def latents() -> torch.Tensor:
    z = torch.randn(N, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return z * D**0.5 / z.norm(dim=-1, keepdim=True)


def values(model: Any, obs: torch.Tensor, z: torch.Tensor, action: torch.Tensor) -> list[list[torch.Tensor]]:
    """Q of every row and member, one at a time."""
    return [[member @ z[i] for member in model(obs[i], z[i], action[i])] for i in range(N)]


def drawn(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """What the update draws, in its order; a pair (n, 1) is uniform, all others are normal."""
    g = torch.Generator().manual_seed(3)
    found = [(torch.rand if s[-1] == 1 else torch.randn)(*s, generator=g) for s in shapes]
    return [x.double() for x in found]


def pessimistic(q: list[torch.Tensor], penalty: float) -> torch.Tensor:
    return (q[0] + q[1]) / 2 - penalty * (q[0] - q[1]).abs()


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_behaviour_cloning_of_a_plain_actor(penalty: float) -> None:
    learner, rows, z = learner_of(bc=0.7, actor_pessimism=penalty), batch(), latents()
    model = copy.deepcopy(learner.model).requires_grad_(True)
    (noise,) = drawn((N, A))
    mean = torch.stack([model.act(rows.obs[i], z[i]) for i in range(N)])
    action = mean + (0.2 * noise).clamp(-0.3, 0.3)
    inside = action.detach().clamp(-1 + 1e-6, 1 - 1e-6)
    action = action + (inside - action.detach())
    Q = values(model, rows.obs, z, action)
    size = float(sum(abs(float(q.detach())) for row in Q for q in row) / (2 * N))
    climb = sum((pessimistic(row, penalty) for row in Q), start=torch.zeros(())) / N
    error = sum(
        float((action.detach()[i, k] - rows.action[i, k]) ** 2) for i in range(N) for k in range(A)
    ) / (N * A)
    loss = -climb / size + 0.7 * (action - rows.action).square().sum() / (N * A)
    loss.backward()
    expected = {name: present(p.grad).clone() for name, p in model.actor.named_parameters()}
    seen = spied(learner, "actor_optimiser")
    terms = step(learner, rows, z)
    assert terms == pytest.approx({"actor": float(loss.detach()), "cloning": error}, rel=1e-12)
    for name, gradient in seen(learner.model.actor).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-12)


def spied(learner: NetworkLearner, part: str) -> Any:
    """The gradients of an optimiser's step, by the names of a network's parameters."""
    kept: dict[int, torch.Tensor] = {}
    adam = learner.optimisers[part]
    adam.optimiser.register_step_pre_hook(
        lambda *_: kept.update({id(p): present(p.grad).clone() for p in adam.parameters})
    )
    return lambda network: {name: kept[id(p)] for name, p in network.named_parameters()}


@pytest.mark.parametrize("settings", [{}, {"actor_pessimism": 0.5}, {"encoder": "deep"}], ids=str)
def test_the_loss_of_a_flow(settings: dict[str, Any]) -> None:
    learner, rows, z = learner_of(**FLOW, **settings), batch(), latents()
    model = copy.deepcopy(learner.model).requires_grad_(True)
    start, t, noise = drawn((N, A), (N, 1), (N, A))
    matching = torch.zeros(())
    for i in range(N):
        x = (1 - t[i]) * start[i] + t[i] * rows.action[i]
        velocity = model.vector_field(rows.obs[i], x, t[i])
        matching = matching + (velocity - (rows.action[i] - start[i])).square().sum() / (N * A)
    action = torch.stack([model.act(rows.obs[i], z[i], noise[i]) for i in range(N)])
    behaviour = []
    for i in range(N):
        x = noise[i]
        for k in range(4):
            x = x + model.vector_field(rows.obs[i], x, torch.tensor([k / 4.0])) / 4
        behaviour.append(x.detach().clamp(-1, 1))
    cloning = (action - torch.stack(behaviour)).square().sum() / (N * A)
    Q = values(model, rows.obs, z, action)
    size = float(sum(abs(float(q.detach())) for row in Q for q in row) / (2 * N))
    penalty = settings.get("actor_pessimism", 0.0)
    climb = sum((pessimistic(row, penalty) for row in Q), start=torch.zeros(())) / N
    loss = -climb / size + 0.7 * cloning + matching
    loss.backward()
    actor, field = spied(learner, "actor_optimiser"), spied(learner, "flow_optimiser")
    terms = step(learner, rows, z)
    assert terms == pytest.approx(
        {"actor": float(loss.detach()), "cloning": float(cloning.detach()), "flow": float(matching.detach())},
        rel=1e-12,
    )
    for ours, theirs in (
        (actor(learner.model.actor), model.actor),
        (field(learner.model.vector_field), model.vector_field),
    ):
        for name, parameter in theirs.named_parameters():
            torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-10, atol=1e-12)
    assert all(p.grad is None for p in learner.model.forward_map.parameters())


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].online])
def test_every_model_takes_a_flow_and_bootstraps_from_fresh_noise(name: str) -> None:
    """Two generators give other next actions, so other losses; the same one gives the same."""
    entry = MODELS[name]
    config = entry.config(**SMALL, **FLOW)
    first, later = batch(), batch(1)
    rows = Batch(
        first.obs,
        first.action,
        first.next_obs,
        first.terminated,
        future_obs=later.obs,
        next_action=later.action,
        last=torch.zeros(N, dtype=torch.bool),
    )
    losses = []
    for seed in (5, 5, 6):
        learner = entry.learner(entry.network(config, torch.Generator().manual_seed(1)).double(), config)
        before = copy.deepcopy(learner.model.vector_field.state_dict())
        terms = learner.update(rows, torch.Generator().manual_seed(seed))
        assert {"actor", "cloning", "flow"} <= set(terms)
        moved = learner.model.vector_field.state_dict()
        assert not any(
            torch.equal(moved[key], value) for key, value in before.items() if key.endswith("weight")
        )
        losses.append((float(terms["loss"]), float(terms["actor"])))
    assert losses[0] == losses[1]
    assert losses[0][1] != losses[2][1]
    assert (losses[0][0] != losses[2][0]) == (name != "one_step_fb")  # whose next actions are the data's


def test_a_flow_learns_what_the_data_do_and_what_pays() -> None:
    """Actions of the data are +1 or −1 in every state. A flow that is held to them samples both, and acts on
    neither side of the data for long: its mean is no action of theirs, and one that may climb leaves them."""
    rng = np.random.default_rng(0)
    side = rng.choice([-0.8, 0.8], size=(4_000, 1)).astype(np.float32)
    rows = Batch(
        torch.from_numpy(rng.standard_normal((4_000, 2)).astype(np.float32)),
        torch.from_numpy(side + 0.02 * rng.standard_normal((4_000, 1)).astype(np.float32)),
        torch.from_numpy(rng.standard_normal((4_000, 2)).astype(np.float32)),
        torch.zeros(4_000, dtype=torch.bool),
    )
    sizes: dict[str, Any] = {"obs_dim": 2, "action_dim": 1, "z_dim": 4, "hidden": 32, "backward_hidden": 16}
    config = FBConfig(
        **sizes,
        actor="flow",
        bc=100.0,
        flow_hidden=32,
        flow_layers=3,
        actor_learning_rate=3e-3,
        flow_learning_rate=3e-3,
    )
    learner = FBLearner(fb_network(config, torch.Generator().manual_seed(0)), config)
    g = torch.Generator().manual_seed(1)
    for _ in range(600):
        few = torch.randint(4_000, (256,), generator=g)
        z = learner.model.project(torch.randn(256, 4, generator=g))
        learner.update_actor(learner.view(rows.obs[few]), z, g, rows.action[few])
    z = learner.model.project(torch.randn(1, 4, generator=g)).expand(1_000, 4)
    action = learner.model.sample(rows.obs[:1_000], z, g)
    near = (action.abs() - 0.8).abs() < 0.2
    assert float(near.float().mean()) > 0.8
    assert 0.25 < float((action > 0).float().mean()) < 0.75
    assert torch.equal(
        learner.model.act(rows.obs[:5], z[:5]), learner.model.act(rows.obs[:5], z[:5], torch.zeros(5, 1))
    )


@pytest.mark.parametrize("settings", [{}, FLOW, {"discrete": True}], ids=str)
def test_actions_are_drawn_from_the_policy(settings: dict[str, Any]) -> None:
    model = fb_network(FBConfig(**SMALL | settings), torch.Generator().manual_seed(1))
    obs = torch.randn(4, 1, O, generator=torch.Generator().manual_seed(4))
    z = model.project(torch.randn(2_000, D, generator=torch.Generator().manual_seed(5))[:1].expand(2_000, D))
    first, again = (model.sample(obs, z, torch.Generator().manual_seed(6)) for _ in range(2))
    assert first.shape == (4, 2_000, A)
    assert torch.equal(first, again)
    assert float(first.abs().max()) <= 1
    mean = model.act(obs, z[:1])
    if "actor" not in settings:  # the spread around the mean is known
        torch.testing.assert_close(first.mean(1, keepdim=True), mean, rtol=0, atol=0.05)
    assert float(first.std(1).max()) > (0.0 if settings.get("discrete") else 0.05)
    with pytest.raises(DataError, match="no distribution of actions"):
        sampled_policy(object(), z, torch.Generator())  # type: ignore[arg-type]


def test_a_skill_and_an_evaluation_can_be_sampled() -> None:
    data = collect(2_000, torch.Generator().manual_seed(0))
    sizes: dict[str, Any] = {"z_dim": 6, "hidden": 16, "backward_hidden": 16, "batch_size": 32}
    agent: Agent = pretrain(data, "fb", steps=5, dynamics_steps=0, **sizes, **FLOW)
    skill = agent.adapt("cross", "fb")
    obs = data.transitions().obs[:3]
    assert torch.equal(skill.act(obs), skill.act(obs))
    drawn = skill.act(obs, torch.Generator().manual_seed(0))
    assert not torch.equal(drawn, skill.act(obs))
    assert torch.equal(drawn, skill.act(obs, torch.Generator().manual_seed(0)))
    plain, one, same = (agent.evaluate(skill, 3, sampled=how) for how in (False, True, True))
    assert np.array_equal(one.returns, same.returns)
    assert np.array_equal(one.random, plain.random)  # the same start states
    assert not np.array_equal(one.returns, plain.returns)


def test_bad_combinations_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match="actor=flow with bc=0 would learn a flow"):
        FBConfig(**SMALL, actor="flow")
    with pytest.raises(ConfigError, match="actions are discrete"):
        FBConfig(**SMALL, actor="flow", bc=1.0, discrete=True)
    with pytest.raises(ConfigError, match="actions are discrete"):
        FBConfig(**SMALL, bc=1.0, discrete=True)
    network = FBLearner.architecture(FBConfig(**SMALL, **FLOW))
    require_trainable(network)
    with pytest.raises(CheckpointError, match="lacks the vector field"):
        require_trainable(network.updated(vector_field=None))
    with pytest.raises(CheckpointError, match="reads encoded observations"):
        require_trainable(network.updated(actor_reads_left=True))
    learner, rows = learner_of(**FLOW), batch()
    with pytest.raises(DataError, match=r"pass batch\.action"):
        learner.update_actor(learner.view(rows.obs), latents(), torch.Generator())


def test_hindsight_latents_are_goals_of_the_rows_own_future() -> None:
    later = batch(5).obs
    rows, z = dataclasses.replace(batch(), future_obs=later), latents()
    learner = learner_of(hindsight=1.0)
    B = learner.model.backward(later)
    wanted = D**0.5 * B / B.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(learner.hindsight(rows, z, torch.Generator().manual_seed(0)), wanted)
    half = learner_of(hindsight=0.5).hindsight(rows, z, torch.Generator().manual_seed(0))
    replaced = (half != z).all(-1)
    assert 0 < int(replaced.sum()) < N
    torch.testing.assert_close(half[replaced], wanted[replaced])
    assert torch.equal(half[~replaced], z[~replaced])


def test_hindsight_asks_for_later_states() -> None:
    assert learner_of(hindsight=0.5).batches.future
    assert not learner_of().batches.future
    with pytest.raises(DataError, match="later states"):
        learner_of(hindsight=0.5).update(batch(), torch.Generator())


def weights_of(part: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in part.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_an_actor_that_does_not_climb_clones_whatever_f_says() -> None:
    """With climb=0 the step is that of cloning alone: another F changes nothing, and with climb=1 it does."""

    def after(climb: float, shift: float) -> dict[str, torch.Tensor]:
        learner = learner_of(bc=0.7, climb=climb)
        with torch.no_grad():
            for parameter in learner.model.forward_map.parameters():
                parameter.add_(shift)
        step(learner, batch(), latents())
        return weights_of(learner.model.actor)

    assert same(after(0.0, 0.0), after(0.0, 0.3))
    assert not same(after(1.0, 0.0), after(1.0, 0.3))
    assert not same(after(0.0, 0.0), weights_of(learner_of(bc=0.7).model.actor)), "it learns"


def test_an_actor_without_anything_to_learn_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave the actor nothing to learn"):
        learner_of(climb=0.0)


def test_the_actor_of_a_frozen_model_is_trained_alone() -> None:
    learner = learner_of(frozen=True, normalise_obs=True)
    model = learner.model
    before = {
        name: weights_of(getattr(model, name)) for name in ("forward_map", "backward_map", "normaliser")
    }
    actor = weights_of(model.actor)
    learner.update(batch(), torch.Generator().manual_seed(0))
    assert all(same(weights, weights_of(getattr(model, name))) for name, weights in before.items())
    assert not same(actor, weights_of(model.actor))
