# SPDX-License-Identifier: BSD-2-Clause
"""Shapes of results that are known from mails, one by one: what each gives.

Those that whole files show are in test_real_logs.py. Figures here are of the real lines.
"""

from __future__ import annotations

import io

import pytest

from pagepool.results import jsonio
from pagepool.results.errors import ResultsError
from pagepool.results.listing import listing
from pagepool.results.model import Record, ResultSet
from pagepool.results.reader import read_stream


def read(text: str) -> ResultSet:
    return read_stream(io.BytesIO(text.encode()), "log.txt")


def records(text: str) -> list[Record]:
    return [record for build in read(text).builds for record in build.records]


def figures(text: str) -> list[str]:
    return [f"{r.name} {r.cycles_printed}/{r.ns_printed}" for r in records(text)]


def labelled(text: str) -> dict[str, list[str]]:
    return {
        build.label: [f"{r.name} {r.cycles_printed}/{r.ns_printed}" for r in build.records]
        for build in read(text).builds
    }


TAIL = (
    "(step:0) - (measurement period time:0.031870585 sec time_interval:31870585)"
    " - (invoke count:10000000 tsc_interval:86043192)"
)


@pytest.mark.parametrize(
    "text",
    [
        # Webmail, without trailing blanks.
        "[ 15.1] time_bench: Type:tasklet_page_pool01_fast_path Per\n"
        "elem: 8 cycles(tsc) 3.187 ns (step:0) - (measurement period\n"
        "time:0.031870585 sec time_interval:31870585) - (invoke count:10000000\n"
        "tsc_interval:86043192)\n",
        # format=flowed, broken between a number and its unit, quoted.
        "> > time_bench: Type:tasklet_page_pool01_fast_path Per elem: 8 cycles(tsc) 3.187 \n"
        "> > ns (step:0) - (measurement period time:0.031870585 sec time_interval:31870585)\n"
        "> > - (invoke count:10000000 tsc_interval:86043192)\n",
        # Before `Type:`, with the stamp of dmesg -T.
        "[Tue Jan  7 15:15:18 2025] time_bench:\n"
        f"Type:tasklet_page_pool01_fast_path Per elem: 8 cycles(tsc) 3.187 ns {TAIL}\n",
        # The in-tree module, indented in a quote.
        "> 	bench_page_pool: Type:tasklet_page_pool01_fast_path Per elem: 8 cycles(tsc)"
        f" 3.187 ns {TAIL}\n",
        # By hand, after the step and without it.
        "Type:tasklet_page_pool01_fast_path Per elem: 8 cycles(tsc) 3.187 ns\n"
        " - (measurement period time:0.031870585 sec time_interval:31870585)\n"
        "  - (invoke count:10000000 tsc_interval:86043192)\n",
        # Without `Type:`.
        f"tasklet_page_pool01_fast_path  Per elem: 8 cycles(tsc) 3.187 ns {TAIL}\n",
        # journalctl.
        f"Aug 31 19:19:07 host kernel: time_bench: Type:tasklet_page_pool01_fast_path Per elem: 8"
        f" cycles(tsc) 3.187 ns {TAIL}\n",
    ],
)
def test_one_record_in_every_wrap(text: str) -> None:
    (record,) = records(text)
    assert (record.name, record.printed_cycles, record.printed_ns) == (
        "tasklet_page_pool01_fast_path",
        8,
        "3.187",
    )
    assert (record.time_interval_ns, record.invoke_count, record.tsc_interval) == (
        31870585,
        10**7,
        86043192,
    )
    assert record.oddities == ()


@pytest.mark.parametrize("between", ["\n", "> quoted\n", "[ 16.0] usb 1-1: new device\n", "text\n"])
def test_parts_are_not_joined_across_something_else(between: str) -> None:
    head = "[ 15.1] time_bench: Type:lock Per elem: 8 cycles(tsc) 3.187 ns (step:0) -\n"
    tail = "(measurement period time:0.031870585 sec time_interval:31870585)\n"
    (record,) = records(head + between + tail)
    assert record.time_interval_ns is None


def test_the_script_and_its_summary() -> None:
    log = "".join(
        f"[ 268960.{n}84603] bench_page_pool: Type:no-softirq-page_pool0{n} Per elem: {c} "
        f"cycles(tsc) {ns} ns (step:0) - (measurement period time:0.{interval:09} sec "
        f"time_interval:{interval}) - (invoke count:10000000 tsc_interval:{interval * 36 // 10})\n"
        for n, c, ns, interval in (
            (1, 23, "6.571", 65714567),
            (2, 60, "16.862", 168621234),
            (3, 265, "73.739", 737395678),
        )
    )
    summary = (
        "Fast path results:\nno-softirq-page_pool01 Per elem: 23 cycles(tsc) 6.571 ns\n\n"
        "ptr_ring results:\nno-softirq-page_pool02 Per elem: 60 cycles(tsc) 16.862 ns\n\n"
        "slow path results:\nno-softirq-page_pool03 Per elem: 265 cycles(tsc) 73.739 ns\n"
    )
    text = "rmmod: ERROR: Module bench_page_pool is not currently loaded\n" + log + summary
    results = read(text)
    assert [[len(run.records) for run in build.runs] for build in results.builds] == [[3]]
    assert all(record.time_interval_ns for record in results.builds[0].records)
    assert [oddity.code for oddity in results.oddities] == ["copy"]


def test_cross_cpu_and_a_sum_without_its_word() -> None:
    text = (
        "Type:page_pool_cross_cpu CPU(0) 1795 cycles(tsc) 782.567 ns (step:2)\n"
        "Sum Type:page_pool_cross_cpu Average: 1558 cycles(tsc) CPUs:3 step:2\n"
        "\nafter:\nType:page_pool_cross_cpu Average: 2037 cycles(tsc) CPUs:3 step:2\n"
    )
    assert [(r.kind, r.cpu, r.cpus, r.step) for r in records(text)] == [
        ("cpu", 0, None, 2),
        ("sum", None, 3, 2),
        ("sum", None, 3, 2),
    ]


