"""The command line: every command is a thin call into the library.

Commands are listed as ``module:function`` and imported only when called, so that ``zol --help`` is
instant. tyro turns a function's signature and docstring into its options and help. ``zol train`` has a
command for every model of ``MODELS``, ``zol bench`` one for every benchmark of ``BENCHMARKS``.
"""

import os
import sqlite3
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import NoReturn

from zol.bench import BENCHMARKS
from zol.common.errors import ZolError, unknown_name
from zol.common.interrupts import Stopped
from zol.models import MODELS

# name: (where, what it does in one line)
FIXED: dict[str, tuple[str, str]] = {
    "demo": ("zol.cli.demo:demo", "collect, pretrain, prompt, adapt and roll out on the donut, in minutes"),
    "doctor": (
        "zol.cli.doctor:doctor",
        "versions, extras, device, rendering, and how to add what is missing",
    ),
    "worlds list": ("zol.cli.worlds:list_", "all worlds, with one line about each"),
    "worlds show": ("zol.cli.worlds:show", "what a world's observations mean, and its tasks"),
    "explore": (
        "zol.cli.explore:explore",
        "fill a dataset from a world, by seeking novelty, at random or by recipe",
    ),
    "demonstrate": ("zol.cli.demonstrate:demonstrate", "record what good policies visit, without actions"),
    "data import": ("zol.cli.data:import_", "convert ExORL, OGBench, Minari, npz or HDF5 data"),
    "data ant-expert": ("zol.cli.data:ant_expert", "train the ant that antmaze data are made with"),
    "data show": ("zol.cli.data:show", "sizes, provenance, coverage, what every column means"),
    "data check": ("zol.cli.data:check", "compare every stored episode with its digest"),
    "data film": ("zol.cli.data:film", "film an episode of a dataset"),
    "data resimulate": ("zol.cli.data:resimulate", "replay stored actions under the installed simulator"),
    "data subset": ("zol.cli.data:subset", "copy some episodes into a new set"),
    "data merge": ("zol.cli.data:merge", "copy several sets of a world into a new one"),
    "train dynamics": ("zol.cli.train:dynamics", "a learned world for a checkpoint, to rehearse latents in"),
    "train show": ("zol.cli.train_show:show", "the learning curve of a run: returns and health"),
    "train compare": ("zol.cli.train_compare:compare", "minutes until runs reach a score, side by side"),
    "adapt": ("zol.cli.adapt:adapt", "find the latent for a task, offline, from a checkpoint alone"),
    "value": ("zol.cli.value:value", "what a latent will earn, by every offline estimator side by side"),
    "play": ("zol.cli.play:play", "a page on which the body follows rewards that you slide or type"),
    "gallery": ("zol.cli.gallery:gallery", "behaviours of the zoo in one moving picture"),
    "zoo list": ("zol.cli.zoo:list_", "the pretrained models that come with zol"),
    "zoo pack": ("zol.cli.zoo:pack", "a checkpoint with what test time needs, and no more"),
    "sweep": ("zol.bench.sweep:sweep", "the same as bench sweep"),
    "report": ("zol.cli.report:report", "tables and figures of a result store"),
    "completion": ("zol.cli.completion:completion", "what makes bash, zsh or fish complete zol's words"),
    "export": ("zol.cli.export:export", "the actor as ONNX, with latents and a contract, for a robot"),
}
# Commands that read their words themselves, because some words decide the defaults of others.
READ_TWICE = {"adapt"}
# Commands whose options may come from a file, and that write one (with adapt and train NAME).
REPEATABLE = {"explore", "bench", "sweep"}


# Exit codes beside 0: 1 a reader went away, 2 something is wrong with the command or its input,
# 3 the system refused (disk, memory, permissions), 130 interrupted.
REFUSED = (OSError, MemoryError, sqlite3.Error)
NOTHING_KEPT = "what this command was computing is lost, files that were there before are intact"


def main(argv: list[str] | None = None) -> None:
    """Entry point of the ``zol`` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    if debug:
        words.remove("--debug")
    if isinstance(sys.stdout, TextIOWrapper):  # a name, or a line of a table, that this terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            _run(words)
        finally:
            sys.stdout.flush()  # here, where a reader that is gone can still be dealt with
    except ZolError as error:
        _complain(str(error), 2, error, debug)
    except BrokenPipeError:  # whoever read our output has seen enough: zol … | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except REFUSED as error:
        _complain(refusal(error, " ".join(words[:2])), 3, error, debug)
    except KeyboardInterrupt as stop:  # what has more to say about it raises Stopped
        print(f"\nzol: stopped; {stop if isinstance(stop, Stopped) else NOTHING_KEPT}", file=sys.stderr)
        sys.exit(130)


def _complain(sentence: str, code: int, error: BaseException, debug: bool) -> NoReturn:
    print(f"zol: {sentence}", file=sys.stderr)
    if debug:
        traceback.print_exception(error)
    sys.exit(code)


def refusal(error: BaseException, doing: str) -> str:
    """One sentence about an error of the system: what was being done, to which file, and what is safe."""
    if isinstance(error, MemoryError):
        what = "there is not enough memory for this"
    elif isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        what = f"{where}{error.strerror.lower()}"
    else:
        what = str(error) or type(error).__name__
    return f"zol {doing} stopped: {what}. Files finished before are intact; --debug shows where it was"


def commands() -> dict[str, str]:
    """Every command with what it does in one line, in the order of ``zol --help``."""
    found: dict[str, str] = {}
    for name, (_, summary) in FIXED.items():
        if name == "train dynamics":
            found |= {f"train {model}": f"pretrain {MODELS.summary(model)}, resumable" for model in MODELS}
        if name == "sweep":
            found |= {f"bench {known}": BENCHMARKS.summary(known) for known in BENCHMARKS}
        found[name] = summary
    return found


def _run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview(""))
        return
    if words[0] == "--version":
        import zol

        print(f"zol {zol.__version__}")
        return
    known = commands()
    for depth in (2, 1):
        name = " ".join(words[:depth])
        if name in known:
            _call(name, words[depth:])
            return
    if any(name.startswith(words[0] + " ") for name in known):
        if len(words) > 1 and not words[1].startswith("-"):
            raise ZolError(unknown_name("command", " ".join(words[:2]), known))
        print(_overview(words[0] + " "))
        return
    raise ZolError(unknown_name("command", words[0], known))


def _call(name: str, words: Sequence[str]) -> None:
    """Run a command with the words that follow its name."""
    import tyro

    from zol.cli import run_file
    from zol.cli.options import OMIT, with_placeholders

    family, _, entry = name.partition(" ")
    if name in FIXED:
        module, function = FIXED[name][0].split(":")
        command = getattr(import_module(module), function)
        if name in READ_TWICE:
            command(words)
            return
    elif family == "train":
        from zol.cli.train import train

        train(entry, words)
        return
    else:
        command = BENCHMARKS[entry].run
    if family in REPEATABLE:
        run_file.run(command, name, words)
    else:
        tyro.cli(with_placeholders(command), prog=f"zol {name}", args=words, config=OMIT)


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
            "zol COMMAND --help explains a command and all its options; --debug shows tracebacks.",
        ]
    )
