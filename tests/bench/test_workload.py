# SPDX-License-Identifier: BSD-2-Clause
"""Workloads: statistics against what was computed by hand, and against the model; the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagepool.bench import SettingsError, _workloads, modelled, workload
from pagepool.bench._workloads import Outcome
from pagepool.cli.workload import parse_range, parse_sweep
from pagepool.results.words import align

from .conftest import PATIENCE, Result, children, is_running, on_terminal, wait_for

Bench = Callable[..., Result]

DESIGNS = ("ring", "ours", "list")


def run(name: str, design: str = "ring", seed: int = 1, **knobs: int) -> Outcome:
    chosen = {knob.replace("_", "-"): value for knob, value in knobs.items()}
    if "pages" in chosen:
        chosen["pages-from"] = chosen["pages-to"] = chosen.pop("pages")
    return _workloads.run(name, chosen, design=design, seed=seed)


def statistics(outcome: Outcome) -> dict[str, int]:
    """Those that are not 0, without their groups' names."""
    (stats,) = outcome.stats
    return {name.partition("_")[2]: value for name, value in stats.items() if value}


# -- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
def test_xdp_drop(design: str) -> None:
    # 256 buffers are 4 times 64 new pages; from then on each poll gets what it has just dropped.
    outcome = run("xdp-drop", design, polls=10)
    assert statistics(outcome) == {
        "slow": 4,
        "empty": 4,
        "fast": 256 - 4 + 640,
        "cached": 640,
    }
    assert outcome.counts["packets"] == 640
    assert outcome.inflight == [256]
    assert statistics(run("xdp-drop", design, polls=10, read_data=1)) == statistics(outcome)


@pytest.mark.parametrize("design", DESIGNS)
def test_xdp_tx(design: str) -> None:
    # Two polls have no completions yet, and take 64 new pages each.
    outcome = run("xdp-tx", design, polls=10, tx_lag=2)
    assert statistics(outcome) == {
        "slow": 6,
        "empty": 6,
        "fast": 252 + 2 * 63 + 8 * 64,
        "cached": 8 * 64,
    }
    assert outcome.inflight == [256 + 128]


def test_xdp_redirect() -> None:
    # 64 come back by the ring after each poll: one refill, 63 from the cache.
    outcome = run("xdp-redirect", polls=10)
    assert statistics(outcome) == {
        "slow": 5,
        "empty": 5,
        "fast": 252 + 63 + 9 * 63,
        "refill": 9,
        "ring": 640,
    }


def test_a_bulk_of_which_some_fit_counts_them() -> None:
    # Four of sixteen slots: a bulk of 16 finds room for 4; ring_full counts the bulk, left pages.
    outcome = run("xdp-redirect", polls=1, packets=16, rx_ring=16, pool_size=4)
    assert statistics(outcome)["ring"] == 4
    assert statistics(outcome)["ring_full"] == 1
    assert outcome.counts["left"] == 12


@pytest.mark.parametrize("design", DESIGNS)
def test_a_stream_that_fits_the_cache(design: str) -> None:
    # Two pages a packet are 128 a poll.
    assert statistics(run("tcp-stream", design, polls=10, pages=2, napi_direct=1)) == {
        "slow": 2,
        "empty": 2,
        "fast": 10 * 128 - 2,
        "cached": 9 * 128,
    }


def test_a_stream_that_does_not() -> None:
    # Three are 192: 128 into the cache, 64 into the ring, and from there with one refill.
    assert statistics(run("tcp-stream", polls=10, pages=3, napi_direct=1)) == {
        "slow": 3,
        "empty": 3,
        "fast": 10 * 192 - 3 - 9,
        "refill": 9,
        "cached": 9 * 128,
        "cache_full": 9 * 64,
        "ring": 9 * 64,
    }


def test_the_largest_stream_just_fits() -> None:
    # 18 are 1152 a poll: the cache's 128 and the ring's 1024.
    full = run("tcp-stream", polls=10, pages=18, napi_direct=1)
    assert full.counts["left"] == 0
    assert statistics(full)["slow"] == 18
    # Not direct they do not fit: 128 a poll go back to the page allocator, and two bulk
    # allocations of 64 have to make up for them.
    ring = run("tcp-stream", polls=10, pages=18)
    assert ring.counts["left"] == 9 * 128
    assert statistics(ring)["ring_full"] == 9 * 128
    assert statistics(ring)["slow"] == 18 + 9 * 2
    assert "cached" not in statistics(ring)


