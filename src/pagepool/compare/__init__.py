# SPDX-License-Identifier: BSD-2-Clause
"""Comparison of builds: statistics, tables, output formats.

Knows records, and nothing of how they were measured. `statistics` has all arithmetic on several
runs, `verdict` judges one row by it, `report` pairs the builds and collects what to beware of,
`decisions` gives its rows their verdicts, `formats` writes it.
"""
