"""``zol bench rehearsal``: the imagined search with one setting changed at a time."""

from pathlib import Path

import tyro

from zol.cli.bench_exorl import run


def rehearsal(
    models: tyro.conf.Positional[tuple[Path, ...]],
    store: Path = Path("results/store.sqlite"),
    episodes: int = 100,
    steps: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    ray: str | None = None,
    verify: bool = False,
) -> None:
    """Horizon, ensemble, noise, pessimism, bootstrap and trust of ``rehearse``, on the benchmark's tasks.

    Results stand in the store under their own name, beside those of zol bench exorl; zol report shows both.

    Args:
        models: checkpoint folders or names of the zoo, with learned worlds
        store: file of results, created if need be
        episodes: paired test episodes per task
        steps: length of an episode; the world's own unless told
        seed: of what is random in methods; start states of test episodes have a seed of their own
        workers: local processes; as many as cores unless told
        ray: address of a Ray cluster to run on instead (auto: the one on this machine)
        verify: run cells that are in the store once more and say whether they reproduce bit for bit
    """
    from zol.bench.methods import REHEARSALS
    from zol.bench.protocols import Protocol

    protocol = Protocol(name="rehearsal", episodes=episodes, steps=steps, seed=seed)
    methods = ("fb", "rehearse", *REHEARSALS)
    run(models, methods, protocol, store, workers=workers, ray=ray, verify=verify)