def test_other_modules() -> None:
    text = (
        "[ 1315.759541] page_bench01: alloc_pages order:3(32768B/x8) 503 cycles per-4096B 62 "
        "cycles\n"
        " Parallel-CPUs:5 page order:0(4096B/x1) ave 417 cycles per-4096B 417 cycles\n"
        "10000 times kmalloc(8) -> 99 cycles kfree -> 84 cycles\n"
        "10000 times kmalloc(8)/kfree -> 118 cycles\n"
        "kmem-bulk    Per elem: 64 cycles(tsc) 17.905 ns (step:16) - (measurement period "
        "time:0.179051234 sec time_interval:179051234) - (invoke count:10000000 "
        "tsc_interval:640000000)\n"
    )
    assert figures(text) == [
        "alloc_pages order:3 503/None",
        "page order:0 CPUs:5 417/None",
        "kmalloc(8) 99/None",
        "kfree(8) 84/None",
        "kmalloc(8)/kfree 118/None",
        "kmem-bulk 64/17.905",
    ]
    bulk = records(text)[-1]
    assert (bulk.step, bulk.invoke_count) == (16, 10**7)
    assert records(text)[0].counts == {"cycles per 4096B": 62}


def test_a_table_of_blanks_after_quoting() -> None:
    text = (
        ">                                stats on              stats off\n"
        ">                                cycles  nanosec       cycles  nanosec\n"
        ">\n"
        "> tasklet_page_pool01_fast_path   14      6.204           13      6.021\n"
        "> page_pool_cross_cpu CPU(2)      1108    483.097         1079    470.573\n"
        "> page_pool_cross_cpu average     1845    -               1779    -\n"
    )
    assert labelled(text) == {
        "stats on": [
            "tasklet_page_pool01_fast_path 14/6.204",
            "page_pool_cross_cpu 1108/483.097",
            "page_pool_cross_cpu 1845/None",
        ],
        "stats off": [
            "tasklet_page_pool01_fast_path 13/6.021",
            "page_pool_cross_cpu 1079/470.573",
            "page_pool_cross_cpu 1779/None",
        ],
    }
    assert [record.kind for record in records(text)[:3]] == ["elem", "cpu", "sum"]


def test_bulk_figures_with_dashes() -> None:
    text = (
        "Bulk- fallback                   - just-invoking-callbacks\n"
        "  1 -  57 cycles(tsc) 14.500 ns  -  64 cycles(tsc) 16.121 ns\n"
        " 16 -  45 cycles(tsc) 11.357 ns  -  45 cycles(tsc) 11.459 ns\n"
    )
    assert labelled(text) == {
        "fallback": ["Bulk 57/14.500", "Bulk 45/11.357"],
        "just-invoking-callbacks": ["Bulk 64/16.121", "Bulk 45/11.459"],
    }
    assert [record.step for record in records(text)] == [1, 16, 1, 16]
    text = (
        "> bulk -  prev-patch     -  this patch\n"
        ">     1 -  49 cycles(tsc) - 48 cycles(tsc) - increase in cycles:-1\n"
        ">     2 -  30 cycles(tsc) - 31 cycles(tsc) - increase in cycles:1\n"
    )
    assert labelled(text) == {
        "prev-patch": ["bulk 49/None", "bulk 30/None"],
        "this patch": ["bulk 48/None", "bulk 31/None"],
    }


def test_a_column_that_is_computed_is_none() -> None:
    text = (
        "| Intel CPU E5-1650 |        |         | GHz derived |\n"
        "| micro-bench       | cycles | nanosec |   TSC clock |\n"
        "|-------------------+--------+---------+-------------|\n"
        "| function call     |      4 |   1.266 |   3.1595577 |\n"
    )
    assert figures(text) == ["function call 4/1.266"]


def test_sections_of_a_document() -> None:
    line = "time_bench: Type:lock Per elem: 5 cycles(tsc) {} ns (step:0)\n"
    text = (
        "#+Title: two machines\n* Intel\nBefore:\n" + line.format("2.000")
        + "** AMD: raw data\n" + line.format("3.000") + "* again\nBefore:\n" + line.format("4.000")
    )  # fmt: skip
    assert labelled(text) == {
        "Before": ["lock 5/2.000"],
        "AMD: raw data": ["lock 5/3.000"],
        "Before#2": ["lock 5/4.000"],
    }
    # In a mail an asterisk is a bullet.
    assert len(read(text.partition("\n")[2]).builds) == 1


def test_a_name_above_its_list() -> None:
    text = (
        "Type:time_bulk_page_alloc_free_array\n"
        " -  Per elem: 106 cycles(tsc) 29.595 ns (step:64)\n"
        " - (measurement period time:0.295955434 sec time_interval:295955434)\n"
        " - (invoke count:10000000 tsc_interval:1065447105)\n\n"
        "Before:\n - Per elem: 110 cycles(tsc) 30.633 ns (step:64)\n"
    )
    assert figures(text) == [
        "time_bulk_page_alloc_free_array 106/29.595",
        "time_bulk_page_alloc_free_array 110/30.633",
    ]
    assert records(text)[0].invoke_count == 10**7


def test_two_headings_that_are_alike_in_one_word() -> None:
    line = "time_bench: Type:lock Per elem: 8 cycles(tsc) {} ns (step:0)\n"
    text = (
        "# clean net-next\n" + line.format("2.993") + "\n# with patches\n" + line.format("3.679")
        + "\n# with patches and with diff that disables static branching:\n"
        + line.format("3.248")
    )  # fmt: skip
    assert [len(build.runs) for build in read(text).builds] == [1, 1, 1]


def test_a_markdown_table() -> None:
    text = (
        "| test | before (ns) | after (ns) | change |\n"
        "|------|------------:|-----------:|-------:|\n"
        "| `fast_path` | 5.399 | **6.928** | +28.3 % |\n"
        "| `lock`      | 10.431 | 10.763 | +3.2 % |\n"
    )
    assert labelled(text) == {
        "before": ["tasklet_page_pool01_fast_path None/5.399", "lock None/10.431"],
        "after": ["tasklet_page_pool01_fast_path None/6.928", "lock None/10.763"],
    }


