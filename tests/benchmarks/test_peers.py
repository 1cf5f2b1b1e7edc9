# SPDX-License-Identifier: BSD-2-Clause
"""The driver of the peers: the protocol, the arithmetic, what is missing, the text of the table."""

import ctypes.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import peer_process  # noqa: E402
import peer_report  # noqa: E402
import peers_python  # noqa: E402
import run_peers  # noqa: E402
from peer_process import Peer, PeerError, Slice  # noqa: E402
from peer_report import Comparison, Slot, make_row  # noqa: E402

# Answers as peers/peer.h says, without a clock: each loop of "steady" takes 5 ns and 13 cycles.
FAKE = """
import json, sys
def say(**answer):
    print(json.dumps(answer), flush=True)
say(peer="fake", version="1", detail="/lib/fake.so")
for line in sys.stdin:
    match line.split():
        case ["list"]:
            say(tests=["steady", "broken", "dies", "short", "mumbles"])
        case ["run", "steady", n]:
            say(test="steady", loops=int(n), ns=5 * int(n), tsc=13 * int(n), cpu_ns=5 * int(n))
        case ["run", "short", n]:
            say(test="short", loops=int(n) - 1, ns=1, tsc=1, cpu_ns=1)
        case ["run", "dies", n]:
            print("out of luck", file=sys.stderr)
            sys.exit(3)
        case ["run", "mumbles", n]:
            print("hm", flush=True)
        case ["quit"]:
            break
        case _:
            say(error="no")
"""


def fake(name: str = "fake") -> Peer:
    return Peer(name, [sys.executable, "-c", FAKE])


class TestProtocol:
    def test_hello_list_run(self) -> None:
        with fake() as peer:
            assert (peer.version, peer.detail) == ("1", "/lib/fake.so")
            assert "steady" in peer.tests
            done = peer.run("steady", 1000)
        assert done == Slice(loops=1000, ns=5000, tsc=13000, cpu_ns=5000)
        assert (done.ns_each, done.cycles_each) == (5.0, 13.0)

    @pytest.mark.parametrize(
        ("test", "message"),
        [
            ("broken", "fake: no"),
            ("dies", r"fake: ended \(3\): out of luck"),
            ("short", "fake: short: 999 loops"),
            ("mumbles", "fake: not an answer: hm"),
        ],
    )
    def test_what_goes_wrong_is_said(self, test: str, message: str) -> None:
        with fake() as peer, pytest.raises(PeerError, match=message):
            peer.run(test, 1000)

    def test_goes_on_after_an_error(self) -> None:
        with fake() as peer:
            with pytest.raises(PeerError):
                peer.run("broken", 1000)
            assert peer.run("steady", 10).ns == 50

    def test_no_such_program(self) -> None:
        with pytest.raises(PeerError, match=r"gone: .*No such file"):
            Peer("gone", ["/nonexistent/peer"])

    def test_ends_at_once(self) -> None:
        with pytest.raises(PeerError, match=r"fake: ended \(1\): sorry"):
            Peer("fake", [sys.executable, "-c", "import sys; sys.exit('sorry')"])

    def test_silence_has_an_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer_process, "START_TIMEOUT", 0.05)
        with pytest.raises(PeerError, match=r"fake: no answer for 0\.05 s"):
            Peer("fake", [sys.executable, "-c", "input()"])


