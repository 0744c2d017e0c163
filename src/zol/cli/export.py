"""``zol export``: a policy for a robot."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from zol.common.terminal import terminal


def export(
    model: Annotated[str, Positional, arg(metavar="MODEL")],
    out: Path,
    latents: tuple[Path, ...] = (),
    fixed: bool = False,
    rate: float | None = None,
    discount: float | None = None,
) -> None:
    """Write a model's actor as ONNX, with its latents and a contract.

    Args:
        model: name of the zoo, checkpoint folder (ours, Meta Motivo's, td_jepa's or BFM-Zero's) or hf://org/name
        out: folder to write policy.onnx, latents.json and contract.json to
        latents: latent files that zol adapt --out wrote
        fixed: bake every latent into a graph of its own instead of taking z as an input
        rate: control rate in Hz that the model was trained at, for the contract
        discount: of a model that does not record it
    """
    from zol import session
    from zol.common.outputs import require_place
    from zol.export import require_onnx

    require_place(out)
    require_onnx()
    agent = session.load(model, discount=discount)
    skills = [agent.skill(path) for path in latents]
    result = agent.export(out, skills, fixed=fixed, rate=rate)
    console = terminal()
    for graph in result.graphs:
        console.print(f"wrote {result.folder / graph}", highlight=False, soft_wrap=True)
    if not skills:
        console.print(
            "no latents inside: the graph takes z as an input. zol adapt MODEL --out FOLDER writes latents, "
            "and --latents FOLDER/*.json puts them beside it",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"{result.parity}\none action takes {result.latency_ms:.2f} ms (median, 1 thread)",
        highlight=False,
        soft_wrap=True,
    )