def test_kernels_below_each_other_and_rates_beside() -> None:
    text = (
        "kernel       XDP_DROP    XDP_TX\n"
        "5.15         30Mpps      16.1Mpps\n"
        "6.5          19.9Mpps    8.6Mpps\n"
        "6.10-rc2     22.1Mpps    -\n"
    )
    found = {
        build.label: [(r.kind, r.name, r.pps) for r in build.records] for build in read(text).builds
    }
    assert found == {
        "5.15": [("rate", "XDP_DROP", 30_000_000), ("rate", "XDP_TX", 16_100_000)],
        "6.5": [("rate", "XDP_DROP", 19_900_000), ("rate", "XDP_TX", 8_600_000)],
        "6.10-rc2": [("rate", "XDP_DROP", 22_100_000)],
    }


@pytest.mark.parametrize(
    "table",
    [
        " drivers/net/a.c |  12 +-\n drivers/net/b.c | 122 ++++----\n 2 files changed\n",
        "| name | count | size |\n|---+---+---|\n| a | 12 | 4096 |\n",
        "total    used    free\n16000    8000    8000\n32000    1000   31000\n",
        "cpu  1234 5678 9012\nintr 1 2 3 4 5 6\n",
        "| +---+ |\n| 1 | 2 |\n",
        "A: 12 ns\nB: 13 ns\n",
    ],
)
def test_tables_of_other_things(table: str) -> None:
    with pytest.raises(ResultsError, match="no results"):
        read(table)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Running XDP on dev:eth0 (ifindex:2) action:XDP_TX options:swapmac\n"
            "XDP stats       CPU     pps         issue-pps\n"
            "XDP-RX CPU      0       1064694     0\n"
            "XDP-RX CPU      total   1064694\n"
            "\nRXQ stats       RXQ:CPU pps         issue-pps\n"
            "rx_queue_index    0:0   1064682     0\n"
            "rx_queue_index    0:sum 1064682\n\n"
            "Running XDP on dev:eth0 (ifindex:2) action:XDP_TX options:swapmac\n"
            "XDP stats       CPU     pps         issue-pps\n"
            "XDP-RX CPU      total   1064696\n",
            [("XDP_TX", 1064695, 2)],
        ),
        (
            "Running XDP on dev:i40e2 (ifindex:6) action:XDP_DROP options:read\n"
            "XDP-RX CPU      total   33,417,775\n",
            [("XDP_DROP read", 33417775, 1)],
        ),
        (
            "root@board:~# ./xdp-bench tx eno0\n"
            "Hairpinning (XDP_TX) packets on eno0 (ifindex 3; driver x)\n"
            "Summary                   396,868 rx/s                  0 err,drop/s\n"
            "Summary                   396,024 rx/s                  0 err,drop/s\n",
            [("XDP_TX", 396446, 2)],
        ),
        (
            "xdp-bench drop eth0\n"
            "Summary                   684,781 rx/s                  0 err/s\n"
            "  receive total           684,781 pkt/s           684,781 drop/s      0 error/s\n"
            "    cpu:0                 684,781 pkt/s           684,781 drop/s      0 error/s\n"
            "Summary                   675,746 rx/s                  0 err/s\n\n"
            "xdp-bench redirect eth0 eth0\n"
            "eth0->eth0                311,210 rx/s   0 err,drop/s      311,208 xmit/s\n",
            [("XDP_DROP", 680264, 2), ("XDP_REDIRECT", 311210, 1)],
        ),
        (
            "XDP_DROP (samples/bpf/xdp1)\nproto 17:     865683 pkt/s\n\n"
            "XDP_TX (samples/bpf/xdp2)\nproto 17:     253594 pkt/s\n",
            [("XDP_DROP", 865683, 1), ("XDP_TX", 253594, 1)],
        ),
        (
            " sock0@eth2:0 rxdrop xdp-drv\n"
            "                   pps            pkts           1.00\n"
            "rx                 862,258        4,514,166\n"
            "tx                 0              0\n",
            [("xdpsock rxdrop rx", 862258, 1)],
        ),
        ("./xdp_redirect_map eth0 eth1\nifindex 7:    8900610 pkt/s\n",
         [("XDP_REDIRECT", 8900610, 1)]),
        (
            "n=8755  cur-pps:3871700 avg=3743490 max=3914720 min=3621229\n"
            "n=8756  cur-pps:3871776 avg=3743497 max=3914720 min=3621229\n",
            [("packets", 3743497, 8756)],
        ),
        (
            "instant rx:0 tx:1165376 pps n:60 average: rx:0 tx:1165928 pps\n",
            [("packets tx", 1165928, 60)],
        ),
        (
            "Result: OK: 16853(c16853+d0) usec, 100000 (60byte,0frags)\n"
            "  5933418pps 2848Mb/sec (2848040640bps) errors: 0\n",
            [("pktgen", 5933418, 1)],
        ),
    ],
)  # fmt: skip
def test_packet_rates(text: str, expected: list[tuple[str, int, int]]) -> None:
    found = [(r.name, r.pps, r.counts["samples"]) for r in records(text)]
    assert found == expected
    assert {r.kind for r in records(text)} == {"rate"}
    assert records(text)[0].ns == pytest.approx(1e9 / expected[0][1])


def test_other_text_between_samples_makes_another_measurement() -> None:
    head = "Running XDP on dev:eth0 (ifindex:2) action:XDP_DROP options:no_touch\n"
    total = "XDP-RX CPU      total   {}\n"
    text = (
        head + total.format(100) + "\n1 flow was slower, now 2 flows:\n" + head + total.format(300)
    )
    assert [record.pps for record in records(text)] == [100, 300]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Ethtool(mlx5p1  ) stat:      8987894 (      8,987,894) <= rx_cache_empty /sec\n"
            "Ethtool(mlx5p1  ) stat:   16208223 (     16,208,223) <= rx1_cache_reuse /sec\n",
            [("rx_cache_empty", 8987894), ("rx1_cache_reuse", 16208223)],
        ),
        (
            "  3.780.344.586      cycles                    ( +-  0,00% )  (69,23%)\n"
            "  3,967,401,581      instructions     #    1.05  insn per cycle   ( +-  0.02% )\n",
            [("cycles", 3780344586), ("instructions", 3967401581)],
        ),
    ],
)
def test_counters_are_listed(text: str, expected: list[tuple[str, int]]) -> None:
    assert [(r.name, r.events) for r in records(text)] == expected
    assert {(r.kind, r.ns, r.cycles) for r in records(text)} == {("event", None, None)}


