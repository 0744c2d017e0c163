"""Files of options: ``--config run.toml`` reads them, and every run writes the file that repeats it.

    command = "train fb"
    data = "data/walker"
    steps = 8000
    tensorboard = false

Keys are options, without dashes in front. What is typed wins over the file. An unknown key is an error, and
so is a file that was written by another command.
"""

import functools
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from zol.cli.options import OMIT, options, values, with_placeholders
from zol.common.errors import ZolError, unknown_name
from zol.common.files import write_bytes

FILE = "run.toml"
COMMAND = "command"
NOTE = (
    "--config FILE.toml takes options from a file, such as the one that every run writes; what is typed wins."
)


def read(path: Path, name: str) -> dict[str, Any]:
    """The options in a file, by name, for the command ``name``."""
    if not path.is_file():
        raise ZolError(f"--config {path} does not exist: runs write {FILE} into their folder")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ZolError(f"--config {path} is not TOML: {error}") from error
    made_by = found.pop(COMMAND, name)
    if made_by != name:
        raise ZolError(f"{path} holds the options of zol {made_by}, not of zol {name}")
    for key, value in found.items():
        entries = value if isinstance(value, list) else [value]
        if not all(isinstance(entry, str | int | float) for entry in entries):
            raise ZolError(
                f"{key} in {path} is {type(value).__name__}: expected a text, a number, true or a list"
            )
    return {key.replace("_", "-"): value for key, value in found.items()}


def expanded(name: str, words: Sequence[str], positional: str = "") -> list[str]:
    """The words with those of the file behind ``--config`` in front of them, as far as nothing else is typed.

    ``positional`` is the key of the words that stand without an option.
    """
    path, typed = taken_out(words)
    if path is None:
        return typed
    said = {
        re.sub(r"^--(no-)?", "", word.split("=")[0]).replace("_", "-") for word in typed if _is_option(word)
    }
    stands, others = [], []
    for key, value in read(path, name).items():
        if key == positional:
            stands = [] if typed and not _is_option(typed[0]) else _texts(value)
        elif key not in said and isinstance(value, bool):
            others.append(f"--{key}" if value else f"--no-{key}")
        elif key not in said:
            others += [f"--{key}", *_texts(value)]
    # Positional words stand first; an option that takes any number of words would swallow them.
    own = next((k for k, word in enumerate(typed) if _is_option(word)), len(typed))
    return [*stands, *typed[:own], *others, *typed[own:]]


def taken_out(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The file behind ``--config``, and the other words."""
    rest, found = list(words), None
    for k, word in enumerate(words):
        if word == "--config":
            if k + 1 == len(words):
                raise ZolError("--config needs the name of a file")
            found, rest = words[k + 1], [*words[:k], *words[k + 2 :]]
        elif word.startswith("--config="):
            found, rest = word.partition("=")[2], [*words[:k], *words[k + 1 :]]
    return (None if found is None else Path(found)), rest


def run(
    command: Callable[..., None], name: str, words: Sequence[str], *, description: str | None = None
) -> None:
    """Call a command with words and a file's options; a file that repeats it goes into its folder."""
    known = options(command)
    path, _ = taken_out(words)
    if path is not None:
        for key in read(path, name):
            if key not in known:
                raise ZolError(f"{path}: " + unknown_name(f"option of zol {name}", key, known))

    @functools.wraps(command)
    def recorded(*args: Any, **kwargs: Any) -> None:
        given = values(command, *args, **kwargs)
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            write(name, given)
            raise
        write(name, given)

    recorded.__doc__ = _with_note(command.__doc__ or "")
    stands = next((option.name for option in known.values() if option.positional), "")
    text = None if description is None else f"{description} {NOTE}"
    given = expanded(name, words, stands)
    shown = with_placeholders(recorded)
    tyro.cli(shown, prog=f"zol {name}", args=given, description=text, config=OMIT)


def write(name: str, given: Mapping[str, Any]) -> None:
    """Write what a command was called with into its folder, if it has made one."""
    place = place_of(name, given)
    if place is not None and place.parent.is_dir():
        write_bytes(place, toml(name, given).encode())


def place_of(name: str, given: Mapping[str, Any]) -> Path | None:
    """Where the file of a run belongs: into its folder, or beside its store, which many runs share."""
    if given.get("store") is not None:
        return Path(given["store"]).parent / f"{name.split()[-1]}.toml"
    return None if given.get("out") is None else Path(given["out"]) / FILE


def toml(name: str, given: Mapping[str, Any]) -> str:
    """The file's text: what is None or empty is left out, because it cannot be said."""
    lines = [f"{COMMAND} = {json.dumps(name)}"]
    lines += [f"{key} = {_value(value)}" for key, value in given.items() if value is not None and value != ()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False)


def _texts(value: Any) -> list[str]:
    return [str(entry) for entry in (value if isinstance(value, list) else [value])]


def _is_option(word: str) -> bool:
    return word.startswith("--")


def _with_note(doc: str) -> str:
    """A docstring whose description ends with the note on files."""
    head, args, tail = doc.partition("Args:")
    return f"{head.rstrip()}\n\n    {NOTE}\n\n    {args}{tail}" if args else f"{doc}\n\n{NOTE}"
