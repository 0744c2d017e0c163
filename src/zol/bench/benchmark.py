"""What a benchmark is: which tasks, which methods by default, and how it is run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from zol.bench import BENCHMARKS
from zol.worlds import WORLDS


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, as the registry, the command line and the report know it.

    ``run`` is the command ``zol bench NAME``: its parameters are the options, its docstring is the help.
    """

    run: Callable[..., None]
    tasks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # domain → tasks, in tables' order
    methods: tuple[str, ...] = ()  # run unless others are asked for
    score: Literal["return", "success"] = "return"  # what is counted of a test episode
    baseline: str = "fb"  # the method that everything is compared with
    kinds_apart: bool = True  # whether models of different kinds are columns of their own
    joint: frozenset[str] = frozenset()  # names among ``tasks`` that stand for several of the world at once


def tasks_of(benchmark: str) -> Mapping[str, tuple[str, ...]]:
    """The tasks per domain of a benchmark, which may carry settings behind its name."""
    known: Benchmark = BENCHMARKS[benchmark.split()[0]]
    return known.tasks


def score_of(benchmark: str) -> Literal["return", "success"]:
    """What a benchmark, which may carry settings behind its name, counts of a test episode."""
    known: Benchmark = BENCHMARKS[benchmark.split()[0]]
    return known.score


def baseline_of(benchmark: str) -> str:
    """The method that others are compared with in a benchmark, which may carry settings behind its name."""
    known: Benchmark = BENCHMARKS[benchmark.split()[0]]
    return known.baseline


def world_of(domain: str) -> str:
    """The world of a domain, which is a world's name or that of one of its datasets, ``WORLD-HOW``."""
    return domain if domain in WORLDS else domain.rpartition("-")[0]
