"""The command line: one file per command, each a thin call into the library.

Commands are listed as ``module:function`` and imported only when called, so that ``zol --help`` is
instant. tyro turns a function's signature and docstring into its options and help.
"""

import os
import sys
from importlib import import_module

from zol.common.errors import ZolError, unknown_name
from zol.models import MODELS

# name: (where, what it does in one line)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("zol.cli.demo:demo", "collect, pretrain, prompt, adapt and roll out on the donut, in minutes"),
    "doctor": (
        "zol.cli.doctor:doctor",
        "versions, extras, device, rendering, and how to add what is missing",
    ),
    "worlds show": ("zol.cli.worlds:show", "what a world's observations mean, and its tasks"),
    "explore": ("zol.cli.explore:explore", "fill a dataset from a world, by seeking novelty or at random"),
    "data import": ("zol.cli.data:import_", "convert ExORL, Minari, npz or HDF5 data"),
    "data show": ("zol.cli.data:show", "sizes, provenance, coverage, what every column means"),
    "data check": ("zol.cli.data:check", "compare every stored episode with its digest"),
    "data resimulate": ("zol.cli.data:resimulate", "replay stored actions under the installed simulator"),
    "data subset": ("zol.cli.data:subset", "copy some episodes into a new set"),
    "train dynamics": ("zol.cli.train:dynamics", "a learned world for a checkpoint, to rehearse latents in"),
    "train show": ("zol.cli.train_show:show", "the learning curve of a run: returns and health"),
    "adapt": ("zol.cli.adapt:adapt", "find the latent for a task, offline, from a checkpoint alone"),
    "zoo list": ("zol.cli.zoo:list_", "the pretrained models that come with zol"),
    "zoo pack": ("zol.cli.zoo:pack", "a checkpoint with what test time needs, and no more"),
    "bench exorl": ("zol.cli.bench_exorl:exorl", "16 control tasks: every method on every model, honestly"),
    "bench unseen": ("zol.cli.bench_unseen:unseen", "the same on nine tasks that nothing was chosen on"),
    "bench rehearsal": (
        "zol.cli.bench_rehearsal:rehearsal",
        "the imagined search with one setting changed at a time",
    ),
    "bench ranking": ("zol.cli.bench_ranking:ranking", "which offline estimate of a latent can be trusted"),
    "bench humenv": ("zol.cli.bench_humenv:humenv", "45 HumEnv tasks: a model's own prompt against ZOL"),
    "sweep": ("zol.cli.sweep:sweep", "the paper's 72 configurations, and as many random moves"),
    "report": ("zol.cli.report:report", "tables and figures of a result store"),
    "export": ("zol.cli.export:export", "the actor as ONNX, with latents and a contract, for a robot"),
}


def main(argv: list[str] | None = None) -> None:
    """Entry point of the ``zol`` command."""
    words = sys.argv[1:] if argv is None else argv
    try:
        try:
            _run(words)
        finally:
            sys.stdout.flush()  # here, where a reader that is gone can still be dealt with
    except ZolError as error:
        print(f"zol: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # whoever read our output has seen enough: zol … | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nzol: stopped; everything finished so far is saved", file=sys.stderr)
        sys.exit(130)


def _run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview(""))
        return
    if words[0] == "--version":
        import zol

        print(f"zol {zol.__version__}")
        return
    for depth in (2, 1):
        name = " ".join(words[:depth])
        if name in COMMANDS:
            import tyro

            module, function = COMMANDS[name][0].split(":")
            command = getattr(import_module(module), function)
            tyro.cli(
                command,
                prog=f"zol {name}",
                args=words[depth:],
                config=(tyro.conf.OmitArgPrefixes,),  # --steps, not --config.steps
            )
            return
    if words[0] == "train" and len(words) > 1 and words[1] in MODELS:
        from zol.cli.train import train

        train(words[1], words[2:])
        return
    known = commands()
    if any(name.startswith(words[0] + " ") for name in known):
        if len(words) > 1 and not words[1].startswith("-"):
            raise ZolError(unknown_name("command", " ".join(words[:2]), known))
        print(_overview(words[0] + " "))
        return
    raise ZolError(unknown_name("command", words[0], known))


def commands() -> dict[str, str]:
    """Every command with what it does in one line; ``zol train`` has one for every model of the registry."""
    models = {f"train {name}": f"pretrain {MODELS.summary(name)}, resumable" for name in MODELS}
    found: dict[str, str] = {}
    for name, (_, summary) in COMMANDS.items():
        found |= models if name == "train dynamics" else {}
        found[name] = summary
    return found


def _overview(prefix: str) -> str:
    rows = [f"  {name:<18} {summary}" for name, summary in commands().items() if name.startswith(prefix)]
    return "\n".join(
        [
            "zol: from reward-free data to the best behaviour a pretrained model already knows.",
            "",
            f"usage: zol {prefix}COMMAND [options]",
            "",
            *rows,
            "",
            "zol COMMAND --help explains a command and all its options.",
        ]
    )
