"""What mkdocs does beyond rendering: files outside docs/ that pages link to join the site.

Pages are written for a Git host, where ``../CONTRIBUTING.md`` and ``../results/ranking.png`` exist. The site
has copies of such files below ``repository/``, and links between all of them are rewritten.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()(?!https?://|#|mailto:)([^)#\s]+)((?:#[^)\s]*)?\))")
ROLE = re.compile(r":(?:class|mod|func|meth|data|attr|exc):<code>~?")


def in_repository(uri: str) -> str:
    """Where a page of the site lies in the repository."""
    return uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"


def in_site(path: str) -> str:
    """Where a file of the repository lies in the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def targets(text: str, page: str) -> set[str]:
    """Files of the repository that a page links to."""
    folder = posixpath.dirname(page)
    return {posixpath.normpath(posixpath.join(folder, link)) for _, link, _ in LINK.findall(text)}


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to, and what those link to in turn."""
    waiting = [in_repository(file.src_uri) for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for path in targets((ROOT / page).read_text(encoding="utf-8"), page):
            found = ROOT / path
            if path in seen or path.startswith(("docs/", "..")) or not found.is_file():
                continue
            seen.add(path)
            files.append(File.generated(config, in_site(path), abs_src_path=str(found)))
            if path.endswith(".md"):
                waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at where their targets are in the site; to folders, at nothing."""
    own = page.file.src_uri
    here, folder = posixpath.dirname(own) or ".", posixpath.dirname(in_repository(own))

    def rewritten(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        path = posixpath.normpath(posixpath.join(folder, link))
        return f"{before}{posixpath.relpath(in_site(path), here)}{after}"

    return LINK.sub(rewritten, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Docstrings name things with roles, which Markdown does not know."""
    return ROLE.sub("<code>", html)
