"""Terminal states, success, goals and starts per task: rollouts against closed forms on a corridor."""

import math

import pytest
import torch
from present import present
from torch import Tensor

from zol.common.errors import DataError
from zol.models.base import Latent, identity
from zol.rollout import Rollouts, evaluate, random_returns, start_states
from zol.tasks import Task
from zol.tasks.grouped import grouped_rewards
from zol.testing.exact import ExactFB
from zol.worlds.tabular import FiniteMDP, TabularWorld, corridor, random_mdp

LENGTH = 9
ENDS = torch.tensor([0, LENGTH - 1])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def towards(p_right: Tensor) -> Tensor:
    """A policy [S, A] that goes right with these probabilities."""
    return torch.stack([1 - p_right, p_right], dim=-1).double()


def play(world: TabularWorld, names: list[str], policy: Tensor, episodes: int, **options) -> Rollouts:
    """Roll out one deterministic policy [S, A] under several tasks."""
    mdp = world.mdp
    model = ExactFB(mdp, torch.full((mdp.states,), 1 / mdp.states, dtype=torch.float64))
    latents = [Latent(torch.ones(mdp.states).double(), identity(model), name, "test") for name in names]
    table = 2 * policy.float() - 1
    return evaluate(
        world,
        model,
        latents,
        episodes=episodes,
        generator=options.pop("generator", seeded(5)),
        policy=lambda obs: obs.float() @ table,
        **options,
    )


