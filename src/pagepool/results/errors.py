# SPDX-License-Identifier: BSD-2-Clause
"""What a reader raises."""

from __future__ import annotations


class ResultsError(Exception):
    """A file that could not be read, in one line: where, what, and what to do about it."""

    def __init__(self, where: str, what: str, hint: str = "") -> None:
        """Join the three parts to one line."""
        self.where = where
        self.what = what
        self.hint = hint
        super().__init__(f"{where}: {what}" + (f"; {hint}" if hint else ""))
