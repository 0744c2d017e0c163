"""Every method of the registry runs on a tiny problem, under one signature; every benchmark is whole."""

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch

from zol.adapt import (
    METHODS,
    Behaviour,
    Problem,
    RehearsalConfig,
    ZOLConfig,
    find_method,
    method_summary,
    solve,
    zol_auto,
)
from zol.adapt.paper_settings import BEST
from zol.adapt.problem import Method
from zol.adapt.result import IN_UNITS_OF_REWARD
from zol.adapt.units import in_own_units
from zol.bench import BENCHMARKS
from zol.bench.benchmark import Benchmark, world_of
from zol.collect.donut import collect
from zol.common.config import Config
from zol.common.errors import ZolError
from zol.evidence import Evidence
from zol.models.fb import FBConfig, fb_network
from zol.tasks.humenv import REWARDS
from zol.train.learned_world import WorldConfig, learn_world
from zol.value.task_critic import TaskCriticSettings
from zol.worlds import make
from zol.worlds.donut import Donut

# What makes a method quick; the others are quick as they are.
SMALL: dict[str, dict[str, object]] = {
    "switches": {"least": 1},
    "zol": {"steps": 3},
    "zol-authors": {"steps": 3},
    "perturb": {"as_far_as": ZOLConfig(steps=3)},
    "supported": {"steps": 3, "hidden": 16, "flow_steps": 2, "samples": 3},
    "guided": {"steps": 3, "hidden": 16, "flow_steps": 2, "samples": 3},
    "weighted-bc": {"steps": 3, "hidden": 16, "flow_steps": 2, "samples": 3},
    "tune": {"steps": 3, "batch_size": 16},
    "episodes": {"horizon": 3, "goals": 2, "starts": 2, "final_starts": 2},
    "rehearse": {"horizon": 3, "rounds": 1, "population": 2, "goals": 2, "random_latents": 2},
    "agreed": {
        "rehearsal": RehearsalConfig(horizon=3, rounds=1, population=2, goals=2, random_latents=2),
        "critic": TaskCriticSettings(steps=3, hidden=8, horizons=0.5),
    },
    "lola": {"environment_steps": 40, "horizon": 2, "samples": 4},
    "rela": {"environment_steps": 24, "warmup": 4, "batch_size": 8},
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def problem() -> Problem:
    world, data = Donut(), collect(1000, generator())
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=0.9, hidden=16), generator(1))
    tasks = {name: world.tasks[name] for name in ("square", "cross")}
    evidence = Evidence.gather(data, tasks, world.layout, samples=300, starts=10, generator=generator(2))
    learned = learn_world(data, world.layout, WorldConfig(steps=20, batch_size=32, width=16))
    return Problem(model, evidence, "donut", tasks, world.layout, world, learned)


def suited(problem: Problem, method: Method[Any]) -> Problem:
    """The problem, on the donut; with two facts, the side of each axis, for a method that asks for facts."""
    if method.suits is None or method.suits(problem.layout):
        return problem
    quarter = {"buttons": lambda states: (states["position"] > 0).float()}
    return replace(problem, layout=replace(problem.layout, derived={**problem.layout.derived, **quarter}))


@pytest.fixture
def settings_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the paper had tested the donut."""
    for task in ("square", "cross"):
        monkeypatch.setitem(BEST, ("donut", task), (5e-4, 3, 0.0, 0.05, 100.0))


@pytest.mark.usefixtures("settings_of_the_paper")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_solves_a_problem(problem: Problem, name: str) -> None:
    method = METHODS[name]
    assert len(inspect.signature(method.adapt).parameters) == 2
    assert isinstance(method.settings, Config)
    small = method.settings.updated(**SMALL.get(name, {}))
    problem = suited(problem, method)
    runs = [solve(name, problem, small) for _ in range(2)]
    found = runs[0].found
    assert isinstance(runs[0], Behaviour)
    assert method.single_latent == (
        runs[0].policy is None
    )  # known beforehand: what can be saved and exported
    assert torch.equal(found.z, runs[1].found.z)  # the same seed, the same bits
    assert found.method == name
    assert found.z.shape == (1, 2, 8)
    assert found.estimate.shape == (1, 2)
    assert bool(found.estimate.isfinite().all())
    torch.testing.assert_close(found.z, problem.model.project(found.z))
    assert [latent.task for latent in found.latents()] == ["square", "cross"]
    if method.uses == "environment":
        assert bool((found.diagnostics["environment_steps"] > 0).all())


def scaled(problem: Problem, factor: float) -> Problem:
    """The problem with all rewards in another unit."""
    tasks = {name: (factor * task).named(name) for name, task in problem.tasks.items()}
    evidence = replace(problem.evidence, rewards=(problem.evidence.rewards.double() * factor).float())
    return replace(problem, tasks=tasks, evidence=evidence)


@pytest.mark.usefixtures("settings_of_the_paper")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in ("zol-auto", "gpi") else n for n in METHODS]
)
def test_the_unit_of_a_reward_changes_no_latent(
    problem: Problem, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 1e-30 to 1e30: powers of two to the last bit, other factors to one part in ten thousand."""
    short = tuple(settings.updated(steps=3) for settings in zol_auto.SETTINGS)
    monkeypatch.setattr(zol_auto, "SETTINGS", short)  # rehearsal's candidates
    assert problem.evidence.rewards.amax(-1).tolist() == [1.0, 1.0]
    small, problem = METHODS[name].settings.updated(**SMALL.get(name, {})), suited(problem, METHODS[name])
    if name == "rehearse":  # a world that nobody would trust, and a search all the same
        anything = {"min_correlation": -1.0, "min_correlation_prompts": -1.0, "max_one_step_error": 1e9}
        small = small.updated(**anything, min_gain=0.0, margin=0.0)
    expected = solve(name, problem, small).found
    for factor in (2.0**-100, 2.0**100, 1e-30, 1e30):
        found = solve(name, scaled(problem, factor), small).found
        exact = factor in (2.0**-100, 2.0**100)
        if exact:
            assert torch.equal(found.z, expected.z)
        torch.testing.assert_close(found.z, expected.z, rtol=1e-4, atol=1e-4)
        for got, plain in [(found.estimate, expected.estimate)] + [
            (found.diagnostics[key], expected.diagnostics[key])
            for key in expected.diagnostics.keys() & IN_UNITS_OF_REWARD
        ]:
            torch.testing.assert_close(got / factor, plain.double(), rtol=1e-3, atol=1e-4)
    assert expected.method == name