def test_own_tables_are_read_back() -> None:
    """What `compare` writes is what people paste into a mail."""
    from pathlib import Path

    from pagepool.compare import compare, formats

    data = Path(__file__).parents[1] / "data"
    report = compare(str(data / "x86-before.txt"), str(data / "x86-v7.txt"))
    expected = {
        str(pair.after.printed)
        for row in report.comparisons[0].rows
        if (pair := row.metrics["ns"]).after
    }
    for form in ("table", "org", "markdown"):
        quoted = "".join(f"> {part}\n" for part in formats.render(report, form).splitlines())
        for text in (formats.render(report, form), quoted):
            results = read(text)
            assert len(results.builds) == 2, (form, text)
            found = {str(record.ns_printed) for record in results.builds[1].records}
            assert expected <= found, form


@pytest.mark.parametrize(
    "rule", ["|---|---|---|", "|:--|--:|:-:|", "|-|-|-|", "| --- | --- | --- |"]
)
def test_any_rule_of_markdown(rule: str) -> None:
    text = f"### Before\n| Test | Cycles | ns |\n{rule}\n| fast_path | 19 | 5.3 |\n"
    assert labelled(text) == {"Before": ["tasklet_page_pool01_fast_path 19/5.300"]}


def test_columns_that_name_no_build() -> None:
    head = "|---|---|---|---|\n"
    text = f"| Test | Min ns | Avg ns | Max ns |\n{head}| lock | 5.1 | 5.3 | 5.9 |\n"
    assert labelled(text) == {"log": ["lock None/5.300"]}
    text = f"| Test | CPU cycles | Time (ns) | % |\n{head}| lock | 19 | 5.3 | 1 |\n"
    assert labelled(text) == {"log": ["lock 19/5.300"]}
    text = f"| Test | ns | ns | diff |\n{head}| lock | 5.3 | 5.4 | 0.1 |\n"
    assert labelled(text) == {"column 1": ["lock None/5.300"], "column 2": ["lock None/5.400"]}
    with pytest.raises(ResultsError):
        read(f"| Service | Size (M) | Threads | x |\n{head}| nginx | 120 | 4 | y |\n")


def test_what_kselftests_runner_puts_before_each_line() -> None:
    text = (
        "TAP version 13\n1..1\n# timeout set to 45\n"
        "# selftests: net/bench: test_bench_page_pool.sh\n"
        "# [  157.475084] bench_page_pool: Type:no-softirq-page_pool01 Per elem: 11 cycles(tsc) "
        "4.337 ns (step:0)\n# Fast path results:\n"
        "# no-softirq-page_pool02 Per elem: 529 cycles(tsc) 196.073 ns\n"
        "ok 1 selftests: net/bench: test_bench_page_pool.sh\n"
    )
    assert figures(text) == [
        "no-softirq-page_pool01 11/4.337",
        "no-softirq-page_pool02 529/196.073",
    ]


def both(*rows: str) -> str:
    """A table of two builds: these rows below ``| test | before | after |``."""
    head = "| test | before | after |\n|------|-------:|------:|\n"
    return head + "".join(f"| {row} |\n" for row in rows)


@pytest.mark.parametrize(
    "cell",
    [
        "5.1", "5.1 ns", "5.1 (-4%)", "5.1 ns (-4%)", "5.1 (-4.0%)", "**5.1** ns (+28.3 %)",
        "5.1 \u00b1 0.3", "5.1 +- 1", "5.1 +/- 0.5 ns", "5.1 ns \u00b1 2%", "5.1 (\u00b1 0.2)",
        "5.1 (+0.2, +4 %)", "5.1 ns (4 % slower)", "5.1 (1.04x)", "5.1 -4%", "5.1\u00a0ns",
        "5.1 [-0.2 ns]", "`5.1 ns`", "0.0051 us", "0.0051 \u00b5s", "0.0000051 ms", "5.1 ns/op",
    ],
)  # fmt: skip
def test_what_people_add_to_a_figure(cell: str) -> None:
    table = both(f"lock | 6.2 ns | {cell}").replace("before |", "before ns |", 1)
    table = table.replace("after |", "after ns |", 1)
    found = labelled(table)
    assert found["before"] == ["lock None/6.200"]
    assert found["after"][0] in ("lock None/5.100", "lock None/5.1000")
    if cell[0] in "`*":
        return  # without bars nobody writes so
    aligned = f"test      before ns      after ns\n\nlock      6.2     {cell}\n"
    assert labelled(aligned) == found


@pytest.mark.parametrize(
    "cell",
    ["+0.2", "-4 %", "(-4%)", "4%", "+4.0%", "5.1 (0.2)", "5.1 (19)", "1.2k", "5.1 6.2", "5.1 GHz",
     "1.04x", "x", "-", "", "5.1 s", "n/a", "(5.1)"],
)  # fmt: skip
def test_what_is_no_figure_of_time(cell: str) -> None:
    table = both(f"lock | 6.2 | {cell}").replace("before |", "before ns |", 1)
    table = table.replace("after |", "after ns |", 1)
    assert labelled(table) == {"before": ["lock None/6.200"]}


@pytest.mark.parametrize(
    "cell",
    ["19 cycles (5.399 ns)", "19 cycles 5.399 ns", "19 cycles / 5.399 ns", "5.399 ns (19 cycles)",
     "5.399ns/19cycles", "19 cycles(tsc), 5.399 ns", "19 cyc [5.399 nsec]",
     "**19 cycles (5.399 ns)**"],
)  # fmt: skip
def test_both_figures_in_a_cell(cell: str) -> None:
    table = f"| test | old | new |\n|---|---|---|\n| lock | {cell} | {cell.replace('5.', '6.')} |\n"
    wanted = {"old": ["lock 19/5.399"], "new": ["lock 19/6.399"]}
    assert labelled(table) == wanted
    if not cell.startswith("*") and "," not in cell and "[" not in cell:
        aligned = f"test     old       new\nlock     {cell}    {cell.replace('5.', '6.')}\n"
        assert labelled(aligned) == wanted


