"""``zol completion``: a script that lets the shell complete commands, options and names.

source <(zol completion bash)                                        # in ~/.bashrc
source <(zol completion zsh)                                         # in ~/.zshrc, after compinit
zol completion fish > ~/.config/fish/completions/zol.fish
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Literal

import tyro

from zol.adapt import METHODS
from zol.bench import BENCHMARKS
from zol.checkpoint import zoo
from zol.cli.adapt import adapt_command
from zol.cli.options import Option, options
from zol.cli.train import train_command
from zol.worlds import WORLDS


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]) -> None:
    """Print what makes a shell complete zol's commands, their options, methods, worlds and zoo models.

    bash: source <(zol completion bash), and so in zsh; fish: into a file of its completions folder.

    Args:
        shell: which one
    """
    print(fish() if shell == "fish" else bash(zsh=shell == "zsh"))


def words_of(name: str) -> list[str]:
    """What may follow a command: names for its positional words, then its options."""
    own = options_of(name)
    found = [word for option in own if option.positional for word in known(option.name)]
    for option in (option for option in own if not option.positional):
        found += [f"--{option.name}"] + ([f"--no-{option.name}"] if option.flag else [])
    return [*found, "--help"]


def options_of(name: str) -> list[Option]:
    """The options of a command, as they are before anything is typed."""
    from zol.cli import FIXED, READ_TWICE

    family, _, entry = name.partition(" ")
    if name == "adapt":
        return list(options(adapt_command([])).values())
    if name in READ_TWICE:
        return []
    if name in FIXED:
        module, function = FIXED[name][0].split(":")
        return list(options(getattr(import_module(module), function)).values())
    if family == "train":
        return list(options(train_command(entry, [])[0]).values())
    return list(options(BENCHMARKS[entry].run).values())


def known(option: str) -> list[str]:
    """Names that may follow an option or stand without one; files are offered by the shell itself."""
    if option in ("model", "models", "run", "from"):
        return zoo.names()
    if option in ("world", "name"):
        return list(WORLDS)
    return list(METHODS) if option in ("method", "methods") else []


VALUES = ("from", "method", "methods", "world")  # options whose values have names


def bash(*, zsh: bool = False) -> str:
    """A script for bash; zsh runs the same through its bashcompinit."""
    from zol.cli import commands

    names = list(commands())
    first = sorted({name.split()[0] for name in names})
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines += [
        "_zol() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=",
    ]
    lines += ['    case "$before" in']
    lines += [f"        --{option}) words={_quoted(known(option))} ;;" for option in VALUES]
    lines += [
        "    esac",
        '    if [ -z "$words" ]; then',
        '        case "${COMP_WORDS[*]:1:COMP_CWORD-1} " in',
    ]
    lines += [f'            "{name} "*) words={_quoted(words_of(name))} ;;' for name in names]
    for family in first:
        inner = [name.split()[1] for name in names if name.startswith(f"{family} ")]
        if inner:
            lines += [f'            "{family} "*) words={_quoted(inner)} ;;']
    lines += [f'            " ") words={_quoted(first)} ;;']
    lines += ["        esac", "    fi", '    COMPREPLY=($(compgen -W "$words" -- "$word"))', "}"]
    return "\n".join([*lines, "complete -o default -F _zol zol"])


def fish() -> str:
    """The same for fish."""
    from zol.cli import commands

    names = list(commands())
    first = {name.split()[0]: summary for name, summary in commands().items()}
    lines = [
        f"complete -c zol -n __fish_use_subcommand -a {name} -d {_quoted([text])}"
        for name, text in first.items()
    ]
    for name in names:
        family, _, inner = name.partition(" ")
        seen = f"__fish_seen_subcommand_from {family}"
        if inner:
            lines += [f"complete -c zol -n '{seen}; and not __fish_seen_subcommand_from {inner}' -a {inner}"]
            seen += f"; and __fish_seen_subcommand_from {inner}"
        for option in options_of(name):
            named = f" -a {_quoted(known(option.name))}" if known(option.name) else ""
            if not option.positional:
                takes = "" if option.flag else " -r"
                lines += [f"complete -c zol -n '{seen}' -l {option.name}{takes}{named}"]
            elif named:
                lines += [f"complete -c zol -n '{seen}'{named}"]
    return "\n".join(lines)


def _quoted(words: Iterable[str]) -> str:
    """Words in single quotes, for any of these shells."""
    return "'" + " ".join(words).replace("'", "’") + "'"