class TestPythonPeer:
    def test_as_a_process(self) -> None:
        cpu = min(os.sched_getaffinity(0))
        script = str(BENCHMARKS / "peers_python.py")
        with Peer("python", [sys.executable, script, "--cpu", str(cpu)]) as peer:
            assert peer.version.startswith(sys.implementation.name)
            assert set(peers_python.TESTS) == peer.tests
            done = peer.run("deque-view", 1000)
            assert done.loops == 1000
            assert done.ns > 0
            assert done.tsc == 0
            assert done.cpu_ns > 0
            with pytest.raises(PeerError, match="no test nothing"):
                peer.run("nothing", 1000)

    def test_loops_of_a_batch_are_rounded_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        turns: list[int] = []
        monkeypatch.setitem(peers_python.TESTS, "b", (lambda: turns.append, 32))
        assert peers_python.Server().answer("run b 33")["loops"] == 64
        assert turns == [peers_python.WARM_UP_MIN, 2]

    def test_a_missing_module_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def make() -> Callable[[int], None]:
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

        monkeypatch.setitem(peers_python.TESTS, "numpy", (make, 1))
        answer = peers_python.Server().answer("run numpy 1")
        assert answer == {"error": "No module named 'numpy' (pip install numpy)"}

    @pytest.mark.parametrize("line", ["", "run", "run deque-view 0", "run deque-view x", "what"])
    def test_nonsense(self, line: str) -> None:
        assert "not understood" in str(peers_python.Server().answer(line)["error"])


OURS, THEIRS, OTHERS = Slot("pagepool", "x"), Slot("dpdk", "y"), Slot("glibc", "z")


def slices(*ns: int) -> list[Slice]:
    return [Slice(loops=100, ns=n * 100, tsc=n * 250, cpu_ns=n * 100) for n in ns]


def rounds(**by_slot: list[Slice]) -> list[dict[Slot, Slice]]:
    names = {"ours": OURS, "theirs": THEIRS, "others": OTHERS}
    return [
        {names[key]: value for key, value in zip(by_slot, values, strict=True)}
        for values in zip(*by_slot.values(), strict=True)
    ]


class TestRatio:
    def test_median_of_the_ratios_of_each_round(self) -> None:
        row = make_row(
            Comparison("p", OURS, (THEIRS,), reach=0.7),
            # The last round was disturbed, both alike; the first only for theirs.
            rounds(ours=slices(10, 10, 12, 40), theirs=slices(40, 20, 24, 80)),
            {},
        )
        assert row.ratio == peer_report.Spread(0.5, 0.25, 0.5)
        assert row.ratio_of_medians == pytest.approx(11 / 32)
        assert row.ours_ns == peer_report.Spread(11, 10, 40)
        assert row.ours_cycles == peer_report.Spread(27.5, 25, 100)
        assert (row.rounds, row.reached) == (4, True)

    def test_reach_is_inclusive_and_optional(self) -> None:
        data = rounds(ours=slices(12), theirs=slices(10))
        assert make_row(Comparison("p", OURS, (THEIRS,), reach=1.2), data, {}).reached is True
        assert make_row(Comparison("p", OURS, (THEIRS,), reach=1.1), data, {}).reached is False
        assert make_row(Comparison("p", OURS, (THEIRS,)), data, {}).reached is None

    def test_best_of_several_is_chosen_once(self) -> None:
        data = rounds(ours=slices(10, 10, 10), theirs=slices(5, 20, 20), others=slices(15, 15, 15))
        row = make_row(Comparison("p", OURS, (THEIRS, OTHERS)), data, {})
        assert row.theirs == OTHERS
        assert row.ratio == peer_report.Spread(10 / 15, 10 / 15, 10 / 15)

    def test_best_of_those_that_are_there(self) -> None:
        data = rounds(ours=slices(10), theirs=slices(5))
        row = make_row(Comparison("p", OURS, (THEIRS, OTHERS)), data, {OTHERS: "no glibc"})
        assert (row.theirs, row.skipped) == (THEIRS, "")

    def test_rounds_without_one_of_them_do_not_count(self) -> None:
        data = [*rounds(ours=slices(10), theirs=slices(5)), {OURS: Slice(1, 1, 1, 1)}]
        assert make_row(Comparison("p", OURS, (THEIRS,)), data, {}).rounds == 1

    def test_nothing_measured(self) -> None:
        row = make_row(Comparison("p", OURS, (THEIRS,), reach=1), [], {})
        assert (row.skipped, row.reached, row.ratio) == ("not measured", None, None)


