"""``zol demo``: the whole story on the donut."""

from pathlib import Path

from zol.demo import DemoConfig, run


def demo(config: DemoConfig = DemoConfig(), out: Path = Path("runs/demo")) -> None:  # noqa: B008
    """The whole story on the donut: collect data, pretrain FB, prompt, adapt, roll out, report.

    Writes raw scores, latents, the checkpoint, figures and one HTML page. Killed half-way, it resumes
    pretraining when it is called again.

    Args:
        config: size of the run
        out: folder to write
    """
    run(config, out)
