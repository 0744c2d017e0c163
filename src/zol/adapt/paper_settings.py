"""Numbers of the ZOL paper (arXiv 2602.01962), as data: its tasks, returns, settings and sweep.

The settings per task are the ones that its table calls "best". Its public code chooses them by the return
of test episodes, so whoever uses them has looked at the test: they are here to reproduce, not to recommend.
"""

import re
from itertools import product
from typing import Any

from zol.adapt.zol_settings import ZOLConfig
from zol.common.errors import ZolError

TASKS: dict[str, tuple[str, ...]] = {
    "walker": ("spin", "run", "stand", "walk"),
    "cheetah": ("run", "run_backward", "walk", "walk_backward"),
    "quadruped": ("jump", "run", "stand", "walk"),
    "point_mass_maze": ("reach_bottom_left", "reach_bottom_right", "reach_top_left", "reach_top_right"),
}
"""Domain → its four tasks, in the order of the paper's table."""

# (domain, task): the paper's returns of FB and of ZOL, means of 100 episodes of one model
RETURNS: dict[tuple[str, str], tuple[float, float]] = {
    ("walker", "spin"): (982, 994),
    ("walker", "run"): (454, 456),
    ("walker", "stand"): (876, 904),
    ("walker", "walk"): (922, 933),
    ("cheetah", "run"): (125, 190),
    ("cheetah", "run_backward"): (240, 263),
    ("cheetah", "walk"): (544, 640),
    ("cheetah", "walk_backward"): (926, 957),
    ("quadruped", "jump"): (460, 510),
    ("quadruped", "run"): (315, 340),
    ("quadruped", "stand"): (610, 660),
    ("quadruped", "walk"): (380, 411),
    ("point_mass_maze", "reach_bottom_left"): (819, 831),
    ("point_mass_maze", "reach_bottom_right"): (165, 225),
    ("point_mass_maze", "reach_top_left"): (890, 905),
    ("point_mass_maze", "reach_top_right"): (773, 817),
}

# (domain, task): learning rate η, steps T, λ_χ, λ_z, w_max; always N = 256 start states
BEST: dict[tuple[str, str], tuple[float, int, float, float, float]] = {
    ("cheetah", "run"): (5e-4, 200, 0.0, 0.05, 100.0),
    ("cheetah", "run_backward"): (5e-4, 100, 0.005, 0.05, 100.0),
    ("cheetah", "walk"): (5e-4, 200, 0.0, 0.05, 100.0),
    ("cheetah", "walk_backward"): (5e-4, 200, 0.001, 0.02, 100.0),
    ("point_mass_maze", "reach_bottom_left"): (5e-4, 200, 0.005, 0.02, 50.0),
    ("point_mass_maze", "reach_bottom_right"): (5e-4, 200, 0.001, 0.02, 50.0),
    ("point_mass_maze", "reach_top_left"): (5e-4, 200, 0.001, 0.02, 100.0),
    ("point_mass_maze", "reach_top_right"): (5e-4, 200, 0.001, 0.02, 50.0),
    ("quadruped", "jump"): (5e-4, 200, 0.0, 0.02, 100.0),
    ("quadruped", "run"): (5e-4, 200, 0.005, 0.0, 100.0),
    ("quadruped", "stand"): (5e-4, 200, 0.0, 0.02, 50.0),
    ("quadruped", "walk"): (5e-4, 200, 0.005, 0.05, 100.0),
    ("walker", "run"): (1e-4, 200, 0.0, 0.05, 100.0),
    ("walker", "spin"): (1e-4, 100, 0.001, 0.05, 50.0),
    ("walker", "stand"): (5e-4, 200, 0.0, 0.02, 100.0),
    ("walker", "walk"): (5e-4, 200, 0.005, 0.02, 100.0),
}