def test_rewards_of_ordinary_size_reach_methods_as_they_are(problem: Problem) -> None:
    for factor in (2.0**-20, 1.0, 0.3, 2.0**19):
        given = scaled(problem, factor)
        assert in_own_units(given)[0] is given
    mixed = replace(
        problem,
        evidence=replace(problem.evidence, rewards=problem.evidence.rewards * torch.tensor([[1.0], [1e9]])),
    )
    inside, unit = in_own_units(mixed)
    assert unit.tolist() == [1.0, 1e9]
    assert inside.tasks["square"] is problem.tasks["square"]
    torch.testing.assert_close(inside.evidence.rewards, problem.evidence.rewards)


@pytest.mark.usefixtures("settings_of_the_paper")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_needs(problem: Problem, name: str) -> None:
    method = METHODS[name]
    assert method.uses in ("offline", "environment", "weights")
    assert method_summary(name)
    assert (method.revision > 1) == bool(method.correction)
    small = method.settings.updated(**SMALL.get(name, {}))
    bare = replace(suited(problem, method), world=None, dynamics=None)
    if method.uses == "environment":
        with pytest.raises(ZolError, match="no world was given"):
            solve(name, bare, small)
    elif method.needs_learned_world:
        with pytest.raises(ZolError, match="no learned world"):
            solve(name, bare, small)
    else:
        solve(name, bare, small)


@pytest.mark.usefixtures("settings_of_the_paper")
@pytest.mark.parametrize("name", METHODS)
def test_gradients_may_be_switched_off_around_every_method(problem: Problem, name: str) -> None:
    """A user's natural habit at test time."""
    small, problem = METHODS[name].settings.updated(**SMALL.get(name, {})), suited(problem, METHODS[name])
    wanted = solve(name, problem, small).found.z
    with torch.no_grad():
        assert torch.equal(solve(name, problem, small).found.z, wanted)


@pytest.mark.parametrize("value", ["", "[", "1" * 5000, "[" * 100_000, "walk"])
def test_a_value_that_is_none_is_a_sentence(value: str) -> None:
    with pytest.raises(ZolError, match="changes no setting of zol"):
        find_method(f"zol steps={value}")


def test_settings_behind_a_name_are_a_method_of_their_own() -> None:
    changed = find_method("rehearse horizon=50 noise=1.0")
    assert changed.settings == METHODS["rehearse"].settings.updated(horizon=50, noise=1.0)
    assert changed.adapt is METHODS["rehearse"].adapt
    assert method_summary("rehearse horizon=50 noise=1.0") == "rehearse with horizon=50, noise=1.0"
    assert changed.key() == changed.settings.model_dump() | {"revision": 2}
    assert METHODS["lola"].key() == METHODS["lola"].settings.model_dump()  # nothing changed, nothing said
    assert METHODS["fb"].key() == {}
    for wrong, words in (
        ("rehears", "did you mean 'rehearse'"),
        ("zol step=3", "did you mean 'steps'"),
        ("zol steps", "write field=value"),
        ("ridge ridge=1", "ridge has no settings to change"),
        ("", "no method called ''"),
    ):
        with pytest.raises(ZolError, match=words):
            find_method(wrong)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_whole(name: str) -> None:
    benchmark = BENCHMARKS[name]
    assert isinstance(benchmark, Benchmark)
    assert inspect.getdoc(benchmark.run)
    assert BENCHMARKS.summary(name)
    for method in benchmark.methods:
        find_method(method)
    for domain, tasks in benchmark.tasks.items():
        # HumEnv's body is not ours to install; its rewards are.
        known = REWARDS if domain == "humenv" else make(world_of(domain)).tasks
        assert set(tasks) - benchmark.joint <= set(known)
    assert benchmark.joint <= {name for tasks in benchmark.tasks.values() for name in tasks}
