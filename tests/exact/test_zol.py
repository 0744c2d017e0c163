"""ZOL: exact gradients, a sweep equal to its parts, and an objective that means what it says."""

from typing import Any

import pytest
import torch

from zol import measure
from zol.adapt.ascent import Ascent, climb
from zol.adapt.prompts import prompted
from zol.adapt.zol import _mu_states, zol_search
from zol.adapt.zol_settings import AUTHORS, PER_ROW, ZOLConfig
from zol.common.config import ConfigError
from zol.evidence import Evidence
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.testing.exact import ExactFB
from zol.worlds.tabular import FiniteMDP, random_mdp


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def exact() -> ExactFB:
    """A finite MDP whose data density is uniform, so that a sample of every state once is exact."""
    mdp = random_mdp(9, 3, generator(1), discount=0.6)
    density = torch.full((9,), 1 / 9, dtype=torch.float64)
    return ExactFB(mdp, density, temperature=0.1, generator=generator(2))


def exact_evidence(model: ExactFB, tasks: int = 2) -> Evidence:
    every_state = torch.eye(9, dtype=torch.float64)
    rewards = torch.rand(tasks, 9, generator=generator(3), dtype=torch.float64)
    starts = torch.eye(9, dtype=torch.float64)
    return Evidence(tuple(f"task{t}" for t in range(tasks)), every_state, rewards, starts)


def uniform_start(mdp: FiniteMDP) -> FiniteMDP:
    return FiniteMDP(mdp.transition, torch.full((9,), 1 / 9, dtype=torch.float64), mdp.discount)


@pytest.fixture(scope="module")
def fb() -> Network:
    return fb_network(
        FBConfig(obs_dim=3, action_dim=2, z_dim=8, discount=0.5, hidden=32, backward_hidden=32), generator(4)
    ).double()


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    obs = torch.randn(300, 3, generator=generator(5), dtype=torch.float64)
    rewards = torch.stack([(obs[:, 0] > 0).double(), obs[:, 1], obs.norm(dim=-1)])
    return Evidence(("left", "up", "far"), obs, rewards, obs[:20] * 0.5)


def test_with_linear_weights_the_estimate_is_the_true_return(exact: ExactFB) -> None:
    ev = exact_evidence(exact)
    z = ev.prompt(exact)
    plain = ZOLConfig(steps=0, shaping="linear", clip=1e9)
    result = zol_search(exact, ev, z, plain)
    truth = uniform_start(exact.mdp).value(exact.policy(exact.project(z)), ev.rewards)
    torch.testing.assert_close(result.estimate[0], truth, rtol=1e-8, atol=1e-8)


