# SPDX-License-Identifier: BSD-2-Clause
"""What was measured: one typed model, readers of every text form, writers of every form."""
