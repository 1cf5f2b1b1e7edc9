# SPDX-License-Identifier: BSD-2-Clause
"""Recognisers of the lines around records: what begins a build, what begins a run.

Each takes the peeled text of one line and answers ``None`` or what the line says. A further
style of heading is one more function here.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Heading(NamedTuple):
    """A heading: the short label, and the line that it comes from."""

    label: str
    text: str


class Kernel(NamedTuple):
    """A kernel version line: the release (``6.13.0-rc6+``), and the line without a host name."""

    release: str
    text: str


#: Longest label that is shown as it is; of a longer heading only the word that matters is taken.
_MAX_LABEL = 28

_HASH = re.compile(r"([0-9a-f]{10,40})(?: \([^)]*\))?(?:-{2,}|[ ]+|$)(.*)")
#: What is compared, as people call it: at the begin or the end of a line that introduces figures,
#: or before "this patchset". In the midst of a sentence it is about something else.
_PHRASE = re.compile(
    r"(?:.*(?<![\w-]))?(?P<word>before|after|baseline|control|unpatched|patched|vanilla|clean"
    r"|(?:with|without)\b.*\b(?:patch(?:es|set)?|series|commit|fix|changes?))(?![\w-])(?P<rest>.*)",
    re.IGNORECASE,
)
_ABOUT_IT = re.compile(
    r"\W*(?:$|(?:this|the|these|my|your|any|all|applying|patch|series|commit|change|fix|kernel|v?\d)"
    r"|[^\w\s-])",
    re.IGNORECASE,
)
#: ``Output (from me):``, ``Results kernel 4.6.0-rc1 :``: whose figures follow.
_RESULTS = re.compile(
    r"(?:my |your |the )?(?:results?|output|numbers|figures)"
    r"(?= \(|(?: from| for| of| on| kernel| with| without)\b).{3,50}?\s?:",
    re.IGNORECASE,
)
_BARE = re.compile(r"test|base|new|old|original|baseline|control", re.IGNORECASE)

_VERSION = re.compile(r"Linux version (\S+)(?: .*)?")
_UNAME = re.compile(
    r"(?:[-*] )?(?:Linux \S+ )?(\d+\.\d+(?:\.\d+)?[\w.+~-]*) #\d+\S* (?:SMP|PREEMPT)\b.*"
)
_LOADED = re.compile(r"(?:time_bench: )?bench_page_pool\w*: Loaded\b.*")
#: What may stand before a command: a shell's prompt or a bullet, and how it is run.
PROMPT = r"(?:\S*[$#] ?|[-*] |\[[^\]]*\][$#] ?)?(?:(?:sudo|taskset -c \S+|time) )*"
#: The command itself, after a prompt: `perf record modprobe ...` in an advice starts nothing.
_INSERT = re.compile(PROMPT + r"(?:insmod|modprobe) [^|;&]*?\bbench_page_pool\w*(?:\.ko)?\b(.*)")
_PARAMETER = re.compile(r"(?<![^\s,])([a-z_]{1,32})=([\w.*-]{1,64}(?:,[\w.*-]{1,64})*)(?=[\s,]|$)")
_FACT = re.compile(r"# ([A-Za-z][\w ./()-]{0,47}): (\S.*)")
_RUN = re.compile(r"# run (\d{1,9})\b.*")
_CPU = re.compile(r"(?:[-*] )?(?:(?:Machine|CPU)(?: [A-Z])?|Machine \d): (\S.*)")
#: ``Machine A:``, ``On the Xeon 6430:``, ``AMD EPYC 7763 results:``: whose figures follow. The
#: name of a maker alone may be that of a driver, and only a model may follow a family's.
_MAKER = r"(?:Intel|AMD|ARM)(?:\(R\))? "
_FAMILY = (
    r"(?:Xeon|EPYC|Ryzen|Opteron|Threadripper|Ampere|Altra|Graviton|ThunderX|Kunpeng|Neoverse"
    r"|Core(?:\(TM\)| 2| Ultra| i\d)|(?:E[357]|i[3579])-\d{4}|Cortex-[A-Z]\d|POWER\d)(?:\(R\))?"
)
_MODEL = (
    r"(?: (?:[\w.@()-]*\d[\w.()-]*|@|Gold|Silver|Bronze|Platinum|Max|Pro|Ultra|Altra|Processor|CPU"
    r"|\w+-Core|machine|system|server|host|box))"
)
_MACHINE = re.compile(
    r"(?:[-*] |# )?(?:(?:results?|numbers|figures|measured|tested) )?(?:(?:on|from|for|with) )?"
    rf"(?:(?:the|an?|my|our) )?(?P<cpu>Machine [A-Z0-9]|(?:\d ?x )?(?:{_MAKER})?{_FAMILY}[\w-]*"
    rf"{_MODEL}{{0,6}}|{_MAKER}(?:CPU|machine|system|server|host|box))"
    r"(?: (?:results?|numbers|figures))?\s?:",
    re.IGNORECASE,
)


_RULE = re.compile(r"([-=~^*_])\1{3,}(?:[+|:\s]*\1*)*")


def is_rule(text: str) -> bool:
    """Whether a line only underlines, or divides a table: ``-----``, ``=====+=====``."""
    return _RULE.match(text) is not None and not text.strip("-=~^*_+|: ")


def phrase(text: str) -> Heading | None:
    """A heading that needs no colon, because it is underlined: ``with patch``."""
    return heading(f"{text.rstrip(': ')}:")


_HEADLINE = re.compile(r"(?P<marks>\*{1,6}|#{2,6}) (?P<text>\S.{0,200})")


class Headline(NamedTuple):
    """The headline of a section: what it says, and how deep it is."""

    text: str
    level: int


def headline(text: str) -> Headline | None:
    """The headline of a section of an org document (``* AMD results``), or of markdown (``##``)."""
    match = _HEADLINE.fullmatch(text)
    return None if match is None else Headline(match["text"].strip(), len(match["marks"]))


def is_org(text: str) -> bool:
    """Whether a line says that it stands in an org document."""
    return text[:2] == "#+" and text[2:8].lower() in ("title:", "option", "author", "startu")


def parameters(text: str) -> dict[str, str]:
    """Every ``name=value`` in a line."""
    return dict(_PARAMETER.findall(text.rstrip(":")))


def heading(text: str) -> Heading | None:
    """A heading that names a build: a commit, or a phrase such as ``Before this patchset:``."""
    if match := _HASH.fullmatch(text):
        commit = match.group(1)
        # A short decimal number is a byte count sooner than a commit.
        return Heading(commit, text) if not commit.isdecimal() or len(commit) >= 12 else None
    if len(text) > 100:
        return None
    if text.startswith("# ") and ":" not in text:
        phrase = text[2:].strip()
    elif text.endswith(":"):
        phrase = text[:-1].removeprefix("# ").strip()
    elif _BARE.fullmatch(text):
        phrase = text
    else:
        return None
    if _BARE.fullmatch(phrase):
        return Heading(phrase, text)
    match = _PHRASE.fullmatch(phrase)
    if match is None:
        return Heading(phrase, text) if _RESULTS.fullmatch(text) else None
    if (
        len(phrase) <= _MAX_LABEL
        or match.start("word") < 2
        or _ABOUT_IT.match(match["rest"]) is not None
    ):
        return Heading(phrase if len(phrase) <= _MAX_LABEL else match.group("word"), text)
    return None


def kernel(text: str) -> Kernel | None:
    """A kernel's version: ``Linux version 6.13.0 ...``, ``uname -a``, or its tail in a mail."""
    if match := _VERSION.fullmatch(text):
        return Kernel(match.group(1), text)
    if match := _UNAME.fullmatch(text):
        return Kernel(match.group(1), text[match.start(1) :])
    return None


def run_start(text: str) -> dict[str, str] | None:
    """A line that begins a run, with the module parameters that it names.

    ``time_bench: Loaded`` is the harness, another module: it begins nothing.
    """
    if _LOADED.fullmatch(text) or _RUN.fullmatch(text):
        return {}
    if match := _INSERT.fullmatch(text):
        return parameters(match.group(1))
    return None


def fact(text: str) -> tuple[str, str] | None:
    """A fact about the machine: ``# key: value`` of this project's own output, or a mail's CPU."""
    if match := _FACT.fullmatch(text):
        return match.group(1).strip().lower(), match.group(2).strip()
    if match := _CPU.fullmatch(text):
        return "cpu", match.group(1)
    cpu = machine(text)
    return None if cpu is None else ("cpu", cpu)


def machine(text: str) -> str | None:
    """The CPU or machine that a line such as ``On the Xeon 6430:`` says its figures are of."""
    if not text.endswith(":") or (heading(text) is not None and not _RESULTS.fullmatch(text)):
        return None
    match = _MACHINE.fullmatch(text)
    return None if match is None else match["cpu"]
