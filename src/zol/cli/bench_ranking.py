"""``zol bench ranking``: which offline estimate of a latent can be trusted."""

from pathlib import Path

import tyro


def ranking(
    models: tyro.conf.Positional[tuple[str, ...]],
    episodes: int = 10,
    out: Path = Path("results"),
    seed: int = 0,
) -> None:
    """Compare every offline estimate of latents (zol.value) with what the latents truly earn.

    Writes ranking.csv (one row per task and estimator), ranking_points.csv (every latent) and ranking.png.

    Args:
        models: checkpoint folders with a learned world, or names of the zoo
        episodes: true episodes per latent
        out: folder for the results
        seed: of the pool of latents
    """
    from zol.bench.ranking import run

    run(models, episodes=episodes, out=out, seed=seed)