@pytest.mark.parametrize("cell", ["19/5.399", "19 / 5.399", "19 (5.399)", "19 [5.399]"])
@pytest.mark.parametrize("unit", ["cycles/ns", "(cycles/ns)", "cycles (ns)", "[cyc/nsec]"])
def test_both_figures_in_a_cell_by_the_title(cell: str, unit: str) -> None:
    table = f"| test | old {unit} | new {unit} | diff |\n|---|---|---|---|\n"
    table += f"| lock | {cell} | 20 (6.1) | +3 % |\n"
    wanted = {"old": ["lock 19/5.399"], "new": ["lock 20/6.100"]}
    assert labelled(table) == wanted
    turned = table.replace(unit, "ns/cycles" if "/" in unit else "ns (cycles)")
    turned = turned.replace(
        cell, cell.replace("19", "x").replace("5.399", "19").replace("x", "5.399")
    )
    assert labelled(turned.replace("20 (6.1)", "6.1 (20)")) == wanted
    if "[" not in cell:
        aligned = (
            f"test     old {unit}       new {unit}   diff\nlock     {cell}    20 (6.1)   +3 %\n"
        )
        assert labelled(aligned) == wanted
    in_corner = f"| test ({unit.strip('()[]')}) | old | new |\n|---|---|---|\n"
    assert labelled(f"{in_corner}| lock | {cell} | 20 (6.1) |\n") == wanted


@pytest.mark.parametrize("title", ["ns (stddev)", "[ns] (sd)", "ns (\u00b1)", "ns std"])
def test_a_spread_in_brackets(title: str) -> None:
    rows = "| lock | 5.1 (0.2) | 5.4 (0.19) |\n| fast_path | 6.1 ns (0.2) | 7 |\n"
    table = f"| test | old {title} | new {title} |\n|---|---|---|\n{rows}"
    assert labelled(table) == {
        "old": ["lock None/5.100", "tasklet_page_pool01_fast_path None/6.100"],
        "new": ["lock None/5.400", "tasklet_page_pool01_fast_path None/7.000"],
    }


def test_a_test_whose_figures_cannot_be_read_is_no_title() -> None:
    rows = "| fast_path | broken | n/a |\n| rcu | 5.1 | 5.2 |\n"
    table = f"| test | old ns | new ns |\n|---|---|---|\n{rows}"
    assert labelled(table) == {"old": ["rcu None/5.100"], "new": ["rcu None/5.200"]}


@pytest.mark.parametrize("apart", ["   ", "\t", ",", ", "])
def test_builds_below_each_other_without_bars(apart: str) -> None:
    rows = [
        ("test", "kernel", "cycles", "ns"),
        ("lock", "v6.12", "19", "5.399"), ("lock", "patched", "20", "6.1"),
        ("rcu", "v6.12", "1", "0.399"), ("rcu", "patched", "2", "0.5"),
    ]  # fmt: skip
    wanted = {
        "v6.12": ["lock 19/5.399", "rcu 1/0.399"],
        "patched": ["lock 20/6.100", "rcu 2/0.500"],
    }
    for order in ((0, 1, 2, 3), (1, 0, 2, 3)):
        text = "".join(apart.join(row[at] for at in order) + "\n" for row in rows)
        assert labelled(text) == wanted
        assert labelled("> > " + text.rstrip().replace("\n", "\n> > ") + "\n") == wanted


def test_builds_below_each_other_tests_beside() -> None:
    text = (
        "kernel     fast_path(ns)   ptr_ring(ns)\nbaseline   4.1     9.2\nwith fix   4.2     9.3\n"
    )
    assert labelled(text) == {
        "baseline": [
            "tasklet_page_pool01_fast_path None/4.100",
            "tasklet_page_pool02_ptr_ring None/9.200",
        ],
        "with fix": [
            "tasklet_page_pool01_fast_path None/4.200",
            "tasklet_page_pool02_ptr_ring None/9.300",
        ],
    }


def test_values_with_commas() -> None:
    text = 'Test,before cycles,before ns,after cycles,after ns,diff %\n"lock",19,5.399,20,6.1,+13\n'
    text += "rcu,1,0.399,,0.5,\n"
    assert labelled(text) == {
        "before": ["lock 19/5.399", "rcu 1/0.399"], "after": ["lock 20/6.100", "rcu None/0.500"]
    }  # fmt: skip
    assert labelled("test,pps\nXDP_DROP,22188213\n") == {"log": ["XDP_DROP None/45.068"]}


def test_units_beside_the_names_of_rows() -> None:
    table = both(
        "fast path (ns) | 5.1 | 5.4", "slow [cycles] | 190 | 200", "lock, x (us) | 1.5 | 2"
    )
    expected = {
        "before": ["fast path None/5.100", "slow 190/None", "lock, x None/1500.000"],
        "after": ["fast path None/5.400", "slow 200/None", "lock, x None/2000.000"],
    }
    expected = {
        label: [it.replace("slow", "tasklet_page_pool03_slow") for it in of_it]
        for label, of_it in expected.items()
    }
    assert labelled(table) == expected
    aligned = (
        "test              before    after\n"
        "fast path (ns)       5.1      5.4\n"
        "slow [cycles]        190      200\n"
        "lock, x (us)         1.5        2\n"
    )
    assert labelled(aligned) == expected
    # Beside the names of all.
    assert labelled(both("lock | 5.1 | 5.4").replace("test", "test (ns)")) == {
        "before": ["lock None/5.100"],
        "after": ["lock None/5.400"],
    }
    # What is counted, or has no title, is no time.
    table = "| test (ns) | before | loops | |\n|---|---|---|---|\n| lock | 5.1 | 1000 | 7 |\n"
    assert labelled(table) == {"before": ["lock None/5.100"]}


def test_both_figures_of_a_test_below_each_other() -> None:
    rows = ["lock (cycles) | 37 | 38", "lock (ns) | 10.4 | 10.7"]
    expected = {"before": ["lock 37/10.400"], "after": ["lock 38/10.700"]}
    for order in (rows, rows[::-1]):
        assert labelled(both(*order)) == expected
    results = read(both(*rows, *rows))  # said twice they are two runs
    assert [len(build.runs) for build in results.builds] == [2, 2]