def frames(polls: int, packets: int, seed: int) -> tuple[dict[str, int], dict[str, int]]:
    """What multi-buffer's generator makes: counts, and the pages that are cut off by their tag."""
    chance = modelled.Chance(seed)
    counts = {"frames_dropped": 0, "frames_passed": 0, "frames_cut": 0, "pages_cut": 0}
    cut: dict[str, int] = {}
    for _ in range(polls * packets):
        pages = 1 + chance.below(17)
        verdict = chance.below(3)
        keep = 1 + chance.below(pages - 1) if verdict == 2 and pages > 1 else pages
        if verdict == 0:
            counts["frames_dropped"] += 1
        elif keep == pages:
            counts["frames_passed"] += 1
        else:
            counts["frames_cut"] += 1
            counts["pages_cut"] += pages - keep
        for page in range(keep + 1, pages + 1):
            tag = f"page {page} of a frame"
            cut[tag] = cut.get(tag, 0) + 1
    return counts, cut


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("seed", [1, 7])
def test_a_leak_is_found_and_named(design: str, seed: int) -> None:
    counts, cut = frames(30, 64, seed)
    clean = run("multi-buffer", design, seed, polls=30)
    assert {count: clean.counts[count] for count in counts} == counts
    assert clean.counts["leaked"] == 0 and clean.leaks == []
    leaking = run("multi-buffer", design, seed, polls=30, driver_bug=1)
    assert {count: leaking.counts[count] for count in counts} == counts
    assert leaking.counts["leaked"] == counts["pages_cut"]
    assert dict(leaking.leaks) == cut
    assert [tag for tag, _ in leaking.leaks] == sorted(cut, key=lambda tag: int(tag.split()[1]))
    assert leaking.checked


def test_memory_pressure() -> None:
    # The reader never reads: 448 - 64 good pages, then the reserve of 64, of which 16 are kept.
    outcome = run(
        "memory-pressure", polls=7, memory=448, reserve=64, hiccup_every=1000, reader_hiccup=999
    )
    # It read once, after the first poll: polls 1 to 6 have the 384 good pages.
    assert outcome.counts["packets"] == 7 * 64
    assert outcome.counts["emergency"] == 0
    outcome = run(
        "memory-pressure", polls=8, memory=448, reserve=64, hiccup_every=1000, reader_hiccup=999
    )
    assert outcome.counts["emergency"] == 64
    assert outcome.counts["dropped"] == 48
    assert statistics(outcome)["released_refcnt"] == 48


def test_mixed_keeps_the_pools_apart() -> None:
    outcome = run("mixed", polls=50, pages_from=1, pages_to=4, pools=3)
    chance = modelled.Chance(1)
    pages = [0, 0, 0]
    for _ in range(50 * 64):
        pool = chance.below(3)
        pages[pool] += 1 + chance.below(4)
    assert len(outcome.stats) == 3
    for stats, n in zip(outcome.stats, pages, strict=True):
        assert stats["alloc_fast"] + stats["alloc_refill"] + stats["alloc_slow"] == n
        assert stats["recycle_ring"] == n
        assert stats["recycle_cached"] == 0


def test_the_same_seed_gives_the_same() -> None:
    once = run("tcp-stream", seed=3, polls=100)
    assert run("tcp-stream", seed=3, polls=100)[:5] == once[:5]
    assert run("tcp-stream", seed=4, polls=100).counts != once.counts


def test_the_generator_is_splitmix64() -> None:
    chance = modelled.Chance(1234567)
    assert [chance.below(1 << 64) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


# -- the model ------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "polls": st.integers(1, 40),
            "packets": st.integers(1, 64),
            "pages-from": st.integers(1, 3),
            "pages-to": st.integers(3, 18),
            "pool-size": st.sampled_from([1, 7, 16, 64, 100, 1024]),
            "napi-direct": st.integers(0, 1),
            "defer-max": st.sampled_from([0, 1, 16, 0xFFFFFFFF]),
            "reader-hiccup": st.integers(0, 5),
            "poller-hiccup": st.integers(0, 5),
            "hiccup-every": st.integers(6, 12),
        }
    ),
    st.integers(0, (1 << 64) - 1),
)
def test_the_model_counts_the_same(knobs: dict[str, int], seed: int) -> None:
    engine = _workloads.run("tcp-stream", knobs, seed=seed)
    model = modelled.run("tcp-stream", knobs, seed=seed)
    assert model.stats == engine.stats
    assert model.inflight == engine.inflight
    assert model.counts == {count: engine.counts[count] for count in model.counts}


