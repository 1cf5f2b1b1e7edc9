# SPDX-License-Identifier: BSD-2-Clause
"""Comparison of builds: statistics, tables, output formats.

Knows records, and nothing of how they were measured. `statistics` has all arithmetic on several
runs, `report` pairs the builds and collects what to beware of, `formats` writes it.
"""
