"""Losses of features, and TD-JEPA's, against slow computations row by row and closed forms."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from zol import prompt
from zol.common.config import ConfigError
from zol.common.errors import DataError
from zol.data import Batch
from zol.models import MODELS
from zol.models.hilp import MODEL as HILP
from zol.models.hilp import HILPConfig, HILPLearner
from zol.models.learner import NetworkLearner
from zol.models.parts import RIDGE
from zol.train import presets

N, GAMMA = 12, 0.9
SIZES: dict[str, Any] = {"obs_dim": 3, "action_dim": 2, "z_dim": 4, "hidden": 8, "backward_hidden": 8}


def learner_of(name: str, **settings: Any) -> NetworkLearner:
    entry = MODELS[name]
    config = entry.config(**SIZES | {"discount": GAMMA} | settings)
    network = entry.network(config, torch.Generator().manual_seed(0)).double()
    return entry.learner(network, config)


def rows() -> Batch:
    g = torch.Generator().manual_seed(1)
    obs, following, later = torch.randn(3, N, 3, generator=g, dtype=torch.float64)
    action = torch.rand(N, 2, generator=g, dtype=torch.float64) * 2 - 1
    later[:2] = obs[:2]  # two goals that are reached
    return Batch(obs, action, following, torch.arange(N) % 5 == 0, future_obs=later)


def orthonormality(phi: Tensor) -> Tensor:
    total = torch.zeros((), dtype=phi.dtype)
    for i in range(len(phi)):
        for j in range(len(phi)):
            if i != j:
                total = total + 0.5 * (phi[i] @ phi[j]) ** 2 / (len(phi) * (len(phi) - 1))
        total = total - phi[i] @ phi[i] / len(phi)
    return total


def apart(target: torch.nn.Module, seed: int) -> None:
    """A slow copy that is not its original, so that mixing them up is seen."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=g, dtype=parameter.dtype))


def after_losses(learner: NetworkLearner, batch: Batch) -> dict[str, float]:
    terms = learner.update(batch, torch.Generator().manual_seed(2))
    return {name: float(value) for name, value in terms.items()}


@pytest.mark.parametrize("name", ["laplacian", "successor_features"])
def test_laplacian_features_are_smooth_and_orthonormal(name: str) -> None:
    learner, batch = learner_of(name, orthonormality=0.3), rows()
    phi, following = (learner.model.backward_map(x) for x in (batch.obs, batch.next_obs))
    expected = 2 * 0.3 * orthonormality(phi)
    for i in range(N):
        expected = expected + (phi[i] - following[i]).square().sum() / (N * phi.shape[1])
    assert after_losses(learner, batch)["features"] == pytest.approx(float(expected.detach()), rel=1e-10)


@pytest.mark.parametrize("features", ["byol", "byol_gamma"])
def test_byol_predicts_its_own_slow_features(features: str) -> None:
    learner, batch = learner_of("successor_features", features=features, orthonormality=0.3), rows()
    loss: Any = learner.features  # type: ignore[attr-defined]
    apart(loss.slow, 3)
    goal = batch.next_obs if features == "byol" else batch.future_obs
    assert goal is not None
    expected = torch.zeros((), dtype=torch.float64)
    phi = learner.model.backward_map(batch.obs)
    for i in range(N):
        predicted = loss.predictor(phi[i], batch.action[i])
        expected = expected + (predicted - loss.slow(goal[i])).square().sum() / N
    expected = expected + 0.3 * orthonormality(phi)
    found = after_losses(learner, batch)
    assert found["features"] == pytest.approx(float(expected.detach()), rel=1e-10)


