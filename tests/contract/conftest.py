"""Tests that kill processes need a system that forks."""

import sys
from pathlib import Path

collect_ignore: list[str] = []
if sys.platform == "win32":
    own = Path(__file__).parent.glob("test_*.py")
    collect_ignore = [p.name for p in own if "from killing import" in p.read_text(encoding="utf-8")]
    collect_ignore += ["test_command_kills.py"]