def test_other_sizes_of_cache_and_refill() -> None:
    (case,) = workload.cases(
        "tcp-stream",
        {"pages": 1, "polls": 10, "napi-direct": 1, "cache": 32, "refill": 16},
        {},
        "model",
    )
    outcome = modelled.run("tcp-stream", case.knobs, cache=32, refill=16)
    # 64 come back, 32 fit; the other 32 come out of the ring with two refills.
    assert statistics(outcome) == {
        "slow": 4,
        "empty": 4,
        "fast": 10 * 64 - 4 - 9 * 2,
        "refill": 9 * 2,
        "cached": 9 * 32,
        "cache_full": 9 * 32,
        "ring": 9 * 32,
    }


# -- the command ----------------------------------------------------------------------------------


def rows(out: str) -> dict[str, list[str]]:
    """The table of one case: name -> columns."""
    lines = [line for line in out.splitlines() if not line.startswith(("#", "time_bench"))]
    return {line.split()[0]: line.split()[1:] for line in lines[1:]}


def test_on_a_pipe(bench: Bench) -> None:
    result = bench("workload", "xdp-drop", "--polls", "10", "--runs", "2")
    assert result.status == 0, result.err
    facts = [line for line in result.out.splitlines() if line.startswith("# ")]
    for fact in ("# workload: xdp-drop", "# seed: 1", "# polls: 10", "# rx-ring: 256"):
        assert fact in facts
    table = rows(result.out)
    assert table["packets"] == ["640"]
    assert table["alloc_fast"] == ["892"]
    assert table["alloc_slow"] == ["4"]
    assert table["recycle_cached"] == ["640"]
    assert table["left"] == ["0"]
    assert table["in_flight"] == ["256"]
    assert table["recycled"] == ["71.43", "%"]
    assert "deferred" not in table
    assert result.out.count("Type:workload_xdp-drop_ring Per elem: ") == 2


def test_it_says_the_same_every_time(bench: Bench) -> None:
    def stable(*args: str) -> list[str]:
        out = bench("workload", "tcp-stream", "--polls", "100", *args).out
        lines = out.splitlines()
        # The width of the table's columns goes by the times.
        return [
            " ".join(line.split())
            for line in lines
            if not line.startswith(
                ("# command", "# date", "# load", "# seed", "# threads", "# reader", "ns/", "time_")
            )
        ]

    once = stable("--runs", "2", "--seed", "5", "--defer-max", "3")
    assert "recycle_ring" in "".join(once)
    assert stable("--runs", "1", "--seed", "5", "--defer-max", "3") == once
    assert stable("--runs", "1", "--seed", "6", "--defer-max", "3") != once
    if len(os.sched_getaffinity(0)) > 1:
        assert stable("--runs", "1", "--seed", "5", "--defer-max", "3", "--threads", "2") == once


def test_designs_side_by_side(bench: Bench) -> None:
    result = bench("workload", "xdp-redirect", "--polls", "50", "--design", "ring,ours", "--runs=3")
    assert result.status == 0, result.err
    table = rows(result.out)
    assert table["packets"] == ["3200", "3200"]
    assert table["recycle_ring"] == ["3200", "3200"]
    assert len(table["times"]) == 3 and table["times"][:2] == ["ring", "1.000"]
    order = [line.split("Type:")[1].split()[0] for line in result.out.splitlines()[-6:]]
    ring, ours = "workload_xdp-redirect_ring", "workload_xdp-redirect_ours"
    assert order == [ring, ours, ours, ring, ring, ours]


def test_a_sweep_says_where_it_overflows(bench: Bench, tmp_path: Path) -> None:
    saved = tmp_path / "sweep.json"
    result = bench(
        *("workload", "tcp-stream", "--pages", "1", "--napi-direct", "--polls", "128"),
        *("--sweep", "reader-hiccup=0..32", "--runs", "1", "--json", str(saved)),
    )
    assert result.status == 0, result.err
    lines = result.out.splitlines()
    assert "ring: the cache overflows into the ring: first with reader-hiccup=2" in lines
    assert "ring: the ring overflows into the page allocator: first with reader-hiccup=18" in lines
    assert "ring: packets are dropped: never in reader-hiccup=0..32" in lines
    assert "# reader-hiccup" not in result.out
    document = json.loads(saved.read_text())
    assert document["schema"] == "pagepool.workload/1"
    assert [entry["point"] for entry in document["results"]] == [
        {"reader-hiccup": n} for n in range(33)
    ]
    left = [entry["counts"]["left"] for entry in document["results"]]
    assert left == [max(64 * (n + 1) - 128 - 1024, 0) for n in range(33)]


