"""``zol bench family``: every model that learns from data, with the same steps, in two small worlds.

donut        20,000 steps of short random walks; 64 test episodes per task, from the same states for all
four_rooms   20,000 steps of random walks; for each of the 104 cells as a goal, the exact value of the policy
             in per cent of the optimum (zol.worlds.tabular): one "episode" per goal, nothing is sampled

All models have the preset ``quick``. Each is prompted in its own way and by ridge regression, successor
features by E[φ r], too. Cells stand in a store like those of the other benchmarks: ``zol report`` shows what
models earn beside FB.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zol import prompt
from zol.adapt.prompts import prompt_name, prompted
from zol.bench.benchmark import Benchmark
from zol.bench.conditions import Conditions, kind_of
from zol.bench.results import gather
from zol.bench.run import STORE
from zol.bench.sections import conclusion, verdict
from zol.bench.store import Key, Result, Store, canonical, now, stamp
from zol.collect.donut import collect
from zol.common.errors import ZolError, unknown_name
from zol.common.provenance import command
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.evidence import Evidence
from zol.models.base import identity
from zol.models.network import Network
from zol.models.pretraining import Pretraining
from zol.prompt import RewardPrompt
from zol.report import print_table
from zol.rollout import evaluate
from zol.train import pretrain
from zol.train.planning import entry_of
from zol.worlds.donut import TASKS, Donut
from zol.worlds.tabular import four_rooms

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fb": ("fb", {}),
    "one_step_fb": ("one_step_fb", {}),
    "laplacian": ("laplacian", {}),
    "hilp": ("hilp", {}),
    "hilp_sphered": ("hilp", {"sphered": True}),
    "byol_gamma": ("successor_features", {"features": "byol_gamma"}),
    "td_jepa": ("td_jepa", {}),
    "td_jepa_symmetric": ("td_jepa", {"symmetric": True}),
    "fb_encoder": ("fb", {"encoder": "shallow"}),
    "fb_flow": ("fb", {"actor": "flow", "bc": 0.3}),
}
"""What is trained: a name, its entry in ``MODELS``, and its settings beside those of the preset."""
WORLDS = ("donut", "four_rooms")
TRANSITIONS, WALK, SAMPLES, EPISODES = 20_000, 10, 5_000, 64


def family(
    variants: tuple[str, ...] = tuple(VARIANTS),
    worlds: tuple[str, ...] = WORLDS,
    seeds: tuple[int, ...] = (0, 1, 2),
    steps: int | None = None,
    store: Path = STORE,
) -> None:
    """Train every model of the family on the donut and in four rooms, the same steps for all, and test it.

    What is in the store already is not trained again. A flow has no discrete actions, so that it stays out of
    the four rooms.

    Args:
        variants: what is trained
        worlds: where
        seeds: of pretraining; the data are the same for all
        steps: of training; those of the preset unless told
        store: file of results, created if need be
    """
    for name in variants:
        if name not in VARIANTS:
            raise ZolError(unknown_name("variant of the family", name, VARIANTS))
    for name in worlds:
        if name not in WORLDS:
            raise ZolError(unknown_name("world of the family", name, WORLDS))
    results, console = Store(store), terminal()
    named = Conditions(name="family" if steps is None else f"family steps={steps}", episodes=EPISODES)
    for world in worlds:
        data = donut_data() if world == "donut" else rooms_data()
        for seed in seeds:
            for name in variants:
                model, settings = VARIANTS[name]
                if world == "four_rooms" and settings.get("actor") == "flow":
                    continue
                kind = kind_of({"model": model, "settings": settings})
                key = _key(named.updated(model=kind), world, seed)
                if results.results(benchmark=key.benchmark, domain=world, pretraining_seed=seed):
                    continue
                agent = pretrain(
                    data, model, preset="quick", seed=seed, steps=steps, dynamics_steps=0, **settings
                )
                assert isinstance(agent.model, Network)
                for how in prompts(agent.model, entry_of(model)):
                    results.add(tested(agent.model, how, data, key, settings))
                console.print(f"{world}: {kind}, seed {seed}", highlight=False)
    found = gather(results, named.benchmark)
    print_table(console, verdict(found, found.methods), f"{named.benchmark}: everything in the store so far")
    console.print(conclusion(found), highlight=False, soft_wrap=True)


def prompts(model: Network, entry: Pretraining) -> tuple[RewardPrompt, ...]:
    """The model's own prompt and ridge; E[φ r], too, where features are neither B nor made orthonormal."""
    more = ("features",) if model.config.successor_features and not model.config.sphered else ()
    return tuple(dict.fromkeys((entry.prompt_of(model), "ridge", *more)))