@pytest.mark.parametrize("random_goals", [0.0, 0.5])
@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_hilp_values_goals_by_distances(expectile: float, random_goals: float) -> None:
    learner = learner_of("hilp", expectile=expectile, random_goals=random_goals, feature_discount=0.8)
    batch, loss = rows(), learner.features  # type: ignore[attr-defined]
    for seed, slow in enumerate(loss.slow):
        apart(slow, seed)
    assert batch.future_obs is not None
    goals = loss.mixed_goals(batch, batch.future_obs, torch.Generator().manual_seed(2))  # drawn first

    def value(network: torch.nn.Module, s: Tensor, g: Tensor) -> Tensor:
        return -(network(s) - network(g)).square().sum().clamp_min(1e-6).sqrt()

    expected = 0.0
    for i in range(N):
        s, following, g = batch.obs[i], batch.next_obs[i], goals[i]
        reached = torch.equal(s, g)
        assert random_goals or reached == (i < 2)
        reward = 0.0 if reached else -1.0
        targets = [reward + (0.0 if reached else 0.8 * value(slow, following, g)) for slow in loss.slow]
        advantage = min(targets) - sum(value(slow, s, g) for slow in loss.slow) / 2
        weight = 1 - expectile if advantage < 0 else expectile
        for network, target in zip(loss.networks, targets, strict=True):
            expected += float((weight * (target - value(network, s, g)) ** 2).detach() / N)
    assert after_losses(learner, batch)["features"] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("members", [1, 2])
def test_icvf_values_goals_under_intentions(members: int) -> None:
    learner = learner_of(
        "successor_features",
        features="icvf",
        feature_discount=0.8,
        members=members,
        random_goals=0.3,
        same_goals=0.4,
    )
    batch, loss = rows(), learner.features  # type: ignore[attr-defined]
    assert batch.future_obs is not None
    batch.future_obs[:4] = batch.next_obs[:4]  # some goals are reached
    for seed, slow in enumerate(loss.slow):
        apart(slow, seed)
    goals, intentions = loss.goals(batch, torch.Generator().manual_seed(2))  # the first thing that is drawn
    assert 0 < int((goals == intentions).all(-1).sum()) < N

    def value(networks: Any, s: Tensor, g: Tensor, w: Tensor) -> list[Tensor]:
        encoder, intended, features = networks
        x, phi = encoder(s), features(g)
        gates = intended.T(features(w).unsqueeze(0)).reshape(members, -1)
        return [
            (((x * gate) @ a @ b) * gate) @ phi
            for gate, a, b in zip(gates, intended.A, intended.B, strict=True)
        ]

    expected, reached_some = 0.0, 0
    for i in range(N):
        s, following, g, w = batch.obs[i], batch.next_obs[i], goals[i], intentions[i]
        gamma = 0.0 if bool(batch.terminated[i]) else 0.8
        arrived, meant = torch.equal(following, g), torch.equal(following, w)
        reached_some += arrived != meant
        wanted = 0.0 if meant else -1 + gamma * min(value(loss.slow, following, w, w))
        advantage = wanted - sum(value(loss.networks, s, w, w)) / members
        weight = 0.1 if advantage < 0 else 0.9
        after, now = value(loss.slow, following, g, w), value(loss.networks, s, g, w)
        for later, v in zip(after, now, strict=True):
            target = 0.0 if arrived else -1 + gamma * later
            expected += float((weight * (target - v) ** 2).detach()) / (N * members)
    assert reached_some  # so that mixing up the two masks would be seen
    assert after_losses(learner, batch)["features"] == pytest.approx(expected, rel=1e-10)


def test_rldp_predicts_from_its_own_predictions() -> None:
    learner = learner_of("successor_features", features="rldp", orthonormality=0.3, dynamics_horizon=3)
    assert learner.batches.path == 3
    g = torch.Generator().manual_seed(5)
    obs = torch.randn(N, 3, 3, generator=g, dtype=torch.float64)
    action = torch.rand(N, 3, 2, generator=g, dtype=torch.float64)
    length = torch.arange(N) % 3 + 1
    batch = replace(rows(), path_obs=obs, path_action=action, path_length=length)
    loss: Any = learner.features  # type: ignore[attr-defined]
    apart(loss.slow, 3)
    total, count = torch.zeros((), dtype=torch.float64), 0
    phi = learner.model.backward_map(batch.obs)
    for i in range(N):
        x = phi[i]
        for k in range(int(length[i])):
            x = loss.predictor(x, action[i, k])
            total, count = total + (x - loss.slow(obs[i, k])).square().sum(), count + 1
    expected = total / count + 0.3 * orthonormality(phi)
    assert after_losses(learner, batch)["features"] == pytest.approx(float(expected.detach()), rel=1e-10)
    with pytest.raises(DataError, match="RLDP predicts along the steps of an episode"):
        learner.update(rows(), torch.Generator())


