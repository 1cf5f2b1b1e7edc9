# SPDX-License-Identifier: BSD-2-Clause
"""``python -m pagepool``."""

from pagepool.cli import main

main()