def test_climbing_the_exact_objective_raises_the_true_return(exact: ExactFB) -> None:
    ev = exact_evidence(exact)
    z = exact.project(torch.randn(2, 9, generator=generator(6), dtype=torch.float64))
    config = ZOLConfig(
        steps=30, learning_rate=0.1, shaping="linear", clip=1e9, chi_square=0.0, trust_region=0.0
    )
    result = zol_search(exact, ev, z, config)
    mdp = uniform_start(exact.mdp)
    before = mdp.value(exact.policy(z), ev.rewards)
    after = mdp.value(exact.policy(result.z[0]), ev.rewards)
    assert bool((after > before + 0.01).all())
    torch.testing.assert_close(result.estimate[0], after, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("which", ["exact", "fb"])
def test_gradient_matches_finite_differences(which: str, request: pytest.FixtureRequest) -> None:
    """∇μ flows through the policy and through F; cutting either path gives another gradient."""
    model = request.getfixturevalue(which)
    starts = torch.eye(9, dtype=torch.float64) if which == "exact" else torch.randn(7, 3).double()
    direction = torch.randn(model.z_dim, generator=generator(7), dtype=torch.float64)
    z = model.project(torch.randn(model.z_dim, generator=generator(8), dtype=torch.float64)).requires_grad_()

    def value(latent: torch.Tensor) -> torch.Tensor:
        return measure.forward_mean(model, starts, latent) @ direction

    (gradient,) = torch.autograd.grad(value(z), z)
    step = 1e-6
    numeric = torch.stack(
        [
            (value(z.detach() + step * e) - value(z.detach() - step * e)) / (2 * step)
            for e in torch.eye(model.z_dim, dtype=torch.float64)
        ]
    )
    torch.testing.assert_close(gradient, numeric, rtol=1e-4, atol=1e-6)
    action = model.act(starts, z.unsqueeze(0)).detach()
    frozen_policy = model.forward(starts, z.unsqueeze(0), action).mean((0, 1)) @ direction
    (partial,) = torch.autograd.grad(frozen_policy, z)
    assert (partial - gradient).norm() > 1e-3 * gradient.norm()


def test_a_sweep_equals_its_rows_one_by_one(fb: Network, evidence: Evidence) -> None:
    configs = [
        ZOLConfig(steps=12, learning_rate=0.01),
        ZOLConfig(steps=7, learning_rate=0.03, chi_square=0.1, trust_region=0.5, clip=1.2),
        ZOLConfig(steps=12, learning_rate=0.05, grad_clip=1e-3, patience=2),
    ]
    start = evidence.prompt(fb)
    together = zol_search(fb, evidence, start, configs, rows_at_once=4)
    for c, config in enumerate(configs):
        for t, task in enumerate(evidence.tasks):
            alone = Evidence((task,), evidence.obs, evidence.rewards[t : t + 1], evidence.starts)
            single = zol_search(fb, alone, start[t : t + 1], config)
            torch.testing.assert_close(together.z[c, t], single.z[0, 0], rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(together.estimate[c, t], single.estimate[0, 0], rtol=1e-6, atol=1e-6)


def test_rows_that_share_a_path_share_its_work(fb: Network, evidence: Evidence) -> None:
    """Step counts and clips that never bite cost nothing; a clip that bites is searched for itself."""
    base = ZOLConfig(steps=9, learning_rate=0.05)
    start = evidence.prompt(fb)
    peak = float(climb(one_row(fb, evidence, start, base), {9}, False)[0][9].peak[0])
    clips = (100 * peak, 1 + (peak - 1) / 2)
    configs = [base, base.updated(steps=4), *(base.updated(clip=clip) for clip in clips)]
    calls: list[int] = []
    act = fb.act

    def counted(obs: torch.Tensor, z: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        calls.append(z.requires_grad * z.shape[0])
        return act(obs, z, noise)

    fb.act = counted  # type: ignore[method-assign]
    try:
        together = zol_search(fb, evidence, start, configs)
    finally:
        del fb.act
    assert sum(calls) <= 2 * 10 * len(evidence.tasks)  # two paths of 9 + 1 scored steps, not four
    for c, config in enumerate(configs):
        single = zol_search(fb, evidence, start, config)
        torch.testing.assert_close(together.z[c], single.z[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(together.trace["objective"][:5, c], single.trace["objective"][:5, 0])
    assert torch.equal(together.z[0], together.z[2])
    assert not torch.equal(together.z[0], together.z[3])


def one_row(fb: Network, evidence: Evidence, start: torch.Tensor, config: ZOLConfig) -> Ascent:
    rows = {name: torch.tensor([getattr(config, name)]) for name in PER_ROW}
    z0 = fb.project(start[:1])
    B = fb.backward(evidence.obs).detach()
    return Ascent(fb, B, evidence.rewards[:1], evidence.starts, z0, config, rows)


def test_a_trace_is_optional(fb: Network, evidence: Evidence) -> None:
    start = evidence.prompt(fb)
    told, silent = (
        zol_search(fb, evidence, start, ZOLConfig(steps=5), trace=trace) for trace in (True, False)
    )
    assert silent.trace == {}
    assert torch.equal(told.z, silent.z)
    assert set(told.diagnostics) == set(silent.diagnostics)


def test_adam_is_torchs_adam(fb: Network, evidence: Evidence) -> None:
    """The slow obvious loop: torch.optim.Adam on one latent, projected after each step."""
    config = ZOLConfig(steps=15, learning_rate=0.02, chi_square=0.01, trust_region=0.05)
    start = evidence.prompt(fb)
    result = zol_search(fb, evidence, start, config)
    t = 1
    z0 = fb.project(start[t])
    z = z0.clone().requires_grad_()
    optimiser = torch.optim.Adam([z], lr=config.learning_rate)
    B = fb.backward(evidence.obs).detach()
    r = evidence.rewards[t] - evidence.rewards[t].mean()
    best, best_z = -torch.inf, None
    for _ in range(config.steps + 1):
        at = fb.project(z).expand(20, -1)
        F = fb.forward(evidence.starts, at, fb.act(evidence.starts, at))
        w = torch.nn.functional.softplus((1 - fb.discount) * B @ F.mean((0, 1)))
        w = (w / w.mean()).clamp_max(config.clip)
        penalty = config.chi_square * ((w - 1) ** 2).mean()
        objective = (w * r).mean() - penalty - config.trust_region * ((fb.project(z) - z0) ** 2).sum()
        if objective > best:
            best, best_z = float(objective.detach()), z.detach().clone()
        (z.grad,) = torch.autograd.grad(-objective, z)
        optimiser.step()
        with torch.no_grad():
            z.copy_(fb.project(z))
    assert best_z is not None
    torch.testing.assert_close(result.z[0, t], best_z, rtol=1e-6, atol=1e-6)
    assert float(result.diagnostics["objective"][0, t]) == pytest.approx(best, rel=1e-6)


@pytest.fixture(scope="module")
def far_sighted() -> Network:
    """A discount like those of real models: a radial part of the gradient would be large."""
    sizes: dict[str, Any] = {"obs_dim": 3, "action_dim": 2, "z_dim": 8, "hidden": 32, "backward_hidden": 32}
    return fb_network(FBConfig(discount=0.98, **sizes), generator(4)).double()


@pytest.mark.parametrize("change", [{}, {"shaping": "exp", "self_normalised": True}], ids=["paper", "exp"])
def test_the_objective_depends_on_directions_alone(
    far_sighted: Network, evidence: Evidence, change: dict
) -> None:
    """L(c·z) = L(z) for c > 0, and so ⟨∇L, z⟩ = 0: nothing is gained by leaving the sphere."""
    config = ZOLConfig(chi_square=0.01, trust_region=0.05, **change)
    ascent = one_row(far_sighted, evidence, evidence.prompt(far_sighted), config)
    z = far_sighted.project(torch.randn(1, 8, generator=generator(10), dtype=torch.float64))
    objective, gradient, _, told = ascent.climb_from(z, trace=True)
    for scale in (0.3, 7.0):
        scaled, gradient_there, _, told_there = ascent.climb_from(scale * z, trace=True)
        torch.testing.assert_close(scaled, objective, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient_there, gradient / scale, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(told_there["estimate"], told["estimate"], rtol=1e-12, atol=1e-12)
    assert float(gradient.norm()) > 1e-4
    assert abs(float((gradient * z).sum())) < 1e-12 * float(gradient.norm() * z.norm())


def test_the_gradient_is_the_tangential_part_of_the_one_in_space(
    far_sighted: Network, evidence: Evidence
) -> None:
    """Without the projection the gradient has a radial part, which coordinate-wise Adam does not cancel."""
    config = ZOLConfig(chi_square=0.0, trust_region=0.0)
    ascent = one_row(far_sighted, evidence, evidence.prompt(far_sighted), config)
    z = far_sighted.project(torch.randn(1, 8, generator=generator(10), dtype=torch.float64))
    _, gradient, _, _ = ascent.climb_from(z, trace=False)
    free = z.clone().requires_grad_()
    mu = measure.forward_mean(far_sighted, evidence.starts, free)
    w = measure.shape_weights(measure.raw_ratio(far_sighted, mu, ascent.features), clip=config.clip)
    (in_space,) = torch.autograd.grad((w * ascent.wanted).mean(), free)
    radial = (in_space * z).sum() / z.square().sum() * z
    torch.testing.assert_close(gradient, in_space - radial, rtol=1e-9, atol=1e-12)
    assert float(radial.norm()) > 1e-3 * float(in_space.norm())


@pytest.mark.parametrize("method", ["zol", "prompt"])
def test_gradients_may_be_switched_off_around_it(fb: Network, evidence: Evidence, method: str) -> None:
    def found() -> torch.Tensor:
        start = evidence.prompt(fb)
        return (
            zol_search(fb, evidence, start, ZOLConfig(steps=3)) if method == "zol" else prompted(fb, evidence)
        ).z

    wanted = found()
    with torch.no_grad():
        torch.testing.assert_close(found(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize(("share", "added"), [(0.01, 3), (0.05, 5), (1.0, 5)])
def test_high_reward_states_are_added_once_each(evidence: Evidence, share: float, added: int) -> None:
    """min(k, S/4) of the k best states: 20 start states have room for 5, and 1 % of 300 states are 3."""
    states = _mu_states(evidence, ZOLConfig(top_reward_share=share), generator(1))
    assert states.shape == (3, 20 + added, 3)
    for t, rewards in enumerate(evidence.rewards):
        assert len(states[t, 20:].unique(dim=0)) == added
        best = evidence.obs[rewards.topk(max(1, int(share * 300))).indices]
        assert all(bool((best == state).all(-1).any()) for state in states[t, 20:])


def test_the_returned_latent_is_the_one_that_was_scored(fb: Network, evidence: Evidence) -> None:
    result = zol_search(fb, evidence, evidence.prompt(fb), ZOLConfig(steps=10, learning_rate=0.3))
    again = zol_search(fb, evidence, result.z[0], ZOLConfig(steps=0, trust_region=0.0))
    torch.testing.assert_close(again.estimate, result.estimate)
    assert bool((result.diagnostics["objective"] >= result.trace["objective"][0]).all())


def test_networks_stay_frozen_and_keep_their_flags(fb: Network, evidence: Evidence) -> None:
    before = {name: value.clone() for name, value in fb.state_dict().items()}
    zol_search(fb, evidence, evidence.prompt(fb), ZOLConfig(steps=3))
    assert all(p.requires_grad and p.grad is None for p in fb.parameters())
    assert all(torch.equal(before[name], value) for name, value in fb.state_dict().items())


def test_trace_shows_every_step_and_stops_with_its_row(fb: Network, evidence: Evidence) -> None:
    result = zol_search(fb, evidence, evidence.prompt(fb), [ZOLConfig(steps=4), ZOLConfig(steps=9)])
    objective = result.trace["objective"]
    assert objective.shape == (10, 2, 3)
    assert bool(objective[:5].isfinite().all())
    assert bool(objective[5:, 0].isnan().all())
    assert bool(objective[5:, 1].isfinite().all())
    assert bool((result.trace["distance"][0] == 0).all())


def test_trust_region_holds_the_latent(fb: Network, evidence: Evidence) -> None:
    start = evidence.prompt(fb)
    loose, tight = zol_search(
        fb, evidence, start, [ZOLConfig(steps=30, learning_rate=0.05, trust_region=t) for t in (0.0, 100.0)]
    ).distance
    assert bool((tight < loose).all())


@pytest.mark.parametrize(
    "change",
    [
        {"shaping": "exp", "sharpness": 2.0},
        {"shaping": "relu"},
        {"self_normalised": True},
        {"clip_then_renormalise": True, "clip": 1.1},
        {"trust_region_norm": "mean"},
        {"mu_states": "batch"},
        {"mu_states": "mix"},
        {"top_reward_share": 0.05},
        {"centre_rewards": False},
    ],
    ids=lambda change: next(iter(change)) + "=" + str(next(iter(change.values()))),
)
def test_every_variant_runs_and_differs_from_the_paper(fb: Network, evidence: Evidence, change: dict) -> None:
    base = ZOLConfig(steps=8, learning_rate=0.05, clip=1.1, trust_region=0.2)
    start = evidence.prompt(fb)
    paper = zol_search(fb, evidence, start, base)
    variant = zol_search(fb, evidence, start, base.updated(**change), generator=generator(9))
    assert bool(variant.z.isfinite().all())
    assert (variant.z - paper.z).abs().max() > 1e-6


def test_authors_variant_is_complete() -> None:
    assert (AUTHORS.shaping, AUTHORS.self_normalised, AUTHORS.trust_region_norm) == ("exp", True, "mean")


def test_latent_carries_its_provenance(fb: Network, evidence: Evidence) -> None:
    latent = zol_search(fb, evidence, evidence.prompt(fb), ZOLConfig(steps=2)).latent("up")
    assert (latent.task, latent.method, latent.config["steps"]) == ("up", "zol", 2)
    assert latent.estimate is not None
    assert set(latent.diagnostics) >= {"ess", "negative_share", "mean_ratio", "distance"}


def test_mistakes_are_explained(fb: Network, evidence: Evidence) -> None:
    start = evidence.prompt(fb)
    with pytest.raises(ConfigError, match="share 'shaping'"):
        zol_search(fb, evidence, start, [ZOLConfig(), ZOLConfig(shaping="relu")])
    with pytest.raises(ConfigError, match="pass generator"):
        zol_search(fb, evidence, start, ZOLConfig(mu_states="batch"))
    with pytest.raises(ConfigError, match="start latents have shape"):
        zol_search(fb, evidence, start[:1])
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        ZOLConfig(learning_rat=0.1)  # type: ignore[call-arg]