def test_hilp_takes_some_goals_from_other_rows() -> None:
    learner, batch = learner_of("hilp", random_goals=0.5), rows()
    loss: Any = learner.features  # type: ignore[attr-defined]
    goals = loss.mixed_goals(batch, batch.future_obs, torch.Generator().manual_seed(0))
    own = (goals == batch.future_obs).all(-1)
    assert 0 < int(own.sum()) < N
    others = goals[~own]
    assert all(bool((batch.next_obs == goal).all(-1).any()) for goal in others)


def test_losses_that_look_ahead_say_so() -> None:
    learner = learner_of("hilp")
    assert learner.batches.future
    with pytest.raises(DataError, match="HILP looks at later states of an episode, and this batch has none"):
        learner.update(replace(rows(), future_obs=None), torch.Generator())


def stretches() -> Batch:
    """The same rows, but the way to s' took some steps and passed another state."""
    g = torch.Generator().manual_seed(3)
    first, goal = torch.randn(2, N, 3, generator=g, dtype=torch.float64)
    length = torch.randint(1, 6, (N,), generator=g)
    ended = torch.zeros(N, dtype=torch.bool)
    return replace(rows(), goal=goal, length=length, first_obs=first, first_terminated=ended)


def counted(batch: Batch, i: int) -> tuple[float, float, Tensor]:
    """γⁿ, how often the state on the way counts, and that state."""
    n = 1 if batch.length is None else int(batch.length[i])
    gamma = 0.0 if batch.terminated[i] else GAMMA**n
    return gamma, sum(GAMMA**k for k in range(n)), (batch.next_obs if batch.goal is None else batch.goal)[i]


def remembered(learner: Any) -> dict[str, Tensor]:
    """Where the training latents of the next update will be found."""
    drawn: dict[str, Tensor] = {}
    draw = learner.training_latents

    def remember(embedded: Tensor, generator: torch.Generator, states: Tensor) -> Tensor:
        drawn["z"] = draw(embedded, generator, states)
        return drawn["z"]

    learner.training_latents = remember
    return drawn