def test_a_sweep_of_the_models_sizes(bench: Bench) -> None:
    result = bench(
        *("workload", "tcp-stream", "--pages", "1", "--napi-direct", "--polls", "66"),
        *(
            "--engine",
            "model",
            "--reader-hiccup",
            "3",
            "--sweep",
            "cache=64..512:64,refill=32..64:32",
        ),
    )
    assert result.status == 0, result.err
    table = [line.split() for line in result.out.splitlines() if line[:1].isdigit()]
    assert len(table) == 8 * 2
    # 256 come back at once: from a cache of 256 on nothing goes through the ring.
    for cache, _, _, *figures in table:
        assert (figures[5] == "0") == (int(cache) >= 256)
    result = bench(
        *("workload", "tcp-stream", "--pages", "1", "--napi-direct", "--polls", "66"),
        *("--engine", "model", "--reader-hiccup", "3", "--sweep", "cache=64..512:64"),
    )
    assert "ring: the cache overflows into the ring: last with cache=192" in result.out.splitlines()
    assert "# engine: model: the statistics of the rules, no time" in result.out.splitlines()
    assert result.out.count("time_bench") == 0


def test_a_leak_is_said(bench: Bench) -> None:
    result = bench("workload", "multi-buffer", "--driver-bug", "--polls", "10", "--runs", "1")
    assert result.status == 0, result.err
    counts, cut = frames(10, 64, 1)
    lines = result.out.splitlines()
    said = f"ring: leak: {counts['pages_cut']} pages are out that nobody has; who allocated them:"
    at = lines.index(said)
    tags = [f"  {pages} {tag}" for tag, pages in cut.items()]
    assert sorted(lines[at + 1 : at + 1 + len(tags)]) == sorted(tags)
    assert "the pools were checked ones: the time is not the pool's" in lines


def test_json_alone(bench: Bench) -> None:
    result = bench("workload", "mixed", "--polls", "5", "--runs", "2", "--json", "-")
    (entry,) = json.loads(result.out)["results"]
    assert len(entry["pools"]) == 4
    assert len(entry["ns_per_packet"]) == 2
    assert entry["statistics"]["recycle_ring"] == entry["counts"]["put"]


def test_on_a_terminal() -> None:
    status, text = on_terminal(["workload", "xdp-drop", "--polls", "10", "--runs", "1"])
    assert status == 0
    assert "workload xdp-drop" in text
    assert "892" in text
    assert "time_bench" not in text


def test_list(bench: Bench) -> None:
    lines = bench("workload", "--list").out.splitlines()
    assert [line.split()[0] for line in lines[::2]] == [
        "tcp-stream",
        "xdp-drop",
        "xdp-tx",
        "xdp-redirect",
        "multi-buffer",
        "memory-pressure",
        "mixed",
    ]


def test_statistics_that_differ_are_found() -> None:
    one = run("xdp-drop", polls=2)
    other = run("xdp-drop", polls=3)
    collector = workload.WorkloadCollector()
    for index, outcome in enumerate((one, run("xdp-drop", polls=2))):
        collector.add(workload.Ran(index, 0, "ring", outcome))
        collector.add(workload.Ran(index, 1, "ring", outcome))
    assert collector.unlike() == []
    collector.add(workload.Ran(3, 1, "ring", other))
    assert collector.unlike() == [(1, "ring")]