def test_text_of_the_table() -> None:
    data = rounds(ours=slices(10, 12, 14), theirs=slices(20, 24, 29), others=slices(9, 9, 9))
    missing = {Slot("jemalloc", "pair"): "jemalloc: no libjemalloc here (install libjemalloc-dev)"}
    comparisons = [
        Comparison("fast", OURS, (THEIRS,), reach=0.7),
        Comparison("fast", OURS, (OTHERS,), reach=1.0),
        Comparison("slow", OURS, (THEIRS, OTHERS)),
        Comparison("slow", OURS, (Slot("jemalloc", "pair"),), reach=1.0),
    ]
    text = peer_report.text_table(make_row(c, data, missing) for c in comparisons)
    assert text == Path(__file__).with_name("peers_table.txt").read_text()


def test_no_counter_no_cycles() -> None:
    data = [{OURS: Slice(100, 1000, 0, 1000), THEIRS: Slice(100, 1000, 0, 1000)}]
    row = make_row(Comparison("p", OURS, (THEIRS,)), data, {})
    assert peer_report.table([row])[0][3] == "-"


class TestMissing:
    def test_the_package_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        recipes = {recipe.name: recipe for recipe in run_peers.RECIPES}
        with pytest.raises(PeerError, match=r"dpdk: .* \(install libdpdk-dev and build again\)"):
            run_peers.start(recipes["dpdk"], tmp_path, 0)

        program = tmp_path / "peer-malloc"
        program.write_text(f"#!{sys.executable}\n{FAKE}")
        program.chmod(0o755)
        monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
        with pytest.raises(PeerError, match=r"no libjemalloc here \(install libjemalloc-dev\)"):
            run_peers.start(recipes["jemalloc"], tmp_path, 0)

    def test_a_preload_that_did_not_happen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "peer-malloc"
        program.write_text(f"#!{sys.executable}\n{FAKE}")
        program.chmod(0o755)
        monkeypatch.setattr(ctypes.util, "find_library", lambda _: "libc.so.6")
        recipe = run_peers.Recipe("jemalloc", "peer-malloc", "libjemalloc-dev", "jemalloc")
        with pytest.raises(PeerError, match=r"aligned_alloc came from /lib/fake\.so"):
            run_peers.start(recipe, tmp_path, 0)


def a_few(monkeypatch: pytest.MonkeyPatch, *present: str) -> None:
    def start(recipe: run_peers.Recipe, directory: Path, cpu: int) -> Peer:
        if recipe.name not in present:
            raise PeerError(f"{recipe.name}: not here (install it)")
        return fake(recipe.name)

    monkeypatch.setattr(run_peers, "start", start)
    monkeypatch.setattr(
        run_peers,
        "plan",
        lambda: [
            Comparison("a", Slot("pagepool", "steady"), (Slot("dpdk", "steady"),), 1.0),
            Comparison("b", Slot("pagepool", "steady"), (Slot("glibc", "steady"),)),
            Comparison("c", Slot("pagepool", "steady"), (Slot("dpdk", "dies"),)),
        ],
    )