def _key(conditions: Conditions, world: str, seed: int) -> Key:
    """A cell without its task, method, settings and model."""
    benchmark, tested_from = conditions.benchmark, conditions.evaluation_seed
    return Key(benchmark, world, "", "", "", "", pretraining_seed=seed, evaluation_seed=tested_from)


def tested(
    model: Network, how: RewardPrompt, data: Dataset, key: Key, settings: Mapping[str, Any]
) -> list[Result]:
    """The cells of one model and one way to prompt it."""
    scores = donut_returns(model, how, data) if key.domain == "donut" else {GOALS: rooms_values(model, how)}
    method = prompt_name(how)
    own = replace(key, method=method, configuration=canonical(settings), model=identity(model))
    facts = stamp(command())
    return [
        Result(replace(own, task=task), returns=values.double().numpy(), facts=facts, finished=now())
        for task, values in scores.items()
    ]


def donut_data() -> Dataset:
    """Short random walks, mostly around the hole."""
    return collect(TRANSITIONS, torch.Generator().manual_seed(0), walk_length=WALK)


def donut_returns(model: Network, how: RewardPrompt, data: Dataset) -> dict[str, Tensor]:
    """Returns of the prompted latents, task → ``[episodes]``."""
    world, generator = Donut(), torch.Generator().manual_seed(1)
    evidence = Evidence.gather(data, world.tasks, world.layout, samples=SAMPLES, generator=generator)
    latents = prompted(model, evidence, how).latents()
    starts = Conditions().test_generator()
    returns = evaluate(world, model, latents, episodes=EPISODES, generator=starts).returns
    return dict(zip(evidence.tasks, returns, strict=True))


def rooms_data() -> Dataset:
    """Random walks from every cell, with one-hot actions."""
    world, g = four_rooms(), torch.Generator().manual_seed(0)
    mdp, walks = world.mdp, TRANSITIONS // WALK
    choice = torch.randint(mdp.actions, (walks, WALK), generator=g)
    state = [torch.randint(mdp.states, (walks,), generator=g)]
    for step in range(WALK):
        state.append(mdp.transition[state[-1], choice[:, step]].argmax(-1))  # every move is certain
    path = functional.one_hot(torch.stack(state, 1), mdp.states).float()
    last = torch.zeros(walks, WALK, dtype=torch.bool)
    last[:, -1] = True
    return Dataset.from_arrays(
        obs=path[:, :-1].reshape(-1, mdp.states).numpy(),
        action=functional.one_hot(choice, mdp.actions).float().reshape(-1, mdp.actions).numpy(),
        next_obs=path[:, 1:].reshape(-1, mdp.states).numpy(),
        truncated=last.reshape(-1).numpy(),
        resets=torch.eye(mdp.states).numpy(),
        provenance={"world": "four_rooms"},
    )


def rooms_values(model: Network, how: RewardPrompt) -> Tensor:
    """What the policy for each cell as a goal is worth, in per cent of the optimum, exactly: ``[104]``."""
    mdp = four_rooms().mdp
    cells, goals = torch.eye(mdp.states), torch.eye(mdp.states, dtype=torch.float64)
    with torch.no_grad():
        z = prompt.reward(model, cells, cells, how)
        chosen = model.act(cells, z.unsqueeze(1)).argmax(-1)
    policy = functional.one_hot(chosen, mdp.actions).double()
    return 100 * mdp.value(policy, goals) / mdp.optimal_value(goals)


GOALS = "goals"  # all goals of the four rooms, in one cell of a table
FAMILY = Benchmark(family, {"donut": tuple(TASKS), "four_rooms": (GOALS,)}, joint=frozenset({GOALS}))