# dataset: of its five tasks, in order, η, T, λ_χ, λ_z, w_max, N
BEST_OGBENCH: dict[str, tuple[tuple[float, int, float, float, float, int], ...]] = {
    "antmaze-large-navigate": (
        (1e-3, 200, 0.05, 0.005, 20.0, 512),
        (3e-3, 200, 0.05, 0.005, 50.0, 512),
        (3e-3, 500, 0.01, 0.001, 50.0, 512),
        (3e-3, 200, 0.05, 0.005, 20.0, 512),
        (1e-3, 200, 0.05, 0.005, 50.0, 512),
    ),
    "antmaze-large-stitch": (
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
    ),
    "antmaze-medium-explore": (
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
    ),
    "antmaze-medium-navigate": (
        (1e-3, 200, 0.05, 0.001, 50.0, 512),
        (1e-3, 200, 0.05, 0.001, 50.0, 512),
        (1e-3, 500, 0.05, 0.005, 20.0, 512),
        (3e-3, 200, 0.01, 0.005, 20.0, 512),
        (1e-3, 200, 0.01, 0.005, 50.0, 512),
    ),
    "antmaze-medium-stitch": (
        (1e-3, 500, 0.05, 0.005, 20.0, 512),
        (3e-3, 500, 0.05, 0.005, 20.0, 512),
        (5e-3, 500, 0.01, 0.001, 50.0, 512),
        (3e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.05, 0.001, 50.0, 512),
    ),
    "cube-double-play": (
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
    ),
    "cube-single-play": (
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
    ),
    "puzzle-3x3-play": (
        (1e-3, 200, 0.01, 0.001, 50.0, 512),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
        (1e-3, 200, 0.01, 0.001, 50.0, 1),
    ),
}
OGBENCH_ELSEWHERE = (1e-3, 200, 0.01, 0.001, 50.0)
"""What 25 of those 40 tasks have, for OGBench's worlds and datasets that the paper leaves out."""
OGBENCH_WORLDS = ("pointmaze-", "antmaze-", "cube-", "puzzle-")
STARTS = 256
"""N wherever the table above names none"""

GRID: dict[str, tuple[Any, ...]] = {
    "learning_rate": (5e-4, 1e-4),
    "steps": (100, 200),
    "chi_square": (0.0, 0.001, 0.005),
    "trust_region": (0.0, 0.02, 0.05),
    "clip": (50.0, 100.0),
}
"""The full-factorial sweep of the paper: 2 · 2 · 3 · 3 · 2 = 72 configurations."""


HUMANOID_GRID: dict[str, tuple[Any, ...]] = {
    "learning_rate": (5e-4,),
    "steps": (100, 150, 200),
    "chi_square": (0.01, 0.1, 0.5),
    "trust_region": (0.01, 0.1, 0.5),
    "clip": (50.0, 100.0),
}
"""The ranges of the paper's sweep on 45 humanoid tasks. It names no learning rate, and speaks of a full
factorial of 15 configurations, where these ranges have 54: which 15 were run is not known."""
HUMANOID_CONFIGS = 15


def best_on_test_returns(domain: str, task: str) -> tuple[ZOLConfig, int]:
    """The paper's settings of one task and its number of start states N; see the module's warning.

    ``domain`` is a world, or the dataset of OGBench that a model was trained on.
    """
    number = re.match(r"task([1-5])(_|$)", task)
    if number is not None and domain in BEST_OGBENCH:
        *settings, starts = BEST_OGBENCH[domain][int(number[1]) - 1]
        return _config(*settings), starts
    if domain.startswith(OGBENCH_WORLDS):
        return _config(*OGBENCH_ELSEWHERE), STARTS
    if (domain, task) not in BEST:
        known = ", ".join(name for owner, name in BEST if owner == domain) or "no task of that world"
        raise ZolError(f"the paper has no settings for task '{task}' of {domain}; it has {known}")
    return _config(*BEST[domain, task]), STARTS


def _config(eta: float, steps: float, chi: float, trust_region: float, clip: float) -> ZOLConfig:
    return ZOLConfig(
        learning_rate=eta, steps=int(steps), chi_square=chi, trust_region=trust_region, clip=clip
    )


def sweep_configs(domain: str = "") -> list[ZOLConfig]:
    """All 72 configurations; for the humanoid 15 of 54, in which every value of three occurs five times."""
    if domain != "humenv":
        names = list(GRID)
        return [ZOLConfig(**dict(zip(names, values, strict=True))) for values in product(*GRID.values())]
    g = HUMANOID_GRID
    return [
        ZOLConfig(
            learning_rate=g["learning_rate"][0],
            steps=g["steps"][k % 3],
            chi_square=g["chi_square"][k // 5],
            trust_region=g["trust_region"][(k + k // 3) % 3],
            clip=g["clip"][k % 2],
        )
        for k in range(HUMANOID_CONFIGS)
    ]