def test_units_in_the_cells_only() -> None:
    expected = {"old": ["lock None/5.100", "x 19/None"], "v2": ["lock None/5.400", "x 20/None"]}
    bars = "| | old | v2 |\n|-|-|-|\n| lock | 5.1 ns | 5.4 ns |\n| x | 19 cycles | 20 cycles |\n"
    assert labelled(bars) == expected
    blanks = "           old         v2\nlock      5.1 ns     5.4 ns\nx   19 cycles   20 cycles\n"
    assert labelled(blanks) == expected
    assert labelled("> " + blanks.replace("\n", "\n> ") + "\n") == expected
    # A column without a title beside others: who knows what it is?
    bars = "| test | old | |\n|-|-|-|\n| lock | 5.1 ns | 0.3 ns |\n"
    assert labelled(bars) == {"old": ["lock None/5.100"]}


@pytest.mark.parametrize(
    "table",
    [
        # A sentence is no head.
        "we measured this:\nold 5.1 ns 5.4 ns\n",
        "That gives us\nfoo 12 13\n",
        # Which figure is which?
        "| test | cycles (ns) |\n|---|---|\n| lock | 19 |\n",
        "| test | cycles (ns) |\n|---|---|\n| lock | 5.399 (19) |\n",
        "| test | ns |\n|---|---|\n| lock | 19/5.399 |\n",
        "test  ns\nlock  19 / 5.399\n",
        "| test | time |\n|---|---|\n| lock | 19 cycles (5 us) |\n",
        # Prose, and what has commas as well.
        "test, ns and cycles\nlock, 5\n",
        "test,first,second\nlock,5.1,6\n",
        "| Service | Size | Threads |\n|---|---|---|\n| nginx | 120M | 4 |\n",
        "| a | b | ns |\n|---|---|---|\n| 4 | 5 | 12 % |\n",
        # Two columns that may have the names, and one that has only their numbers.
        "| ns | who | what |\n|---|---|---|\n| 5.1 | lock | fast |\n",
        "| threads | test | ns |\n|---|---|---|\n| 4 | lock | 5.1 |\n",
        both("lock | 5.1 | 5.4"),
    ],
)
def test_tables_that_leave_a_doubt(table: str) -> None:
    with pytest.raises(ResultsError, match="no results"):
        read(table)


def test_what_is_computed_is_no_figure() -> None:
    for title in ("diff", "change", "v2 - old", "v2/old", "v2 vs old", "delta (ns)", "\u0394 ns"):
        table = f"| test | old | v2 | {title} |\n|-|-|-|-|\n| lock | 5.1 ns | 5.4 ns | 0.3 ns |\n"
        assert list(labelled(table)) == ["old", "v2"], title
    for row in ("diff | 0.3 | 0.2", "% | 4 | 3", "change (%) | 4 | 3", "Std dev | 0.1 | 0.2"):
        table = f"| | fast_path (ns) | slow (ns) |\n|-|-|-|\n| old | 5.1 | 66 |\n| {row} |\n"
        assert list(labelled(table)) == ["old"], row
    # The whole measurement beside one operation, and the slowest of many.
    table = "| test | ns | time (ms) | p99 (us) |\n|-|-|-|-|\n| lock | 5.1 | 510 | 3 |\n"
    assert labelled(table) == {"log": ["lock None/5.100"]}


def test_factors_are_those_of_rates() -> None:
    text = (
        "| case | before (pps) | after (pps) |\n|-|-|-|\n| drop | 1.2k | 1.25M |\n"
        "\n\n| | old | new |\n|-|-|-|\n| XDP_DROP | 19M | 20.5M (+8 %) |\n| RSS | 19M | 20M |\n"
    )
    assert [(record.name, record.pps) for record in records(text)] == [
        ("drop", 1_200), ("drop", 1_250_000), ("XDP_DROP", 19_000_000), ("XDP_DROP", 20_500_000),
    ]  # fmt: skip


def test_names_in_another_column() -> None:
    expected = {"log": ["lock 37/10.400", "x 19/5.400"]}
    for text in (
        "| # | Test | cycles | ns |\n|-|-|-|-|\n| 1 | lock | 37 | 10.4 |\n| 2 | x | 19 | 5.4 |\n",
        "| cycles | ns | test |\n|-|-|-|\n| 37 | 10.4 | lock |\n| 19 | 5.4 | x |\n",
        "| ns | cycles | what |\n|-|-|-|\n| 10.4 | 37 | lock |\n| 5.4 | 19 | x |\n",
        "| cycles | ns | Test | x |\n|-|-|-|-|\n| 37 | 10.4 | lock | y |\n| 19 | 5.4 | x | z |\n",
    ):
        assert labelled(text) == expected, text
    rows = "| 6.1 | lock | 10.4 |\n| | x | 5.4 |\n| 6.2 | lock | 10.5 |\n| | x | 5.5 |\n"
    assert labelled(f"| kernel | test | ns |\n|-|-|-|\n{rows}") == {
        "6.1": ["lock None/10.400", "x None/5.400"],
        "6.2": ["lock None/10.500", "x None/5.500"],
    }
    rows = "| lock | old | 10.4 |\n| lock | new | 10.5 |\n"
    assert labelled(f"| test | build | ns |\n|-|-|-|\n{rows}") == {
        "old": ["lock None/10.400"],
        "new": ["lock None/10.500"],
    }


def test_what_a_table_without_units_lacks() -> None:
    expected = r"line 3 needs cycles, ns, \.\.\. in its head, its rows' names or its cells"
    with pytest.raises(ResultsError, match=expected):
        read(both("lock | 5.1 | 5.4"))
    with pytest.raises(ResultsError, match="the table at line 2 needs"):
        read("test       before    after\nfast_path   37   10.4\n")


RECORD = "time_bench: Type:lock Per elem: 37 cycles(tsc) 10.431 ns"


def oddities(text: str) -> list[tuple[int, str, str]]:
    return [(it.line, it.severity, it.text) for it in read(text).oddities]