class TestDriver:
    ARGS = ("--rounds", "3", "--lives", "1", "--slice-ms", "0.01")

    def test_one_is_missing(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        a_few(monkeypatch, "pagepool", "dpdk")
        file = tmp_path / "out.json"
        assert run_peers.main([*self.ARGS, "--json", str(file), "--only", "[ab]"]) == 0
        out, err = capsys.readouterr()
        assert "1.000 (1.00..1.00)" in out
        assert "skipped: glibc: not here (install it)" in out
        assert "run_peers: glibc: not here (install it)" in err

        written = json.loads(file.read_text())
        assert written["format"] == peer_report.FORMAT
        assert [row["ratio_of_medians"] for row in written["rows"]] == [1.0, None]
        assert [row["reached"] for row in written["rows"]] == [True, None]
        assert written["rows"][1]["skipped"] == "glibc: not here (install it)"
        assert len(written["rounds"]) == 2 * 3
        assert {peer["name"]: peer["skipped"] for peer in written["peers"]} == {
            "pagepool": None,
            "dpdk": None,
            "glibc": "glibc: not here (install it)",
        }

    @pytest.mark.parametrize("present", [("pagepool",), ("dpdk", "glibc"), ()])
    def test_nothing_to_compare(
        self, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...]
    ) -> None:
        a_few(monkeypatch, *present)
        assert run_peers.main(self.ARGS) == 2

    def test_a_peer_that_dies_takes_only_its_row(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a_few(monkeypatch, "pagepool", "dpdk", "glibc")
        assert run_peers.main([*self.ARGS, "--only", "[bc]"]) == 0
        out = capsys.readouterr().out
        assert out.count("1.000 (1.00..1.00)") == 1
        assert "skipped: dpdk: ended (3): out of luck" in out

    def test_interrupted_prints_what_it_has(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a_few(monkeypatch, "pagepool", "dpdk", "glibc")
        once = run_peers.Measurement._round

        def interrupt(self: run_peers.Measurement, peers: dict[str, Peer], number: int) -> None:
            if number:
                raise KeyboardInterrupt
            once(self, peers, number)

        monkeypatch.setattr(run_peers.Measurement, "_round", interrupt)
        assert run_peers.main([*self.ARGS, "--only", "a"]) == 130
        out, err = capsys.readouterr()
        assert "1.000 (1.00..1.00)" in out
        assert "interrupted" in err

    def test_a_disturbed_slice_is_done_again(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a_few(monkeypatch, "pagepool", "dpdk")
        calls = 0

        def run(self: Peer, test: str, loops: int) -> Slice:
            nonlocal calls
            calls += 1
            if self.name == "dpdk":  # never alone: then its own time counts
                return Slice(loops, 40 * loops, 0, 20 * loops)
            busy = calls % 2  # every other time
            return Slice(loops, (20 if busy else 10) * loops, 0, 10 * loops)

        monkeypatch.setattr(Peer, "run", run)
        assert run_peers.main([*self.ARGS, "--only", "a"]) == 0
        out, err = capsys.readouterr()
        assert "0.500 (0.50..0.50)" in out
        assert "other programs ran during 3 of 6 slices" in err

    def test_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        a_few(monkeypatch, "pagepool", "dpdk")
        assert run_peers.main([*self.ARGS, "--only", "a", "--check"]) == 0
        missed = Comparison("a", Slot("pagepool", "steady"), (Slot("dpdk", "steady"),), 0.5)
        monkeypatch.setattr(run_peers, "plan", lambda: [missed])
        assert run_peers.main([*self.ARGS, "--check"]) == 1

    def test_no_path(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run_peers.main(["--only", "nothing"]) == 2
        assert "no path matches nothing" in capsys.readouterr().err

    @pytest.mark.parametrize("args", [["--rounds", "0"], ["--slice-ms", "0"], ["--cpu", "9999"]])
    def test_arguments(self, args: list[str]) -> None:
        with pytest.raises(SystemExit, match="2"):
            run_peers.main(args)


def test_plan_is_consistent() -> None:
    rows = run_peers.plan()
    known = {recipe.name for recipe in run_peers.RECIPES}
    assert {slot.peer for row in rows for slot in row.slots} <= known
    assert {slot.test for row in rows for slot in row.slots if slot.peer == "python"} == set(
        peers_python.TESTS
    )
    assert all(run_peers.is_ours(row.ours) for row in rows)


def test_everybody_is_everywhere_in_turn() -> None:
    slots = [OURS, THEIRS, OTHERS]
    orders = [run_peers.turn(slots, number) for number in range(6)]
    assert all(set(order) == set(slots) for order in orders)
    for place in range(3):
        assert [order[place] for order in orders].count(OURS) == 2
    # Each directly behind each of the others.
    behind = {(order[i], order[i + 1]) for order in orders for i in range(2)}
    assert len(behind) == 6
    assert run_peers.turn([], 1) == []


def test_calibration_comes_near_to_the_slice() -> None:
    asked: list[int] = []

    def run(loops: int) -> Slice:
        asked.append(loops)
        return Slice(loops, 50_000 + 7 * loops, 0, 7 * loops)  # a slow start, then 7 ns each

    loops = run_peers.calibrate(run, 20e6)
    assert 0.9 * 20e6 < 7 * loops < 1.1 * 20e6
    assert len(asked) < 8
