# SPDX-License-Identifier: BSD-2-Clause
"""The benchmarks: choose, run in a worker process, record."""