def test_what_a_patch_adds_is_read_and_what_it_removes_is_not() -> None:
    text = (
        "--- a/doc.txt\n+++ b/doc.txt\n@@ -1,3 +1,4 @@\n"
        f" {RECORD.replace('lock', 'kept')} {TAIL}\n"
        f"-{RECORD.replace('lock', 'gone')} {TAIL}\n"
        f"-[  15.1] {RECORD.replace('lock', 'gone')} {TAIL}\n"
        f"+{RECORD}\n+  (step:0) - (measurement period time:0.104310000 sec\n"
        "+  time_interval:104310000) - (invoke count:10000000 tsc_interval:375516000)\n"
        f"+[  15.1] {RECORD.replace('lock', 'stamped')} (step:0)\n"
        "+summary Per elem: 5 cycles(tsc) 1.500 ns\n"
        "-summary Per elem: 5 cycles(tsc) 1.400 ns\n"
        "++ not this\n"
    )
    for quote in ("", "> "):
        quoted = "".join(f"{quote}{it}" for it in text.splitlines(keepends=True))
        found = [(record.name, record.invoke_count) for record in records(quoted)]
        assert found == [
            ("kept", 10**7), ("lock", 10**7), ("stamped", None), ("summary", None),
        ]  # fmt: skip
        assert [it for it in oddities(quoted) if it[1] == "note"] == [
            (line, "note", "a record in a line that a patch removes; not read") for line in (5, 6)
        ]


def test_parts_of_what_a_patch_adds_are_added_too() -> None:
    tail = "(step:0) - (measurement period time:0.104310000 sec time_interval:104310000)\n"
    (record,) = records(f"+{RECORD}\n{tail}")
    assert record.step is None
    (record,) = records(f"{RECORD}\n+{tail}")
    assert record.step is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("time_bench: Type: lock Per elem: 37 cycles(tsc) 10.431 ns", "no name behind 'Type:'"),
        ("time_bench: Type:", "no name behind 'Type:'"),
        ("[ 1.5] bench_page_pool: Sum Type: Average: 5 cycles(tsc)", "no name behind 'Type:'"),
        ("time_bench: Type:lock", "'lock' is not followed by figures"),
        (f"as in {RECORD}", "a record behind 'as in '; not read"),
        (f"- {RECORD}", "a record in a line that a patch removes; not read"),
    ],
)
def test_a_broken_record_is_said(line: str, said: str) -> None:
    good = f"\n{RECORD.replace('lock', 'good')} (step:0)\n"
    ((number, _, text),) = oddities(f"{line}\n{good}")
    assert number == 1 and said in text
    assert figures(f"{line}\n{good}") == ["good 37/10.431"]
    with pytest.raises(ResultsError, match=r"log\.txt:1: no results; "):
        read(f"{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        'pr_info("time_bench: Type:%s Per elem: %llu cycles(tsc) %llu.%03llu ns", a)',
        "It prints time_bench: Type:NAME and then its figures",
        "the prefix is time_bench:",
    ],
)
def test_what_is_written_about_records_is_none(line: str) -> None:
    assert oddities(f"{line}\n\n{RECORD} (step:0)\n") == []


def test_nothing_turns_the_direction_of_what_is_shown() -> None:
    turns = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
    text = (
        f"Before{turns}:\nType:lo{turns}ck Per elem: 37 cycles(tsc) 10.431 ns (step:0)\n"
        f"# governor{turns}: perf{turns}ormance\n"
        f"\n| test | a{turns}fter (ns) |\n|-|-|\n| lo{turns}ck | 10.763 |\n"
    )
    assert labelled(text) == {"Before": ["lock 37/10.431"], "after": ["lock None/10.763"]}
    shown = jsonio.dumps(read(text)) + listing(f"log{turns}", read(text))
    assert not set(turns) & set(shown)


@pytest.mark.parametrize(
    "table",
    [
        "+-----------+--------+--------+\n"
        "| Test      | before | after  |\n"
        "+===========+========+========+\n"
        "| fast_path | 5.1 ns | 5.4 ns |\n"
        "+-----------+--------+--------+\n"
        "| slow      | 66 ns  | 71 ns  |\n"
        "+-----------+--------+--------+\n",
        "┏━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━┓\n"
        "┃ Test      ┃ before ┃ after  ┃\n"
        "┡━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━┩\n"
        "│ fast_path │ 5.1 ns │ 5.4 ns │\n"
        "│ slow      │ 66 ns  │ 71 ns  │\n"
        "└───────────┴────────┴────────┘\n",
        "> ╔═══════════╦════════╦════════╗\n"
        "> ║ Test      ║ before ║ after  ║\n"
        "> ╠═══════════╬════════╬════════╣\n"
        "> ║ fast_path ║ 5.1 ns ║ 5.4 ns ║\n"
        "> ║ slow      ║ 66 ns  ║ 71 ns  ║\n"
        "> ╚═══════════╩════════╩════════╝\n",
    ],
    ids=["crosses", "lines", "double lines, quoted"],
)
def test_tables_that_are_drawn(table: str) -> None:
    assert labelled(table) == {
        "before": [
            "tasklet_page_pool01_fast_path None/5.100",
            "tasklet_page_pool03_slow None/66.000",
        ],
        "after": [
            "tasklet_page_pool01_fast_path None/5.400",
            "tasklet_page_pool03_slow None/71.000",
        ],
    }


def test_names_in_code_with_their_units() -> None:
    table = (
        "| | baseline | patch 1 |\n|---|---|---|\n"
        "| `fast_path` (cycles) | 19 | 24 |\n| `fast_path` (ns) | 5.399 | 6.928 |\n"
    )
    assert labelled(table) == {
        "baseline": ["tasklet_page_pool01_fast_path 19/5.399"],
        "patch 1": ["tasklet_page_pool01_fast_path 24/6.928"],
    }


def test_rates_with_factors_beside_the_names_of_xdp() -> None:
    text = "          net-next   patched\nXDP_DROP  24.1M      25M\nXDP_TX    13.2M      900k\n"
    found = {build.label: [it.pps for it in build.records] for build in read(text).builds}
    assert found == {"net-next": [24_100_000, 13_200_000], "patched": [25_000_000, 900_000]}
    with pytest.raises(ResultsError, match=r"needs cycles, ns, \.\.\. in its head"):
        read(text.replace("XDP_DROP", "XDP-DROP").replace("XDP_TX", "fast_path"))


def machines(text: str) -> list[tuple[str, str]]:
    return [(build.label, build.machine.get("cpu", "")) for build in read(text).builds]


BEFORE_AND_AFTER = (
    f"Before:\nType:for_loop Per elem: 8 cycles(tsc) 3.187 ns {TAIL}\n"
    f"After:\nType:for_loop Per elem: 8 cycles(tsc) 3.188 ns {TAIL.replace('585', '586')}\n"
)