def test_an_interrupt(started: Callable[..., subprocess.Popen[str]]) -> None:
    process = started("workload", "xdp-drop", "--polls", "10M")
    assert wait_for(lambda: children(process.pid))
    (worker,) = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines() == ["pagepool bench: interrupted: nothing ran"]
    assert wait_for(lambda: not is_running(worker))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["nothing"], "no workload is called 'nothing': there are tcp-stream, xdp-drop, "),
        ([], "which workload? tcp-stream, xdp-drop, "),
        (["xdp-drop", "--pages", "2"], "xdp-drop has no pages-from"),
        (["xdp-drop", "--threads", "2"], "xdp-drop has no threads"),
        (["tcp-stream", "--packets", "65"], "packets is 65: can be 1 to 64"),
        (["tcp-stream", "--pages", "3..2"], "--pages: '3..2' is empty"),
        (["tcp-stream", "--pages", "x"], "--pages: 'x' is no count"),
        (["tcp-stream", "--reader-hiccup", "64"], "tcp-stream: a hiccup of 64 polls every 64: "),
        (["tcp-stream", "--cache", "64"], "the core's cache is fixed at 128 pages: use --engine"),
        (["tcp-stream", "--sweep", "pages"], "--sweep: 'pages' is no NAME=FROM..TO[:STEP]"),
        (["tcp-stream", "--sweep", "colour=1..2"], "nothing is called 'colour': --list shows"),
        (["tcp-stream", "--sweep", "polls=1..2000"], "a sweep over 2000 cases: can be 1000"),
        (["tcp-stream", "--design", "best"], "no design is called 'best'"),
        (["tcp-stream", "--design", "ring,ring"], "designs: name one or more, each once"),
        (["tcp-stream", "--seed", "1e20"], "seed 100000000000000000000: can be 0 to "),
        (["tcp-stream", "--runs", "0"], "0 runs: can be 1 to 1000"),
        (["xdp-tx", "--engine", "model"], "the model runs tcp-stream, not xdp-tx"),
        (
            ["tcp-stream", "--engine", "model", "--refill", "129"],
            "a cache of 128 pages and a refill of 129: must be 1 to 65536, and a refill must fit",
        ),
        (["tcp-stream", "--engine", "model", "--threads", "2"], "the model has no second thread"),
        (["tcp-stream", "--cpu", "99999"], "CPU 99999 is not one that this process may use: "),
        (["xdp-drop", "--json", "/nowhere/x.json"], "--json /nowhere/x.json: No such file"),
    ],
)
def test_wrong_settings_are_one_line_and_2(bench: Bench, args: list[str], text: str) -> None:
    result = bench("workload", *args)
    assert result.status == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith(f"pagepool bench: {text}")


def documented() -> list[tuple[list[str], list[str]]]:
    """Commands of the documentation with the lines that it shows of their output."""
    text = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    found: list[tuple[list[str], list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("    $ pagepool bench "):
            found.append((line.split()[3:], []))
            inside = True
        elif inside and line.startswith("    "):
            found[-1][1].append(line[4:])
        else:
            inside = False
    return found


@pytest.mark.parametrize(("args", "shown"), documented())
def test_the_documentation_is_right(bench: Bench, args: list[str], shown: list[str]) -> None:
    result = bench(*args)
    assert result.status == 0, result.err
    assert shown
    lines = result.out.splitlines()
    at = lines.index(shown[0])
    assert lines[at : at + len(shown)] == shown


def test_where_something_is_counted() -> None:
    def words(*counted: int) -> str:
        results = [
            workload.Result(case, "ring", {"left": n}, {}, [], 0, [], False, [])
            for case, n in enumerate(counted)
        ]
        return workload.where(results, [10, 20, 30], "left", "x")

    assert words(0, 0, 0) == "never in x=10..30"
    assert words(1, 2, 3) == "always in x=10..30"
    assert words(0, 0, 1) == "first with x=30"
    assert words(1, 1, 0) == "last with x=20"


def test_ranges_and_sweeps() -> None:
    assert parse_range("1..18") == (1, 18)
    assert parse_range("1k") == (1000, 1000)
    assert parse_sweep("pages=1..3") == {"pages": [1, 2, 3]}
    assert parse_sweep("pool-size=64..200:64, pages=4") == {
        "pool-size": [64, 128, 192, 200],
        "pages": [4],
    }
    for wrong in ("", "pages", "pages=", "pages=2..1", "pages=1..2:0", "pages=1,pages=2", "=1"):
        with pytest.raises(ValueError):
            parse_sweep(wrong)


def test_settings_are_checked_before_anything_runs() -> None:
    with pytest.raises(SettingsError, match="no workload is called 'x'"):
        workload.run_workload("x")


def test_columns_stand_under_each_other() -> None:
    assert align([["", "a"], ["long", "1"], ["b", "222"]]) == [
        "        a",
        "long    1",
        "b     222",
    ]
