"""Every registered estimator keeps the contract: latents in, estimates with intervals out."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from zol.collect.donut import collect
from zol.common.errors import CheckpointError, DataError, ZolError
from zol.evidence import Evidence
from zol.fields import States
from zol.imagination.dynamics import Dynamics, DynamicsConfig, DynamicsLearner
from zol.imagination.learned_world import LearnedWorld
from zol.models.fb import FBConfig, fb_network
from zol.value import ESTIMATORS, Estimator, ValueProblem
from zol.worlds.donut import Donut


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def problem() -> ValueProblem:
    """An untrained model with everything that an estimator may ask for."""
    world, data = Donut(), collect(2_000, seeded())
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=6, hidden=16)).eval()
    dynamics = Dynamics(DynamicsConfig(obs_dim=2, action_dim=2, hidden=16, members=3), seeded(1))
    DynamicsLearner(dynamics, data, world.layout)  # takes the statistics of the data
    learned = LearnedWorld.gather(dynamics, data, world.layout, seeded(2), held_out=1)
    tasks = list(world.tasks.values())[:3]
    evidence = Evidence.gather(data, tasks, world.layout, samples=300, starts=20, generator=seeded(3))
    return ValueProblem(model, evidence, tasks, world.layout, learned, seeded(4))


@pytest.fixture(scope="module")
def z(problem: ValueProblem) -> Tensor:
    return problem.model.project(torch.randn(5, 6, generator=seeded(5)))


def quick(name: str) -> Estimator:
    """The estimator with networks so small and so briefly trained that a test can wait for them."""
    estimator = ESTIMATORS[name]
    if estimator.settings is None:
        return estimator
    return replace(estimator, settings=estimator.settings.updated(steps=5, hidden=8))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimates_have_the_promised_form(problem: ValueProblem, z: Tensor, name: str) -> None:
    estimator = quick(name)
    found = estimator.estimate(problem, z)
    assert found.mean.shape == found.error.shape == (5, 3)
    assert found.mean.isfinite().all()
    assert (found.error >= 0).all()
    assert not found.mean.requires_grad
    assert ((found.low <= found.mean) & (found.mean <= found.high)).all()
    assert found.seconds > 0
    assert all(value.shape in ((5,), (5, 3)) for value in found.diagnostics.values())
    assert all((ESTIMATORS.summary(name), estimator.formula, estimator.interval, estimator.cost))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if not ESTIMATORS[name].shared])
def test_a_latent_is_valued_alike_alone_and_among_others(problem: ValueProblem, z: Tensor, name: str) -> None:
    together = quick(name).estimate(replace(problem, generator=seeded(4)), z)
    alone = quick(name).estimate(replace(problem, generator=seeded(4)), z[3:4])
    torch.testing.assert_close(alone.mean, together.mean[3:4], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone.error, together.error[3:4], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimates_are_in_units_of_reward(problem: ValueProblem, z: Tensor, name: str) -> None:
    tasks = [2.0 * task for task in problem.tasks]
    evidence = replace(
        problem.evidence, tasks=tuple(task.name for task in tasks), rewards=2 * problem.evidence.rewards
    )
    once = quick(name).estimate(replace(problem, generator=seeded(4)), z)
    twice = quick(name).estimate(replace(problem, tasks=tasks, evidence=evidence, generator=seeded(4)), z)
    torch.testing.assert_close(twice.mean, 2 * once.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(twice.error, 2 * once.error, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_mistakes_are_explained(problem: ValueProblem, z: Tensor, name: str) -> None:
    estimator = ESTIMATORS[name]
    with pytest.raises(DataError, match=r"shape \(6,\); an estimator wants \[K, 6\]"):
        estimator.estimate(problem, z[0])
    with pytest.raises(DataError, match="same tasks in the same order"):
        estimator.estimate(replace(problem, tasks=list(problem.tasks)[::-1]), z)


def test_what_an_estimator_lacks_is_named(problem: ValueProblem, z: Tensor) -> None:
    plain = ValueProblem(problem.model, problem.evidence)
    needy = [name for name in ESTIMATORS if ESTIMATORS[name].needs_learned_world]
    assert needy
    for name in needy:
        with pytest.raises(CheckpointError, match="needs a learned world"):
            ESTIMATORS[name].estimate(plain, z)
        with pytest.raises(CheckpointError, match="layout of observations"):
            ESTIMATORS[name].estimate(replace(plain, learned_world=problem.learned_world), z)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if ESTIMATORS[name].needs_transitions])
def test_whole_transitions_are_asked_for_and_stretches_of_experience_serve(
    problem: ValueProblem, z: Tensor, name: str
) -> None:
    """A sample of next states alone is refused, unless a learned world brought experience along."""
    states_only = replace(problem, evidence=replace(problem.evidence, before=None))
    estimator, learned = ESTIMATORS[name], problem.learned_world
    assert estimator.missing(problem) == estimator.missing(states_only) == ""
    with pytest.raises(CheckpointError, match="needs whole transitions"):
        estimator.estimate(replace(states_only, learned_world=None), z)
    found = states_only.transitions
    assert found is not None
    assert learned is not None
    assert found.before is not None
    assert found.action is not None
    torch.testing.assert_close(found.before[1], learned.states[0, 1])
    torch.testing.assert_close(found.obs[1], learned.states[0, 2])
    torch.testing.assert_close(found.action[1], learned.actions[0, 1])
    world = Donut()
    wanted = torch.stack([task(States(found.obs, world.layout)) for task in problem.tasks])
    torch.testing.assert_close(found.rewards, wanted.float())


def test_an_unknown_estimator_is_answered_with_the_nearest() -> None:
    with pytest.raises(ZolError, match="did you mean 'ratio'"):
        ESTIMATORS["ration"]
