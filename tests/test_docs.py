# SPDX-License-Identifier: BSD-2-Clause
"""The examples in the documentation run and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_examples() -> list[Path]:
    return [
        path
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        if any(kind == "python" for kind, _ in BLOCK.findall(path.read_text()))
    ]


@pytest.mark.parametrize("path", python_examples(), ids=lambda path: path.name)
def test_python_examples(path: Path) -> None:
    """All of a page's Python, top to bottom in one process; ``text`` after it is its output.

    It runs among the test data, as the commands on these pages do.
    """
    blocks = BLOCK.findall(path.read_text())
    code, expected = "", ""
    for before, (kind, text) in zip([("", ""), *blocks], blocks, strict=False):
        if kind == "python":
            code += text
        elif kind == "text" and before[0] == "python":
            expected += text
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT / "tests" / "data",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert done.stderr == ""
