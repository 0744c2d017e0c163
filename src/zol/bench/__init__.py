"""Benchmarks: published protocols, run the same way for every method.

To add one, describe it with :class:`~zol.bench.benchmark.Benchmark` and give it a line in :data:`BENCHMARKS`:
``zol bench NAME`` runs it, and ``zol report`` shows its results.
"""

from typing import Any

from zol.common.registry import Entry, Registry

BENCHMARKS: Registry[Any] = Registry(
    "benchmark",
    "zol.benchmarks",
    {
        "exorl": Entry("zol.bench.exorl:EXORL", "16 control tasks: every method on every model, honestly"),
        "ogbench": Entry(
            "zol.bench.ogbench:OGBENCH", "success on OGBench's datasets: mazes, cubes and buttons"
        ),
        "family": Entry(
            "zol.bench.family:FAMILY", "every model with the same steps on the donut and in four rooms"
        ),
        "unseen": Entry("zol.bench.unseen:UNSEEN", "the same on nine tasks that nothing was chosen on"),
        "zoo": Entry(
            "zol.bench.zoo:ZOO", "16 control tasks on models of any kind, against their own prompts"
        ),
        "zoo_unseen": Entry("zol.bench.zoo:ZOO_UNSEEN", "the same on the nine tasks of zol bench unseen"),
        "rehearsal": Entry(
            "zol.bench.rehearsal:REHEARSAL", "the imagined search with one setting changed at a time"
        ),
        "ranking": Entry("zol.bench.ranking:RANKING", "which offline estimate of a latent can be trusted"),
        "ratios": Entry("zol.bench.ratios:RATIOS", "density ratios against true occupancies and returns"),
        "supported": Entry(
            "zol.bench.supported:SUPPORTED", "π_z against policies that stay on the data's support"
        ),
        "tracking": Entry("zol.bench.tracking:TRACKING", "how near latents stay to motions they are shown"),
        "humenv": Entry(
            "zol.bench.humenv:HUMENV", "HumEnv: 45 rewards, a model's prompt against ZOL; goals; motions"
        ),
        "recipes": Entry("zol.bench.recipes:BENCH", "ways of pretraining at equal CPU time on the same data"),
        "ceilings": Entry(
            "zol.bench.ceilings:BENCH", "offline TD3 task by task: how much a set of data allows"
        ),
        "ladder": Entry(
            "zol.bench.ladder:BENCH", "from one task to a prior over rewards: where learning many breaks"
        ),
        "sweep": Entry("zol.bench.sweep:SWEEP", "the paper's 72 configurations, and as many random moves"),
    },
)
"""name → :class:`~zol.bench.benchmark.Benchmark`"""

__all__ = ["BENCHMARKS"]