@pytest.mark.parametrize(
    ("line", "cpu"),
    [
        ("Intel Xeon 6430:", "Intel Xeon 6430"),
        ("On the Xeon E5-1650 v4:", "Xeon E5-1650 v4"),
        ("AMD EPYC 9684X 96-Core Processor results:", "AMD EPYC 9684X 96-Core Processor"),
        ("Results on my AMD machine:", "AMD machine"),
        ("Numbers from an i7-8700:", "i7-8700"),
        ("- 2x Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz:", "2x Intel(R) Xeon(R) Gold 6140 CPU"),
        ("Machine A:", "Machine A"),
        ("Machine B: Cortex-A53", "Cortex-A53"),
        ("CPU A: some board", "some board"),
        ("Machine: some board", "some board"),
    ],
)
def test_machines_that_a_line_tells_apart(line: str, cpu: str) -> None:
    other = BEFORE_AND_AFTER.replace("3.18", "2.18").replace("585", "575").replace("586", "576")
    text = f"{line}\n\n{BEFORE_AND_AFTER}\nOn an EPYC 7763:\n\n{other}"
    found = machines(text)
    assert [label for label, _ in found] == ["Before", "After", "Before#2", "After#2"]
    assert found[0][1].startswith(cpu)
    assert found[0][1] == found[1][1]
    assert [it for _, it in found[2:]] == ["EPYC 7763"] * 2
    quoted = "".join(f"> {it}" for it in text.splitlines(keepends=True))
    assert machines(quoted) == found


@pytest.mark.parametrize(
    "line",
    [
        "Intel ice driver:",
        "AMD IOMMU:",
        "The Xeon shows the same picture:",
        "Xeon and EPYC behave alike, so here is one:",
        "Core dump:",
        "the machine:",
        "Ampere suggested this:",
        "Machine learning:",
        "CPU 3: Package temperature above threshold",
    ],
)
def test_lines_that_name_no_machine(line: str) -> None:
    assert machines(f"{line}\n{BEFORE_AND_AFTER}") == [("Before", ""), ("After", "")]


def test_a_table_is_of_the_machine_above_it() -> None:
    table = "| test | before (ns) | after (ns) |\n|---|---|---|\n| fast_path | 5.1 | 5.3 |\n"
    text = f"On the Xeon 6430:\n\n{table}\nEPYC 9684X results:\n\n{table.replace('5.', '4.')}"
    assert machines(text) == [
        ("before", "Xeon 6430"),
        ("after", "Xeon 6430"),
        ("before#2", "EPYC 9684X"),
        ("after#2", "EPYC 9684X"),
    ]


def test_a_machine_of_a_section_is_not_that_of_the_next() -> None:
    text = (
        f"#+Title: x\n* AMD EPYC 9684X\n** one\n{BEFORE_AND_AFTER}* Elsewhere\n"
        + BEFORE_AND_AFTER.replace("3.18", "2.18").replace("585", "575").replace("586", "576")
    )
    assert machines(text) == [
        ("Before", "AMD EPYC 9684X"),
        ("After", "AMD EPYC 9684X"),
        ("Before#2", ""),
        ("After#2", ""),
    ]


def test_another_counter_is_another_machine_than_that_above() -> None:
    other = TAIL.replace("86043192", "66043192").replace("585", "575")
    text = (
        f"On the Xeon 6430:\n{BEFORE_AND_AFTER}"
        f"Control:\nType:for_loop Per elem: 6 cycles(tsc) 3.187 ns {other}\n"
    )
    assert machines(text) == [("Before", "Xeon 6430"), ("After", "Xeon 6430"), ("Control", "")]


def load(fast: int, slow: int) -> str:
    """One load of a module: two tests, in picoseconds an element."""
    return "bench_page_pool_simple: Loaded\n" + "".join(
        f"time_bench: Type:{name} Per elem: {ps * 36 // 10**4} cycles(tsc) {ps / 1000:.3f} ns "
        f"(step:0) - (measurement period time:0.{ps * 10**4:09} sec time_interval:{ps * 10**4})"
        f" - (invoke count:10000000 tsc_interval:{ps * 36000})\n"
        for name, ps in (("tasklet_page_pool01_fast_path", fast), ("lock", slow))
    )


def shape(text: str) -> list[tuple[str, list[int]]]:
    return [(build.label, [len(run.records) for run in build.runs]) for build in read(text).builds]


def test_a_table_names_the_runs_of_the_log_below_it() -> None:
    table = "| test | before ns | after ns |\n|---|---|---|\n| fast_path | 5.399 | 6.928 |\n"
    loads = f"\n{load(5399, 13514)}\n{load(6928, 13500)}"
    assert shape(table + loads) == [("before", [2]), ("after", [2])]
    assert shape(loads + table) == [("before", [2]), ("after", [2])]
    found = oddities(table + loads)
    assert [(line, text[:24]) for line, _, text in found if "this run" in text] == [
        (6, "this run is of 'before',"),
        (10, "this run is of 'after', "),
    ]
    quote = "".join(f"> {line}" for line in table.splitlines(keepends=True))
    assert shape(quote + loads) == [("before", [2]), ("after", [2])]


def test_a_log_keeps_what_it_is_called_and_what_two_builds_claim() -> None:
    table = "| test | before ns | after ns |\n|---|---|---|\n| fast_path | 5.399 | 6.928 |\n"
    named = f"\nvanilla:\n{load(5399, 13514)}\npatched:\n{load(6928, 13500)}"
    assert shape(table + named) == [("vanilla", [2]), ("patched", [2])]
    claimed = (
        "For tasklet_page_pool01_fast_path before this patchset:\n19 cycles(tsc) 5.399 ns\n\n"
        "For tasklet_page_pool01_fast_path after this patchset:\n19 cycles(tsc) 5.399 ns\n\n"
    )
    assert [it for it in shape(claimed + load(5399, 13514)) if it[1] == [2]] == [("log", [2])]
    # Another mail of an archive is another text.
    head = "From a@b Mon Jan  1 00:00:00 2024\nFrom: a@b\nSubject: x\n\n"
    mails = f"{head}{table}\n{head}{load(5399, 13514)}\n{load(6928, 13500)}"
    assert [label for label, _ in shape(mails)] == ["log-2"]
