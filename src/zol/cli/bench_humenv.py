"""``zol bench humenv``: the reward tasks of HumEnv."""

from pathlib import Path

from rich.console import Console


def humenv(
    model: str,
    buffer: Path,
    tasks: tuple[str, ...] = (),
    episodes: int = 50,
    samples: int = 100_000,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Compare a model's own prompt with ZOL on the 45 reward tasks of HumEnv.

    Args:
        model: checkpoint folder of a Meta Motivo model, or hf://facebook/metamotivo-S-1
        buffer: inference buffer of that model (data/buffer_inference_500000.hdf5 in its repository)
        tasks: names of some tasks; all 45 unless told
        episodes: rollouts of each latent
        samples: rows of the buffer that latents are computed from
        seed: of samples and start states
        out: where to save raw scores (.npz and .json)
    """
    from zol.bench.humenv import reward_benchmark
    from zol.checkpoint import load
    from zol.common.progress import progress_bar
    from zol.data.sources.humenv import read_buffer
    from zol.report import per_task, summary, table
    from zol.worlds import make

    world = make("humenv")
    network = load(model).model
    dataset = read_buffer(buffer, rows=samples, seed=seed)
    with progress_bar() as progress:
        scores, _ = reward_benchmark(
            world,
            network,
            dataset,
            tasks=tasks or None,
            episodes=episodes,
            samples=samples,
            seed=seed,
            progress=progress,
        )
    console = Console()
    console.print(table(per_task(scores), title=f"HumEnv, mean return of {episodes} episodes"))
    note = "one model: intervals cover start states, not pretraining seeds"
    console.print(table(summary(scores, "weighted"), caption=note))
    if out is not None:
        scores.save(out)
        console.print(f"raw scores: {out.with_suffix('.npz')}", highlight=False, soft_wrap=True)
