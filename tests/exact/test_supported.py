"""Behaviour-supported policies: flows against closed forms, and cloning with exact ratios on a finite MDP."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from zol.adapt import Problem, imagined_choice, solve
from zol.adapt.guided import Guided, GuidedConfig, guided, guided_acting
from zol.adapt.supported import FlowConfig, Supported, Transitions, fit_flow, supported_policy
from zol.adapt.weighted_bc import Cloned, WeightedBCConfig, transition_weights
from zol.collect.donut import collect
from zol.common.errors import CheckpointError, DataError
from zol.evidence import Evidence
from zol.fields import States
from zol.models.fb import FBConfig, fb_network
from zol.models.flow import ActionFlow, flow_matching_loss, follow
from zol.session import Skill
from zol.train.learned_world import WorldConfig, learn_world
from zol.value.optidice import OptiDICESettings, optidice
from zol.worlds.donut import Donut
from zol.worlds.tabular import FiniteMDP, random_mdp

SMALL = FlowConfig(hidden=32, layers=2, steps=30, flow_steps=3, samples=5)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def problem() -> Problem:
    """An untrained model on the donut, whose data only ever move to the right."""
    world, data = Donut(), collect(1500, seeded())
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=0.9, hidden=16), seeded(1)).eval()
    tasks = {name: world.tasks[name] for name in ("square", "cross")}
    evidence = Evidence.gather(data, tasks, world.layout, samples=400, starts=10, generator=seeded(2))
    assert evidence.action is not None
    right = evidence.action.clone()
    right[:, 0] = right[:, 0].abs().clamp_min(0.2)
    return Problem(model, replace(evidence, action=right), "donut", tasks, world.layout)


def gaussian_field(mean: float, spread: float, x: Tensor, t: Tensor) -> Tensor:
    """E[a − ε | x_t = x] for a ~ N(mean, spread²): both are Gaussian, so the expectation is linear in x."""
    variance = (1 - t) ** 2 + (t * spread) ** 2
    off = x - t * mean
    return mean + (t * spread**2 - (1 - t)) / variance * off


def test_the_flow_of_a_gaussian_carries_noise_to_it() -> None:
    noise = torch.linspace(-2, 2, 9).double().unsqueeze(-1)
    carried = follow(lambda x, t: gaussian_field(0.2, 0.1, x, t), noise, 2000)
    torch.testing.assert_close(carried, 0.2 + 0.1 * noise, atol=2e-3, rtol=0)


def test_the_loss_is_least_for_the_true_field() -> None:
    actions = 0.2 + 0.1 * torch.randn(40_000, 1, generator=seeded()).double()

    def loss(shift: float) -> float:
        return float(
            flow_matching_loss(lambda x, t: gaussian_field(0.2, 0.1, x, t) + shift, actions, seeded(1))
        )

    assert loss(0.0) < loss(0.1) < loss(0.2)
    assert loss(0.0) < loss(-0.1)
    assert loss(0.1) - loss(0.0) == pytest.approx(0.01, abs=2e-3)  # shift²: the error is orthogonal to it


def test_steps_of_a_constant_field_add_up_and_stay_within_bounds() -> None:
    noise = torch.zeros(3, 2)
    half = torch.full_like(noise, 0.5)
    torch.testing.assert_close(follow(lambda x, t: half, noise, 7), half)
    assert follow(lambda x, t: torch.full_like(x, 5.0), noise, 2).max() == 1.0


@pytest.mark.parametrize("slope", [-3.0, 0.0, 2.0])
def test_a_guided_gaussian_is_the_behaviour_times_the_ratio(slope: float) -> None:
    """N(m, σ²) times e^{κa} is N(m + κσ², σ²): noise ε arrives at m + κσ² + σε."""
    mean, spread = 0.2, 0.1

    def plain(x: Tensor, t: Tensor) -> Tensor:
        return gaussian_field(mean, spread, x, t)

    bent = guided(plain, lambda a: slope * a.squeeze(-1), torch.tensor(spread**2).double())
    noise = torch.linspace(-2, 2, 9).double().unsqueeze(-1)
    expected = mean + slope * spread**2 + spread * noise
    torch.testing.assert_close(follow(bent, noise, 2000), expected, atol=2e-3, rtol=0)
    # Five steps are coarse, but even they shift all noise alike, by nearly as much.
    shift = follow(bent, noise, 5) - follow(plain, noise, 5)
    torch.testing.assert_close(shift, torch.full_like(noise, slope * spread**2), atol=4e-3, rtol=0)


def in_support_optimum(mdp: FiniteMDP, behaviour: Tensor, reward: Tensor) -> Tensor:
    """The best deterministic policy among actions that the behaviour takes, by value iteration."""
    V = torch.zeros(mdp.states, dtype=torch.float64)
    for _ in range(2000):
        Q = torch.einsum("sat,t->sa", mdp.transition, reward + mdp.discount * V)
        Q = torch.where(behaviour > 0, Q, -torch.inf)
        V = Q.amax(-1)
    return torch.nn.functional.one_hot(Q.argmax(-1), mdp.actions).double()


def pairs(mdp: FiniteMDP, policy: Tensor) -> Tensor:
    """d^π(s, a), ``[S, A]``, over the states in which actions are taken."""
    return mdp.occupancy(policy, "current").unsqueeze(-1) * policy


def test_cloning_with_exact_ratios_is_the_best_policy_within_the_support() -> None:
    mdp = random_mdp(6, 4, seeded(3))
    reward = torch.rand(6, generator=seeded(4)).double()
    behaviour = torch.rand(6, 4, generator=seeded(5)).double() + 0.2
    unlimited = mdp.optimal_policy(reward)
    behaviour = torch.where(unlimited > 0, 0.0, behaviour)  # the best actions of all are nowhere in the data
    behaviour /= behaviour.sum(-1, keepdim=True)
    best = in_support_optimum(mdp, behaviour, reward)
    assert not torch.equal(best, unlimited)
    seen = pairs(mdp, behaviour)
    ratio = torch.where(seen > 0, pairs(mdp, best) / seen, 0.0)

    # Every pair once, with its share of the data times its ratio as weight: exactly the best policy.
    weight = seen * ratio
    torch.testing.assert_close(weight / weight.sum(-1, keepdim=True), best)

    # And so is what a flow learns from them.
    state, action = torch.cartesian_prod(torch.arange(6), torch.arange(4)).unbind(-1)
    data = Transitions(torch.eye(6)[state], torch.eye(4)[action], torch.eye(6)[state])
    config = FlowConfig(hidden=64, layers=2, steps=500, batch_size=128, flow_steps=8)
    flow = fit_flow(data, config, seeded(6), weights=weight.flatten())
    learned = Cloned([flow], config.flow_steps)(torch.eye(6).unsqueeze(0))[0]
    assert torch.equal(learned.argmax(-1), best.argmax(-1))
    torch.testing.assert_close(learned, best.float(), atol=0.15, rtol=0)
    found = torch.nn.functional.one_hot(learned.argmax(-1), 4).double()
    assert mdp.value(found, reward) == pytest.approx(float(mdp.value(best, reward)))
    assert mdp.value(found, reward) > mdp.value(behaviour, reward)


def test_a_flow_without_weights_is_the_behaviour() -> None:
    """Two kinds of actions in one state, three times out of four the first: samples come in these shares."""
    action = torch.tensor([[0.5], [0.5], [0.5], [-0.5]]).repeat(100, 1)
    action += 0.1 * torch.randn(400, 1, generator=seeded(2))
    data = Transitions(torch.zeros(400, 1), action, torch.zeros(400, 1))
    config = FlowConfig(hidden=64, layers=2, steps=600, learning_rate=1e-2)
    flow = fit_flow(data, config, seeded())
    drawn = flow(torch.zeros(2000, 1), torch.randn(2000, 1, generator=seeded(1)), 30)
    assert float((drawn > 0).float().mean()) == pytest.approx(0.75, abs=0.06)
    assert float(drawn.abs().median()) == pytest.approx(0.5, abs=0.1)


def test_the_chosen_action_is_the_best_of_the_behaviours_own(problem: Problem) -> None:
    rule = supported_policy(problem, SMALL)
    obs = problem.evidence.obs[:6].reshape(2, 3, 2)
    chosen = rule(obs)
    for t in range(2):
        for e in range(3):
            actions = [rule.flow(obs[t, e], noise, SMALL.flow_steps) for noise in rule.noise]
            F = torch.stack([problem.model.forward(obs[t, e], rule.z[t], a) for a in actions])  # [k, P, d]
            worth = (F @ rule.critic.moment[t]).amin(-1)  # a pessimism of 0.5 is the minimum of two members
            torch.testing.assert_close(chosen[t, e], actions[int(worth.argmax())])
    torch.testing.assert_close(rule(obs[:, :1]), chosen[:, :1])  # whoever else is asked
    one = replace(rule, noise=rule.noise[:1])
    torch.testing.assert_close(one(obs), rule.flow(obs, rule.noise[0].expand_as(obs), SMALL.flow_steps))


@torch.no_grad()
def test_guided_actions_are_preferred_and_stay_near_the_behaviour(problem: Problem) -> None:
    """Bending raises the value of every sample on average; without heat nothing is bent."""
    config = GuidedConfig(**SMALL.updated(steps=400, hidden=64, flow_steps=5, imagined=False).model_dump())
    policy = guided_acting(problem, config).policy
    assert isinstance(policy, Guided)
    obs = problem.evidence.obs[:50].expand(2, -1, -1)
    (action, worth), (drawn, before) = policy.weigh(obs), Supported.weigh(policy, obs)
    spread = before.std(-1, correction=0)
    assert float(((worth - before).mean(-1) / spread).mean()) > 0.3
    assert float((action[..., 0] > 0).float().mean()) > 0.9  # the data move to the right
    cold = replace(policy, temperature=1e9)
    torch.testing.assert_close(cold.weigh(obs)[0], drawn, atol=1e-5, rtol=0)
    torch.testing.assert_close(policy(obs[:, :3]), policy(obs)[:, :3], atol=1e-5, rtol=1e-4)  # whoever else


def test_only_the_datas_actions_are_taken(problem: Problem) -> None:
    """The data move to the right everywhere; π_z does not."""
    rule = supported_policy(problem, SMALL.updated(steps=400, hidden=64))
    obs = problem.evidence.obs.expand(2, -1, -1)
    assert float((rule(obs)[..., 0] > 0).float().mean()) > 0.97
    own = problem.model.act(obs, problem.start.unsqueeze(1))
    assert float((own[..., 0] > 0).float().mean()) < 0.9


@pytest.mark.parametrize("how", ["advantage", "fb", "optidice"])
def test_weights_are_those_that_were_asked_for(problem: Problem, how: str) -> None:
    linear = OptiDICESettings(layers=0)
    config = WeightedBCConfig(**(SMALL.model_dump() | {"weights": how, "largest": 5.0}))
    data = Transitions.of(problem)
    w = transition_weights(problem, data, config, linear)
    assert w.shape == (2, 400)
    assert (w >= 0).all()
    assert w.mean(-1).tolist() == pytest.approx([1.0, 1.0], abs=1e-4)
    if how == "fb":
        model, starts = problem.model, problem.evidence.starts
        for t, z in enumerate(problem.start):
            mu = model.forward(starts, z, model.act(starts, z)).mean((0, 1))
            raw = (0.1 * model.backward(data.next_obs) @ mu).clamp_min(0)
            cut = (raw / raw.mean()).clamp_max(5.0)
            torch.testing.assert_close(w[t], cut / cut.mean(), rtol=1e-4, atol=1e-5)
    elif how == "optidice":
        best = optidice(problem.evidence, problem.evidence.rewards, 0.9, linear).weights
        cut = (best / best.mean(-1, keepdim=True)).clamp_max(5.0)
        torch.testing.assert_close(w, cut / cut.mean(-1, keepdim=True), rtol=1e-3, atol=1e-3)
    else:  # what the model prefers to the behaviour counts more
        rule = supported_policy(problem, config)
        states = data.obs.expand(2, -1, -1)
        better = rule.value(states.unsqueeze(-2), data.action.expand(2, -1, -1).unsqueeze(-2)).squeeze(-1)
        better = better > rule.weigh(states)[1].mean(-1)
        assert w[better].mean() > 1.5 * w[~better].mean()


def test_skills_act_and_are_not_mistaken_for_latents(problem: Problem) -> None:
    small = SMALL.model_dump()
    for name, settings in (("supported", SMALL), ("weighted-bc", WeightedBCConfig(**small, weights="fb"))):
        behaviour = solve(name, problem, settings)
        assert behaviour.policy is not None
        assert isinstance(behaviour.policy, Supported | Cloned)  # there is no learned world to ask
        latent, task = behaviour.found.latents()[1], problem.ordered_tasks[1]
        skill = Skill(problem.model, latent, task, behaviour, 1)
        obs = problem.evidence.obs[:7]
        acted = skill.act(obs)
        assert acted.shape == (7, 2)
        torch.testing.assert_close(acted, behaviour.policy(obs.expand(2, -1, -1))[1])
        with pytest.raises(DataError, match="more than one latent"):
            skill.single_latent()


def test_mistakes_are_explained(problem: Problem) -> None:
    bare = replace(problem, evidence=replace(problem.evidence, before=None))
    with pytest.raises(CheckpointError, match="whole transitions"):
        solve("supported", bare, SMALL)
    with pytest.raises(DataError, match="no transition of the sample"):
        fit_flow(Transitions.of(problem), SMALL, seeded(), weights=torch.zeros(400))


def test_observations_are_normalised_by_the_sample() -> None:
    obs = 100 + 5 * torch.randn(500, 3, generator=seeded())
    flow = ActionFlow(obs, 2, hidden=8, layers=1, generator=seeded(1))
    seen: list[Tensor] = []
    flow.field.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    flow(obs, torch.zeros(500, 2), 1)
    assert seen[0].mean(0).abs().max() < 1e-3
    assert float((seen[0].std(0) - 1).abs().max()) < 1e-2


@pytest.fixture(scope="module")
def rehearsable(problem: Problem) -> Problem:
    """The same problem with a learned world that has hardly learned anything."""
    data = collect(1500, seeded())
    learned = learn_world(data, problem.layout, WorldConfig(steps=20, batch_size=32, width=16))
    return replace(problem, dynamics=learned)


def test_a_policy_gains_what_it_earns_more_in_the_learned_world(
    rehearsable: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member, one start state and one step at a time, for a policy that always does the same."""
    monkeypatch.setattr(imagined_choice, "HORIZON", 3)
    monkeypatch.setattr(imagined_choice, "STARTS", 4)
    still = torch.tensor([0.3, -0.2])
    other, plain = imagined_choice.imagined(rehearsable, lambda obs: still.expand_as(obs))
    learned = rehearsable.learned_world()
    earned = torch.zeros(2, 2, learned.dynamics.members, 4)  # still or π_z, task, member, start
    for t, (task, z) in enumerate(zip(rehearsable.ordered_tasks, rehearsable.start, strict=True)):
        for s, start in enumerate(learned.starts[:4]):
            for kind in range(2):
                x = start.expand(learned.dynamics.members, 1, -1)
                for _ in range(3):
                    action = (
                        still.expand(*x.shape[:-1], 2) if kind == 0 else rehearsable.model.act(x[..., :2], z)
                    )
                    with torch.no_grad():
                        x = learned.dynamics(x, action.clamp(-1, 1), None)
                    earned[kind, t, :, s] += task(States(x[:, 0, :2], rehearsable.layout)) / 3
    torch.testing.assert_close(torch.stack([other, plain]), earned, atol=1e-5, rtol=1e-4)
    difference = earned[0] - earned[1]
    gain, error = imagined_choice.mean_and_error(difference)
    torch.testing.assert_close(gain, difference.mean((1, 2)))
    by_start, by_member = difference.mean(1), difference.mean(2)
    torch.testing.assert_close(error, (by_start.var(-1) / 4 + by_member.var(-1) / by_member.shape[1]).sqrt())


