# SPDX-License-Identifier: BSD-2-Clause
"""What the measurements say: statistics, verdicts, tables."""
