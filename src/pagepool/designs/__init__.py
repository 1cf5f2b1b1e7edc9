# SPDX-License-Identifier: BSD-2-Clause
"""Which design? Everything that there is to measure about designs, and the page about it.

`measure.measure` runs the suites of ``pagepool.bench`` and ``pagepool.simulate`` and gives a
`Survey`; ``page`` and ``pictures`` write it down. The page says nothing that is not in the survey.
"""

from pagepool.designs.measure import Part, Plan, measure
from pagepool.designs.page import page
from pagepool.designs.survey import Survey, SurveyError, dumps, loads

__all__ = ["Part", "Plan", "Survey", "SurveyError", "dumps", "loads", "measure", "page"]