@pytest.mark.parametrize("name", ["laplacian", "hilp"])
@pytest.mark.parametrize("batch", [rows(), stretches()], ids=["steps", "stretches"])
def test_successor_features_sum_features_along_the_way(name: str, batch: Batch) -> None:
    learner, other = (learner_of(name, action_std=1e-9) for _ in range(2))
    model = learner.model
    apart(learner.target_forward, 1)
    drawn = remembered(learner)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    slow = {key: value.clone() for key, value in learner.target_forward.state_dict().items()}
    found = after_losses(learner, batch)
    # Features look at single steps, whatever the stretch is.
    assert found["features"] == after_losses(other, batch.single())["features"]
    centre = model.centre.clone() if name == "hilp" else torch.zeros(4, dtype=torch.float64)
    model.load_state_dict(before)
    learner.target_forward.load_state_dict(slow)
    expected = 0.0
    for i in range(N):
        gamma, count, way = counted(batch, i)
        following, z = batch.next_obs[i], drawn["z"][i]
        later = learner.target_forward(following, z, model.actor(following, z)).mean(0)
        target = count * (model.backward_map(way) - centre) + gamma * later
        error = model.forward_map(batch.obs[i], z, batch.action[i]) - target
        expected += float(0.5 * error.detach().square().mean(-1).sum() / N)
    assert found["successor_features"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("batch", [rows(), stretches()], ids=["steps", "stretches"])
def test_td_jepa_predicts_what_the_other_encoder_will_see(symmetric: bool, batch: Batch) -> None:
    settings = {"encoder_dim": 5, "encoder_orthonormality": 0.2, "orthonormality": 0.7}
    learner: Any = learner_of("td_jepa", symmetric=symmetric, action_std=1e-9, **settings)
    model = learner.model
    for seed, (target, _, _) in enumerate(learner._targets.values()):
        apart(target, seed)
    drawn = remembered(learner)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    slow = {name: value.clone() for name, value in learner.state_dict().items()}
    found = after_losses(learner, batch)
    model.load_state_dict(before)
    learner.load_state_dict(slow | {n: v for n, v in learner.state_dict().items() if "optimiser" in n})
    psi = model.left if symmetric else model.backward_map
    slow_psi = learner.target_left if symmetric else learner.target_task
    expected = 0.0
    for i in range(N):
        s, following, z = batch.obs[i], batch.next_obs[i], drawn["z"][i]
        gamma, count, way = counted(batch, i)
        action = model.actor(learner.target_left(following), z)
        pairs = [(model.forward_map, learner.target_forward, model.left, learner.target_left, slow_psi)]
        if not symmetric:
            predictors = (learner.task_predictor, learner.target_predictor)
            pairs.append((*predictors, psi, slow_psi, learner.target_left))
        for predictor, slow_predictor, own, slow_own, slow_other in pairs:
            later = slow_predictor(slow_own(following), z, action).mean(0)
            target = count * slow_other(way) + gamma * later
            error = predictor(own(s), z, batch.action[i]) - target
            expected += float(error.detach().square().sum(-1).mean() / N)
    assert found["prediction"] == pytest.approx(expected, rel=1e-6)
    orth = 0.2 * orthonormality(model.left(batch.obs))
    orth = orth if symmetric else orth + 0.7 * orthonormality(psi(batch.obs))
    assert found["orthonormality"] == pytest.approx(float(orth.detach()), rel=1e-8)


def test_given_features_are_the_observation_and_their_sums_the_successor_measure() -> None:
    """Universal successor features of one-hot states on a chain s → s + 1: ψ = P (I − γ P)⁻¹."""
    states, gamma = 5, 0.6
    entry, sizes = MODELS["successor_features"], {"obs_dim": states, "action_dim": 2, "z_dim": states}
    rates = {"learning_rate": 1e-3, "target_rate": 0.1, "discount": gamma}
    settings: dict[str, Any] = {"features": "identity", "hidden": 64, "discrete": True, **sizes, **rates}
    config = entry.config(**settings)
    learner = entry.learner(entry.network(config, torch.Generator().manual_seed(0)), config)
    obs = torch.eye(states).repeat_interleave(2, 0)
    P = torch.eye(states)[(torch.arange(states) + 1).clamp(max=states - 1)]
    batch = Batch(
        obs, torch.eye(2).repeat(states, 1), P.repeat_interleave(2, 0), torch.zeros(10, dtype=torch.bool)
    )
    generator = torch.Generator().manual_seed(1)
    for step in range(1200):
        learner.scale_learning_rates(min(1.0, (1200 - step) / 800))
        learner.update(batch, generator)
    assert torch.equal(learner.model.regressors(obs), obs)
    z = learner.model.project(torch.randn(20, 1, states, generator=torch.Generator().manual_seed(2)))
    psi = learner.model.forward(obs, z, batch.action).mean((0, 1)).detach()
    exact = P @ torch.linalg.inv(torch.eye(states) - gamma * P)
    torch.testing.assert_close(psi, exact.repeat_interleave(2, 0), atol=0.03, rtol=0)


def test_given_features_have_the_size_of_the_observation() -> None:
    with pytest.raises(ConfigError, match=r"identity features are the 3 numbers .* set z_dim to 3"):
        learner_of("successor_features", features="identity")


def test_random_features_stay_what_they_are() -> None:
    learner, batch = learner_of("successor_features", features="random"), rows()
    before = learner.model.regressors(batch.obs).clone()
    learner.update(batch, torch.Generator().manual_seed(0))
    assert torch.equal(learner.model.regressors(batch.obs), before)


def test_centred_features_have_mean_zero_and_the_ratio_its_constant_back() -> None:
    learner, batch = learner_of("successor_features", features="random", centred=True), rows()
    learner.update(batch, torch.Generator().manual_seed(0))
    model = learner.model
    torch.testing.assert_close(
        model.regressors(batch.next_obs).mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0
    )
    assert model.measure.offset == 1.0


@pytest.mark.parametrize("world", [None, "donut", "four_rooms", "walker", "point_mass_maze"])
def test_slow_distances_of_the_quick_preset_arrive_within_its_steps(world: str | None) -> None:
    """Copies that follow at τ carry a value to its end, 1/(1 − γ) steps away, in 1/(τ(1 − γ)) updates."""
    settings = presets.settings(presets.read(HILP.presets), "quick", world)
    config = HILPConfig.model_fields
    rate = settings.get("feature_target_rate", config["feature_target_rate"].default)
    gamma = settings.get("feature_discount", config["feature_discount"].default)
    assert 1 / (rate * (1 - gamma)) <= settings["steps"] / 2


def test_sphered_features_are_orthonormal_and_say_the_same() -> None:
    """φ̃ = (C + εI)^(−1/2) φ is nearly orthonormal, and E[φ̃ r] stands for the reward of ridge regression."""
    learner, batch = learner_of("successor_features", features="random", centred=True, sphered=True), rows()
    learner.update(batch, torch.Generator().manual_seed(0))
    model, states = learner.model, batch.next_obs
    phi = model.backward_map(states).detach()
    phi = phi - phi.mean(0)
    C = phi.mT @ phi / N
    ridge = RIDGE * C.diagonal().mean() * torch.eye(4, dtype=torch.float64)
    sphered = model.regressors(states).detach()
    torch.testing.assert_close(model.sphering @ (C + ridge) @ model.sphering, torch.eye(4).double())
    torch.testing.assert_close(model.backward(states).detach(), sphered)  # B is φ̃
    torch.testing.assert_close(model.project(learner.goal_latents(states)).detach(), model.project(sphered))
    r = states[:, 0]
    z = prompt.reward(model, states, r, "correlation").detach()
    asked, regressed = sphered @ z, phi @ torch.linalg.solve(C + ridge, phi.mT @ r / N)
    torch.testing.assert_close(asked / asked.norm(), regressed / regressed.norm())


def test_what_is_summed_is_sphered() -> None:
    """The loss of ψ, row by row, is about φ̃ and not about φ."""
    learner, batch = learner_of("hilp", sphered=True), rows()
    batch = replace(batch, terminated=torch.ones(N, dtype=torch.bool))  # ψ is φ̃(s')
    model, seen = learner.model, list[Tensor]()
    draw = learner.training_latents

    def drawn(*given: Any) -> Tensor:
        seen.append(draw(*given))
        return seen[-1]

    learner.training_latents = drawn  # type: ignore[method-assign, assignment]
    before = deepcopy(model.forward_map)
    phi = model.backward_map(batch.next_obs).detach()
    found = after_losses(learner, batch)
    phi = (phi - model.centre) @ model.sphering
    psi = before(batch.obs, seen[0], batch.action).detach()
    expected = sum(0.5 * (member - phi).square().mean() for member in psi)
    assert found["successor_features"] == pytest.approx(float(expected), rel=1e-8)


def test_only_successor_features_are_sphered() -> None:
    network = MODELS["fb"].learner.architecture(MODELS["fb"].config(**SIZES))
    with pytest.raises(ConfigError, match="sphered"):
        network.updated(sphered=True)


def test_distances_of_hilp_are_numbers_of_steps() -> None:
    """On a line that is walked to the right, V(s, g) = −(1 − γ^k)/(1 − γ) for a goal k steps ahead."""
    n, gamma = 8, 0.9
    config = HILPConfig(
        obs_dim=n,
        action_dim=2,
        z_dim=4,
        hidden=8,
        backward_hidden=64,
        backward_learning_rate=2e-3,
        feature_target_rate=0.05,
        feature_discount=gamma,
        random_goals=0.0,
        discrete=True,
    )
    network = HILP.network(config, torch.Generator().manual_seed(0))
    learner = HILPLearner(network, config)
    g, eye = torch.Generator().manual_seed(1), torch.eye(n)
    for step in range(400):
        learner.scale_learning_rates(min(1.0, (400 - step) / 200))
        state = torch.randint(n - 1, (128,), generator=g)
        goal = state + (torch.rand(128, generator=g) * (n - state)).long()
        batch = Batch(eye[state], eye[:128, :2][state], eye[state + 1], torch.zeros(128, dtype=torch.bool))
        learner.update(replace(batch, future_obs=eye[goal]), g)
    phi = learner.model.backward_map(eye).detach()
    steps = (torch.arange(n) - torch.arange(n).unsqueeze(1)).float()
    ahead = steps > 0
    distance = torch.cdist(phi, phi)[ahead]
    exact = ((1 - gamma**steps) / (1 - gamma))[ahead]
    assert float((distance - exact).abs().max()) < 0.1
