# SPDX-License-Identifier: BSD-2-Clause
"""Benchmark results: one typed model, readers of every text form, writers of every form.

`pagepool.results.model` is the model, `pagepool.results.reader` opens files,
`pagepool.results.time_bench` is the kernel's text, `pagepool.results.jsonio` the JSON.
"""
