# SPDX-License-Identifier: BSD-2-Clause
"""The program, and ``python -m pagepool``: quiet about Ctrl-C from the first import on."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the ``pagepool`` script."""
    try:
        from pagepool import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