RIGHT = towards(torch.ones(LENGTH))
LEFT = towards(torch.zeros(LENGTH))
INWARDS = towards((torch.arange(LENGTH) < LENGTH // 2).float())


def rewards_of(world: TabularWorld, name: str) -> Tensor:
    every = world.set_physics(torch.arange(world.mdp.states).double().unsqueeze(-1))
    return world.tasks[name](every).double()


@pytest.mark.parametrize("policy", [RIGHT, LEFT, INWARDS], ids=["right", "left", "inwards"])
def test_without_chance_every_episode_earns_its_value(policy: Tensor) -> None:
    world, names = corridor(slip=0.0), ["right", "left", "middle", "right"]
    found = play(world, names, policy, episodes=6)
    starts = start_states(world, [world.tasks[n] for n in names], 6, seeded(5)).squeeze(-1).long()
    gamma = world.discount
    for k, name in enumerate(names):
        r = rewards_of(world, name)
        assert torch.equal(found.returns[k], world.mdp.episode_return(policy, r, 30)[starts[k]])
        discounted = (1 - gamma) * world.mdp.episode_return(policy, r, 30, gamma)
        torch.testing.assert_close(found.discounted[k], discounted[starts[k]])
        if name != "middle":
            target = rewards_of(world, name) > 0
            chance = world.mdp.reach_probability(policy, target, 30)[starts[k]]
            assert torch.equal(present(found.success)[k], chance)
            assert torch.equal(present(found.success_at_end)[k], chance)  # both ends are terminal
    assert present(found.success)[2].isnan().all()
    steps = {"right": LENGTH - 1 - starts, "left": starts, "inwards": torch.full_like(starts, 30)}
    which = next(n for n, p in (("right", RIGHT), ("left", LEFT), ("inwards", INWARDS)) if p is policy)
    assert torch.equal(found.lengths, steps[which])


@pytest.mark.parametrize("policy", [RIGHT, INWARDS], ids=["right", "inwards"])
def test_with_chance_means_are_the_closed_form(policy: Tensor) -> None:
    world, names, episodes = corridor(slip=0.3), ["right", "left", "middle"], 4000
    found = play(world, names, policy, episodes)
    starts = start_states(world, [world.tasks[n] for n in names], episodes, seeded(5)).squeeze(-1).long()
    for k, name in enumerate(names):
        r = rewards_of(world, name)
        expected = [(found.returns[k], world.mdp.episode_return(policy, r, 30))]
        if name != "middle":
            expected.append((present(found.success)[k], world.mdp.reach_probability(policy, r > 0, 30)))
        for values, exact in expected:
            error = float((values - exact[starts[k]]).mean().abs())
            assert error < 4 * float(values.std()) / math.sqrt(episodes) + 1e-12, name
    # A world without terminal states, as rollouts saw it before, would earn more: the ends throw back.
    endless = FiniteMDP(world.mdp.transition, world.mdp.start, world.discount)
    r = rewards_of(world, "right")
    naive = endless.episode_return(RIGHT, r, 30) - world.mdp.episode_return(RIGHT, r, 30)
    assert float(naive.min()) > 1


def test_random_actions_earn_the_closed_form() -> None:
    world, episodes = corridor(slip=0.1), 4000
    tasks = list(world.tasks.values())
    found = random_returns(world, tasks, episodes=episodes, generator=seeded())
    half = towards(torch.full((LENGTH,), 0.5))
    starts = start_states(world, tasks, episodes, seeded()).squeeze(-1).long()
    for k, task in enumerate(tasks):
        exact = world.mdp.episode_return(half, rewards_of(world, task.name), 30)[starts[k]]
        error = float((found[k] - exact).mean().abs())
        assert error < 4 * float(found[k].std()) / math.sqrt(episodes)


def test_an_episode_that_is_over_stays_where_it_ended() -> None:
    world = corridor(slip=0.0)
    found = play(world, ["middle"], RIGHT, episodes=2, keep_visited=True, steps=12)
    cells = present(found.visited).argmax(-1).squeeze(1)  # [steps, E]; played until the last episode was over
    assert cells[:, 0].tolist() == [5, 6, 7, 8]
    both = play(world, ["right", "left"], RIGHT, episodes=1, keep_visited=True, steps=12)
    cells = present(both.visited).argmax(-1).squeeze(-1)
    assert int(cells[-1, 1]) == LENGTH - 1
    assert (cells[int(both.lengths[1, 0]) :, 1] == LENGTH - 1).all()


def test_success_may_end_an_episode() -> None:
    """Minus one per step until the middle is reached: the return is minus the number of steps but one."""
    world = corridor(slip=0.0)
    cost = Task(
        "hurry",
        lambda s: s["state"][..., 4] - 1.0,
        starts=world.tasks["right"].starts,
        success=lambda s: s["state"][..., 4] > 0.5,
        ends_at_success=True,
    )
    patient = Task("patient", cost.reward, starts=cost.starts, success=cost.success)
    world.tasks = {"hurry": cost, "patient": patient}
    found = play(world, ["hurry", "patient"], RIGHT, episodes=8)
    starts = start_states(world, [cost], 8, seeded(5))[0, :, 0]
    assert torch.equal(found.lengths[0].double(), 4 - starts)
    assert torch.equal(found.returns[0], -(4 - starts - 1))
    assert present(found.success).eq(1).all()
    assert present(found.success_at_end).tolist() == [
        [1.0] * 8,
        [0.0] * 8,
    ]  # the patient walk on, to the right end
    assert torch.equal(found.returns[1], found.returns[0] - 4)
    random = random_returns(world, [cost, patient], episodes=500, generator=seeded())
    assert (random[0] >= random[1]).all()
    assert (random[0] > random[1]).any()


def test_starts_are_paired_and_do_not_depend_on_the_company() -> None:
    world = corridor()
    right, left, middle = world.tasks.values()
    together = start_states(world, [middle, right, left, right], 20, seeded(3))
    assert torch.equal(together[1], together[3])
    assert torch.equal(together[1], start_states(world, [right], 20, seeded(3))[0])
    assert torch.equal(together[0], start_states(world, [middle], 20, seeded(3))[0])
    assert set(together[1].flatten().tolist()) == {1.0, 2.0}
    assert (together[0] == LENGTH // 2).all()


def test_wrong_starts_are_explained() -> None:
    world = corridor()
    broken = Task("broken", world.tasks["right"].reward, starts=lambda n, generator: torch.zeros(n, 3))
    with pytest.raises(DataError, match=r"start states of task 'broken' have shape \(4, 3\).*\(4, 1\)"):
        start_states(world, [broken], 4, seeded())


def test_no_success_without_a_test_of_it() -> None:
    world = corridor()
    found = play(world, ["middle"], RIGHT, episodes=2)
    assert found.success is None
    assert found.success_at_end is None


def test_successor_measures_stop_at_terminal_states() -> None:
    g = seeded(1)
    open_mdp = random_mdp(5, 3, g)
    terminal = torch.tensor([False, True, False, False, True])
    mdp = FiniteMDP(open_mdp.transition, open_mdp.start, open_mdp.discount, terminal)
    policy = torch.rand(5, 3, generator=g, dtype=torch.float64)
    policy /= policy.sum(-1, keepdim=True)
    here, total = mdp.transition, torch.zeros(5, 3, 5, dtype=torch.float64)
    for t in range(400):
        total += mdp.discount**t * here
        here = torch.einsum("sat,tb,tbu->sau", here * ~terminal, policy, mdp.transition)
    torch.testing.assert_close(mdp.successor(policy), total)
    pairs = mdp.successor_pairs(policy).reshape(5, 3, 5, 3)
    after = torch.einsum("satb,tb->sat", pairs[:, :, ~terminal], torch.ones(3, 3, dtype=torch.float64))
    current = torch.eye(5, dtype=torch.float64).unsqueeze(1) + mdp.discount * total
    torch.testing.assert_close(after, current.expand(-1, 3, -1)[:, :, ~terminal])
    r = torch.rand(5, generator=g, dtype=torch.float64)
    best = mdp.optimal_policy(r)
    values = [
        mdp.value(torch.nn.functional.one_hot(torch.tensor(choice), 3).double(), r)
        for choice in torch.cartesian_prod(*[torch.arange(3)] * 5).tolist()
    ]
    assert float(mdp.value(best, r)) == pytest.approx(float(max(values)))
    # The exact model of such an MDP has its measure: FᵀB ρ = M.
    density = torch.full((5,), 0.2, dtype=torch.float64)
    model = ExactFB(mdp, density)
    z = torch.randn(5, generator=g, dtype=torch.float64)
    obs = torch.eye(5, dtype=torch.float64)
    F = model.forward(obs, z, torch.eye(3, dtype=torch.float64)[0].expand(5, 3))[0]
    torch.testing.assert_close(F @ model.backward(obs).mT * density, mdp.successor(model.policy(z))[:, 0])


class TestArithmeticOfTasks:
    reach = Task(
        "reach",
        lambda s: s["state"][..., 0],
        starts=lambda n, g: torch.ones(n, 1),
        goal=torch.ones(3),
        success=lambda s: s["state"][..., 0] > 0,
        ends_at_success=True,
    )
    effort = Task("effort", lambda s: s["state"][..., 1])
    other = Task(
        "other",
        reach.reward,
        starts=lambda n, g: torch.zeros(n, 1),
        goal=torch.zeros(3),
        success=lambda s: s["state"][..., 2] > 0,
    )

    def same(self, one: Task, other: Task, *names: str) -> bool:
        return all(getattr(one, name) is getattr(other, name) for name in names)

    EVERYTHING = ("starts", "goal", "success", "ends_at_success")

    def test_what_only_one_has_is_kept(self) -> None:
        for task in (self.reach + self.effort, self.effort + self.reach, self.reach - self.effort):
            assert self.same(task, self.reach, *self.EVERYTHING)
        assert self.same(self.reach * self.effort, self.reach, *self.EVERYTHING)
        assert self.same(self.reach + 0.5 * self.reach, self.reach, *self.EVERYTHING)

    def test_scaling_masking_and_naming_keep_everything(self) -> None:
        masked = self.reach.where(lambda s: s["state"][..., 1] > 0)
        for task in (2 * self.reach, masked, self.reach.named("other name")):
            assert self.same(task, self.reach, *self.EVERYTHING)

    def test_what_both_have_is_dropped(self) -> None:
        both = self.reach + self.other
        assert (both.starts, both.goal, both.success, both.ends_at_success) == (None, None, None, False)

    def test_what_is_not_wanted_has_no_success(self) -> None:
        for task in (-1.0 * self.reach, self.effort - self.reach):
            assert self.same(task, self.reach, "starts")
            assert (task.goal, task.success, task.ends_at_success) == (None, None, False)

    def test_tasks_are_compared_and_hashed_whatever_their_goal(self) -> None:
        assert len({self.reach, self.other, self.reach.named("reach")}) == 2

    def test_ending_at_success_needs_a_test(self) -> None:
        with pytest.raises(DataError, match="ends at success, but has no test"):
            Task("x", self.effort.reward, ends_at_success=True)
        with pytest.raises(DataError, match="has no test of success"):
            self.effort.succeeded(corridor().reset(2, seeded()))

    def test_shapes_are_checked(self) -> None:
        wrong = Task("x", self.effort.reward, success=lambda s: s["state"] > 0)
        with pytest.raises(DataError, match="gives one truth value per state"):
            wrong.succeeded(corridor().reset(2, seeded()))


def test_equal_tasks_that_are_two_objects_are_both_scored() -> None:
    world = corridor()
    one = world.tasks["middle"]
    twin = Task(one.name, one.reward, one.description)
    assert one == twin
    states = world.reset(4, seeded())
    stack = type(states)(states.obs.unsqueeze(0), states.layout)
    assert grouped_rewards([one, twin], stack).tolist() == [[[1.0, 1.0], [1.0, 1.0]]]
