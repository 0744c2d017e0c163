"""``zol report``: tables and figures of a result store."""

from pathlib import Path

import tyro

from zol.common.terminal import terminal

FORMATS = ("md", "latex", "csv", "html")


def report(
    store: tyro.conf.Positional[Path], out: Path | None = None, format: str = "md,latex,csv,html"
) -> None:
    """Tables and figures of everything in a result store, with a verdict and the raw returns beside them.

    Args:
        store: file that zol bench and zol sweep have filled
        out: folder to write; that of the store unless told
        format: which of md, latex, csv and html, separated by commas
    """
    from zol.bench.publish import write_report
    from zol.bench.store import Store
    from zol.common.errors import ZolError, unknown_name
    from zol.common.outputs import require_place
    from zol.report import print_table

    wanted = [name for name in format.split(",") if name]
    for name in wanted:
        if name not in FORMATS:
            raise ZolError(unknown_name("format", name, FORMATS))
    if not store.is_file():
        what = "is no file" if store.exists() else "does not exist"
        raise ZolError(f"{store} {what}: zol bench exorl --store FILE fills one")
    folder = require_place(store.parent if out is None else out)
    found = write_report(Store(store), folder, wanted)  # type: ignore[arg-type]
    console = terminal()
    for section in found.sections:
        if section.short is not None:
            print_table(console, section.short, section.title)
        console.print(f"{section.verdict or section.text}\n", highlight=False)
    console.print(f"{len(found.files)} files are in {folder}", soft_wrap=True)