@pytest.mark.parametrize(
    ("other", "plain", "by_ratio", "taken"),
    [
        (0.6, 0.1, 0.3, True),  # more than π_z by both accounts
        (0.2, 0.17, 0.0, False),  # less than two standard errors more than π_z in the learned world
        (0.6, 0.7, 0.3, False),  # less than π_z in the learned world
        (0.012, 0.003, 0.086, False),  # significantly more, of a reward that the learned world hardly sees
        (0.6, 0.1, 0.55, False),  # more than the ratio says, but within the error of that
    ],
)
def test_a_policy_must_earn_more_by_both_accounts(
    rehearsable: Problem,
    monkeypatch: pytest.MonkeyPatch,
    other: float,
    plain: float,
    by_ratio: float,
    taken: bool,
) -> None:
    """Two tasks: one with these numbers, and one on which nothing is gained; errors are 1/12 of J_other."""
    unit = torch.tensor([-1.0, 1.0]).repeat(8)  # of mean zero; over 16 starts its standard error is 0.258
    spread = 1 + unit / (12 * float(unit.std() / 4))
    imagined = torch.tensor([other, 0.5])[:, None, None] * spread.expand(2, 3, 16)
    still = torch.tensor([plain, 0.5])[:, None, None] * torch.ones(2, 3, 16)
    monkeypatch.setattr(imagined_choice, "imagined", lambda *_: (imagined, still))
    found = solve("fb", rehearsable).found
    found = replace(found, estimate=torch.tensor([[by_ratio, 0.1]]))
    behaviour = imagined_choice.chosen(rehearsable, found, torch.zeros_like)
    assert behaviour.policy is not None
    told = behaviour.found.diagnostics
    assert told["changed"].tolist() == [[float(taken), 0.0]]
    assert told["imagined_gain"][0, 0] == pytest.approx(other - plain)
    assert told["excess"][0, 0] == pytest.approx(other - by_ratio)
    assert told["imagined"][0].tolist() == pytest.approx([other if taken else plain, 0.5])
    obs = rehearsable.evidence.obs[:6].expand(2, -1, -1)
    own = rehearsable.model.act(obs, rehearsable.start.unsqueeze(1))
    acted = behaviour.policy(obs)
    torch.testing.assert_close(acted[0], torch.zeros_like(acted[0]) if taken else own[0])
    torch.testing.assert_close(acted[1], own[1])


def test_a_policy_that_is_the_models_own_gains_nothing(rehearsable: Problem) -> None:
    z = rehearsable.start.unsqueeze(1)
    other, plain = imagined_choice.imagined(rehearsable, lambda obs: rehearsable.model.act(obs, z))
    torch.testing.assert_close(other, plain, atol=1e-6, rtol=0)
    found = solve("fb", rehearsable).found
    told = imagined_choice.chosen(rehearsable, found, lambda obs: rehearsable.model.act(obs, z)).found
    assert told.diagnostics["changed"].tolist() == [[0.0, 0.0]]
