# SPDX-License-Identifier: BSD-2-Clause
"""Random sequences of calls, on engine and model side by side."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from oracle.worlds import CHUNK, World, user_device
from pagepool import engine, model

_others = [ThreadPoolExecutor(1, f"other-{name}") for name in ("engine", "model")]


def engine_has_magazines() -> bool:
    """Do free pages stay with their thread, or go back to the buddy at once?"""
    arena = engine.Arena(limit=CHUNK)
    for _ in range(2):
        with engine.PagePool(provider=arena) as pool:
            # The first time it is page 63, the top of the cache, and so page 0 is freed last.
            page = pool.alloc()
            number = page.address % CHUNK >> 12
            pool.recycle_direct(page)
    return number == 0


model.Provider.has_magazines = engine_has_magazines()

places = st.integers(0, 1 << 16)
threads = st.sampled_from([False, False, False, True])
designs = st.sampled_from(
    ["ring", "ring", "ours", "ours", "ours", "list", "list-ring", "list-batch", "list-cache"]
)
sizes = st.one_of(st.integers(1, 5000), st.sampled_from([0, 64, 1024, 2048, 2049, 4096, 4097]))
numbers = st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 128, 129, 200]))
nodes = st.sampled_from([None, 0, 0, 1, 2, 1024, -1])
directions = st.sampled_from(["from_device", "from_device", "bidirectional", "to_device", "up"])
lengths = st.sampled_from([0, 1, 64, 1536, 4096, 4096, 4096, 4097, 8192, (1 << 64) - 1])
sync_sizes = st.sampled_from([-1, -1, -1, 0, 1, 64, 1536, 5000, -2])
rules_of_dma = st.fixed_dictionaries(
    {},
    optional={
        "dma_sync": st.sampled_from([True, True, True, False]),
        "dma_dir": st.sampled_from([*["from_device", "bidirectional"] * 3, "to_device"]),
        "track_mappings": st.booleans(),
        "offset": st.sampled_from([0, 0, 64, 100, 4090]),
        "max_len": st.sampled_from([None, None, None, 0, 1, 6, 1536, 4096]),
        "checked": st.sampled_from([False, True, True, "full"]),
    },
)
iommus = st.tuples(st.just("iommu"), st.sampled_from([16, 20, 48]), st.booleans())
kinds = st.one_of(
    iommus,
    st.tuples(st.just("user"), st.sampled_from([0, 1, 2, 3, 65]), st.booleans()),
    st.just(("none", 0, False)),
)
#: Of address: what it is taken from, which of these, and how many bytes behind it.
addresses = st.tuples(
    st.sampled_from(["page", "page", "mapping", "old", "old", "anywhere"]),
    places,
    st.sampled_from([0, 0, 0, 0, 1, 64, 4095, 4096, -1]),
)


class SideBySide(RuleBasedStateMachine):
    """Every rule is one call (or a run of the same) on both; then all that can be seen is equal."""

    sequences = 0
    met: ClassVar[Counter[str]] = Counter()  # exceptions, their causes, faults and statistics

    def __init__(self) -> None:
        super().__init__()
        type(self).sequences += 1
        self.engine = World(engine, _others[0])
        self.model = World(model, _others[1])

    def both(self, act: Callable[[World], object], other: bool = False) -> None:
        got = self.engine.run(act, other)
        expected = self.model.run(act, other)
        assert got == expected, _first_difference(got, expected)
        self.compare(self.engine.seen(), self.model.seen())
        self.count(got)

    def count(self, got: tuple[Any, ...]) -> None:
        result, _, _, faults, texts, _ = got
        met = type(self).met
        for it in result if isinstance(result, list) else [result]:
            while isinstance(it, tuple) and it[:1] == ("raised",):
                met[it[1]] += 1
                it = it[3]  # the cause
        met.update(f"{fault[0]}: {fault[1]}" for fault, _ in faults)
        met["use after put"] += sum("use after put" in text for text in texts)

    @staticmethod
    def compare(engine: dict[str, list[Any]], model: dict[str, list[Any]]) -> None:
        for kind, expected in model.items():
            for i, (mine, its) in enumerate(zip(engine[kind], expected, strict=True)):
                assert mine == its, f"{kind}[{i}] {_first_difference(mine, its)}"

    def teardown(self) -> None:
        # The sequence may have ended in a difference: then the end is no matter, but threads leave,
        # and all pages are put.
        shown = [world.run(World.shown, False) for world in (self.engine, self.model)]
        ended = [world.run(World.end, False) for world in (self.engine, self.model)]
        for got, expected in (shown, ended):
            assert got == expected, _first_difference(got, expected)
            self.count(got)
        for pool in self.model.pools:
            type(self).met.update(dataclasses.asdict(pool._pool.stats))
            if pool.device is not None:
                type(self).met.update(pool._pool.dma.count.__dict__)
        out = [arena.info.out for arena in self.model.arenas]
        assert not any(out), f"bytes that never came back: {out}"

    # -- what there is

    @initialize(
        arenas=st.lists(
            st.tuples(
                st.sampled_from([CHUNK, CHUNK, 2 * CHUNK]),
                st.sampled_from([0, 0, 16 << 12, 600 << 12]),
                st.sampled_from([None, None, 1]),
            ),
            min_size=1,
            max_size=2,
        ),
        regions=st.lists(
            st.tuples(
                st.sampled_from([1, 3, 70, 300, 1100, 2048]),
                st.sampled_from([0, 100]),
                st.sampled_from([0, 4096]),
                st.sampled_from([None, 0, 1]),
            ),
            max_size=1,
        ),
        devices=st.tuples(iommus, kinds),
        dma=st.tuples(rules_of_dma, rules_of_dma),
        out=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 3, 20, 70])), max_size=3),
        which=st.lists(designs, min_size=3, max_size=3),
    )
    def start(
        self,
        arenas: list[tuple[int, int, int | None]],
        regions: list[tuple[int, int, int, int | None]],
        devices: tuple[tuple[str, int, bool], ...],
        dma: tuple[dict[str, Any], dict[str, Any]],
        out: list[tuple[int, int]],
        which: list[str],
    ) -> None:
        def make(w: World) -> None:
            for limit, reserve, node in arenas:
                w.arenas.append(w.api.Arena(limit=limit, reserve=reserve, node=node))
            for pages, odd, reserve, node in regions:
                w.region(pages, odd, reserve=min(reserve, (pages - 1) << 12), node=node)
            w.napis += [w.api.Napi(), w.api.Napi()]
            w.nics.append(w.api.Nic())

        self.both(make)
        for kind, n, flag in devices:
            self.make_device((kind, n, flag), -1)
            # The same at an odd place, where pages that are back may be such as cannot be touched.
            self.make_device((kind, n, flag), -1)
        self.make_pool(0, 4, 0, None, None, None, {}, 0, which[2])
        for i, rules in enumerate(dma):
            usual = {"checked": True, "offset": 64} if i == 0 else {"track_mappings": False}
            self.make_pool(
                len(arenas) + i, 64, 0, None, None, 3 * i, {**usual, **rules}, 0, which[i]
            )
        for pool, n in out:
            self.alloc(pool, n, False)

    def make_device(self, kind: tuple[str, int, bool], iommu: int) -> None:
        """iommu: behind which one, if there is."""
        what, n, flag = kind

        def make(w: World) -> None:
            if what == "none":
                w.devices.append(w.api.NO_DEVICE)
            elif what == "user":
                breaks = 0 if n != 3 else 7
                w.devices.append(user_device(w.api, n, breaks, flag, w.calls))
            else:
                if iommu < 0 or not w.iommus:
                    told = w.faults.append if flag else None
                    w.iommus.append(w.api.Iommu(bits=n, on_fault=told))
                w.devices.append(_pick(w.iommus, iommu).attach(f"eth{len(w.devices)}"))

        self.both(make)

    @precondition(lambda self: len(self.model.pools) < 7)
    @rule(
        arena=places,
        pool_size=st.sampled_from([1, 2, 4, 16, 31, 32, 40, 64, 1024]),
        order=st.sampled_from([0, 0, 0, 0, 0, 1, 3, 8, 10]),
        node=nodes,
        napi=st.sampled_from([None, None, 0, 1]),
        device=st.one_of(st.none(), places, places),
        dma=rules_of_dma,
        wraps=st.sampled_from([0, 0, 1, 100, 1 << 31]),
        design=designs,
    )
    def make_pool(
        self,
        arena: int,
        pool_size: int,
        order: int,
        node: int | None,
        napi: int | None,
        device: int | None,
        dma: dict[str, Any],
        wraps: int,
        design: str,
    ) -> None:
        """wraps: after how many pages the 32-bit counts do."""
        # Through a device at an even place pages are written to that are back: see start().
        if device is not None and device % len(self.model.devices) % 2 == 0:
            dma = {**dma, "checked": dma.get("checked", False) is not False}

        def make(w: World) -> None:
            w.pools.append(
                w.api.PagePool(
                    provider=w.arenas[arena % len(w.arenas)],
                    pool_size=pool_size,
                    design=design,
                    order=order,
                    node=node,
                    napi=None if napi is None else w.napis[napi],
                    statistics=pool_size != 31,
                    device=None if device is None else _pick(w.devices, device),
                    **dma,
                )
            )
            w.pools[-1]._count_from((1 << 32) - wraps)

        self.both(make)

    # -- allocate

    @rule(pool=places, n=numbers, other=threads)
    def alloc(self, pool: int, n: int, other: bool) -> None:
        def act(w: World) -> None:
            for _ in range(n):
                w.pages.append(_pick(w.pools, pool).alloc())

        self.both(act, other)
        self.remember_address()

    @rule(
        pool=places,
        drain=st.booleans(),
        rounds=st.lists(st.tuples(numbers, numbers)),
        direct=st.booleans(),
        other=threads,
    )
    def polls(
        self,
        pool: int,
        drain: bool,
        rounds: list[tuple[int, int]],
        direct: bool,
        other: bool,
    ) -> None:
        """Each takes some pages, and then some come back, inside or outside of the poll."""

        def act(w: World) -> object:
            mine = _pick(w.pools, pool)
            numbers = []
            if drain:
                _polled(mine, lambda pool: pool.update_nid(pool.node))
            for take, give in rounds:

                def take_some(pool: Any, take: int = take) -> None:
                    w.pages += [pool.alloc() for _ in range(take)]

                def give_some(pool: Any, give: int = give) -> None:
                    pages = [page for page in w.pages if page.held and page.pool is pool]
                    for page in pages[:give]:
                        page.put()

                _polled(mine, take_some)
                numbers += [w.page(page) for page in w.pages[-take:]]
                if direct:
                    _polled(mine, give_some)
                else:
                    give_some(mine)
            return numbers

        self.both(act, other)
        self.forget_put()

    @rule(pool=places, sizes=st.lists(sizes, min_size=1, max_size=12), other=threads)
    def alloc_frag(self, pool: int, sizes: list[int], other: bool) -> None:
        def act(w: World) -> None:
            for size in sizes:
                w.pages.append(_pick(w.pools, pool).alloc_frag(size))

        self.both(act, other)

    @rule(
        pool=places,
        size=sizes,
        n=st.integers(1, 12),
        keep=places,
        look=st.integers(0, 20),
        other=threads,
    )
    def frags_back_at_once(
        self, pool: int, size: int, n: int, keep: int, look: int, other: bool
    ) -> None:
        def act(w: World) -> object:
            numbers = []
            for i in range(n):
                piece = _polled(_pick(w.pools, pool), lambda pool: pool.alloc_frag(size))
                numbers.append(w.page(piece))
                if i == look:
                    w.views.append(piece.view())
                if keep >> i & 7:
                    piece.put()
                else:
                    w.pages.append(piece)
            return numbers

        self.both(act, other)

    @rule(pool=places, n=st.one_of(numbers, st.just(0)), other=threads)
    def alloc_bulk(self, pool: int, n: int, other: bool) -> None:
        self.both(lambda w: w.batches.append(_pick(w.pools, pool).alloc_bulk(n)), other)

    # -- put

    @precondition(lambda self: self.model.pages)
    @rule(
        first=places,
        n=numbers,
        step=st.sampled_from([1, -1, 2]),
        direct=st.booleans(),
        size=sync_sizes,
        late=st.sampled_from([None, 0, 3, 63, 64, 4095]),
        again=st.sampled_from([0, 0, 2]),
        other=threads,
    )
    def put(
        self,
        first: int,
        n: int,
        step: int,
        direct: bool,
        size: int,
        late: int | None,
        again: int,
        other: bool,
    ) -> None:
        """late: where in its part the device writes to each page afterwards; again: allocate."""

        def act(w: World) -> None:
            pages = _some(w.pages, first, n, step)
            for page in pages:
                pool, dma = page.pool, w.dma(page)
                pool.put(page, allow_direct=direct, dma_sync_size=size)
                # If it may be touched.
                if (
                    late is not None
                    and isinstance(dma, int)
                    and hasattr(pool.device, "bound")
                    and pool.checked != "full"
                ):
                    w.result(pool.device.write, dma + pool.offset + late, b"late")
            w.pages += [pages[-1].pool.alloc() for _ in range(again)]

        self.both(act, other)
        self.forget_put()

    @precondition(lambda self: self.model.pages)
    @rule(page=places, pool=st.one_of(st.none(), places))
    def misput(self, page: int, pool: int | None) -> None:
        """Twice, or into a pool that may be another."""

        def act(w: World) -> None:
            mine = _pick(w.pages, page)
            if pool is not None:
                _pick(w.pools, pool).recycle_direct(mine)
            mine.put()
            mine.put()

        self.both(act)
        self.forget_put()

    @precondition(lambda self: self.model.pages)
    @rule(
        first=places,
        n=numbers,
        step=st.sampled_from([1, -1, 3]),
        twice=st.integers(0, 9),
        other=threads,
    )
    def put_bulk(self, first: int, n: int, step: int, twice: int, other: bool) -> None:
        def act(w: World) -> None:
            pages = _some(w.pages, first, n, step)
            w.api.PagePool.put_bulk(pages + pages[:1] if twice == 0 else pages)

        self.both(act, other)
        self.forget_put()

    @precondition(lambda self: self.model.batches)
    @rule(batch=places, look=st.lists(places, max_size=3), one=st.booleans(), other=threads)
    def put_batch(self, batch: int, look: list[int], one: bool, other: bool) -> None:
        def act(w: World) -> object:
            mine = _pick(w.batches, batch)
            pages = [_pick(mine, i) for i in look]
            seen = [w.page(page) for page in pages]
            if one and pages:
                pages[0].put()
            mine.put()
            return seen

        self.both(act, other)
        self.forget_put()

    @precondition(lambda self: self.model.batches)
    @rule(batch=places)
    def unpack_batch(self, batch: int) -> None:
        """All its pages are looked at, so that their order is seen."""

        def act(w: World) -> object:
            mine = _pick(w.batches, batch)
            return [w.page(page) for page in mine]

        self.both(act)

    # -- somebody else has it

    @precondition(lambda self: self.model.pages)
    @rule(page=places, keep=st.sampled_from(["nothing", "a part", "all"]))
    def look(self, page: int, keep: str) -> None:
        def act(w: World) -> object:
            mine = _pick(w.pages, page)
            mine.view()[:1] = b"x"
            if keep != "nothing":
                w.views.append(mine.view() if keep == "all" else mine.view()[:1])
            return bytes(mine.view()[:1])

        self.both(act)

    @precondition(lambda self: self.model.views or self.model.pages or self.model.batches)
    @rule(what=st.sampled_from(["pages", "batches"]), place=places)
    def drop(self, what: str, place: int) -> None:
        """A page without a put, or a view: with it the page may go."""
        what = "views" if self.model.views else what

        def act(w: World) -> None:
            things = getattr(w, what)
            if things:
                del things[place % len(things)]

        self.both(act)

    # -- devices

    @precondition(lambda self: self.model.pages)
    @rule(
        page=places,
        pool=st.one_of(st.none(), st.none(), st.none(), places),
        offset=st.sampled_from([0, 0, 1, 100, 4096]),
        size=st.sampled_from([None, 0, 1, 64, 1536, 4096, 5000]),
        other=threads,
    )
    def sync_for_cpu(
        self, page: int, pool: int | None, offset: int, size: int | None, other: bool
    ) -> None:
        def act(w: World) -> None:
            mine = _pick(w.pages, page)
            theirs = mine.pool if pool is None else _pick(w.pools, pool)
            theirs.dma_sync_for_cpu(mine, offset, size)

        self.both(act, other)

    def remember_address(self) -> None:
        """Of a page just allocated: something may come there when it is gone."""
        for world in (self.engine, self.model):
            if world.pages and isinstance(dma := world.dma(page := world.pages[-1]), int):
                world.dmas.append((page.pool.device, dma))
            del world.dmas[:-20]

    @staticmethod
    def address(w: World, device: Any, address: tuple[str, int, int]) -> int:
        kind, place, delta = address
        found: list[Any] = []
        if kind == "page":
            found = [w.dma(page) for page in w.pages if page.pool.device is device]
        elif kind == "old":
            found = [dma for of, dma in w.dmas if of is device]
        found = [dma for dma in found if isinstance(dma, int)]
        if kind != "anywhere" and not found:
            found = [mapping.dma for mapping in device.mappings]
        dma: int = _pick(found, place) if found else place << 12
        return max(dma + delta, 0)

    @rule(
        device=places,
        what=st.lists(
            st.tuples(
                st.sampled_from(
                    ["write", "write", "read", "map", "unmap", "sync_for_device", "sync_for_cpu"]
                ),
                addresses,
                lengths,
                st.sampled_from([0, 0, 64, 4096, (1 << 64) - 1]),
                directions,
            ),
            min_size=1,
            max_size=6,
        ),
        other=threads,
    )
    def by_hand(
        self,
        device: int,
        what: list[tuple[str, tuple[str, int, int], int, int, str]],
        other: bool,
    ) -> None:
        """What a device does, or its driver without the pool."""

        def act(w: World) -> object:
            # At an even place; the first has an IOMMU.
            mine = w.devices[device % len(w.devices) & ~1]
            if not hasattr(mine, "bound"):
                mine = w.devices[0]
            return [
                w.result(self.one_by_hand, w, mine, op, self.address(w, mine, address), *rest)
                for op, address, *rest in what
            ]

        self.both(act, other)

    @staticmethod
    def one_by_hand(
        w: World, device: Any, op: str, dma: int, length: int, offset: int, direction: str
    ) -> object:
        if op == "write":
            data = bytes([0xD5]) * min(length, 8192)
            device.write(dma, data)
            return device.read(dma, len(data)) == data
        if op == "read":
            return len(device.read(dma, min(length, 8192)))
        if op == "map":
            return w.api.NO_DEVICE.map(dma, length, direction), device.map(dma, length, direction)
        if op == "unmap":
            return device.unmap(dma, length, direction)
        return getattr(device, op)(dma, offset, length, direction)

    @rule(device=places, often=st.integers(0, 2), other=threads)
    def unbind_device(self, device: int, often: int, other: bool) -> None:
        def act(w: World) -> object:
            bound = [device for device in w.devices if getattr(device, "bound", False)]
            return _pick(bound or w.devices[:1], device).unbind()

        if often == 0:
            self.both(act, other)

    # -- NICs

    @precondition(lambda self: len(self.model.devices) + len(self.model.nics) < 10)
    @rule(
        device=st.one_of(st.none(), places),
        kind=kinds,
        iommu=st.integers(-1, 2),
        slots=st.sampled_from([0, 1, 4, 4, 3]),
    )
    def make(self, device: int | None, kind: tuple[str, int, bool], iommu: int, slots: int) -> None:
        """A device, or a NIC over one."""

        def act(w: World) -> None:
            assert device is not None
            mine = w.devices[device % len(w.devices) & ~1]
            w.nics.append(w.api.Nic(mine, slots=slots))

        if device is None:
            self.make_device(kind, iommu)
        else:
            self.both(act)

    @rule(
        nic=places,
        what=st.lists(
            st.one_of(
                st.tuples(st.just("post"), places),
                st.tuples(st.just("receive"), sizes),
                st.tuples(st.sampled_from(["poll", "poll", "take"]), st.just(0)),
            ),
            min_size=1,
            max_size=8,
        ),
        other=threads,
    )
    def traffic(self, nic: int, what: list[tuple[str, int]], other: bool) -> None:
        def act(w: World) -> object:
            return [w.result(self.one_of_traffic, w, _pick(w.nics, nic), *it) for it in what]

        self.both(act, other)

    @staticmethod
    def one_of_traffic(w: World, nic: Any, op: str, n: int) -> object:
        if op == "post":
            return nic.post(_pick(w.pages, n)) if w.pages else None
        if op == "receive":
            return nic.receive(bytes([n & 0xFF]) * n)
        if op == "take":
            page = nic.take()
            return None if page is None else (len(page), w.page(page))
        done = nic.poll()
        if done is None or done[1] < 0 or not done[0].held:
            return None if done is None else done[1]
        page, length = done
        start = 0 if page.piece else page.pool.offset
        return length, bytes(page.view()[start : start + length]), w.page(page)

    # -- settings, contexts, the end

    @rule(pool=places, other=threads)
    def flush(self, pool: int, other: bool) -> None:
        self.both(lambda w: _pick(w.pools, pool).flush(), other)

    @rule(pool=places, node=nodes, other=threads)
    def update_nid(self, pool: int, node: int | None, other: bool) -> None:
        self.both(lambda w: _pick(w.pools, pool).update_nid(node), other)

    @rule(
        pool=places,
        napi=places,
        what=st.sampled_from(["enter", "exit", "bind", "unbind"]),
        other=threads,
    )
    def context(self, pool: int, napi: int, what: str, other: bool) -> None:
        def act(w: World) -> None:
            its, mine = _pick(w.pools, pool), _pick(w.napis, napi)
            if what == "bind":
                its.enable_direct_recycling(mine)
            elif what == "unbind":
                its.disable_direct_recycling()
            else:
                getattr(mine, what)()

        self.both(act, other)

    @rule(pool=places, often=st.integers(0, 4), other=threads)
    def close(self, pool: int, often: int, other: bool) -> None:
        # A pool is closed once in a while, so that something goes on.
        if often == 0:
            self.both(lambda w: _pick(w.pools, pool).close(), other)

    def forget_put(self) -> None:
        """What was put is of no more interest."""
        for world in (self.engine, self.model):
            world.pages = [page for page in world.pages if page.held]
            world.batches = [batch for batch in world.batches if batch.held]


def _first_difference(engine: Any, model: Any) -> str:
    """Of two results, without the page after page that is equal."""
    where = ""
    while type(engine) is type(model) and isinstance(model, tuple | list | dict):
        if len(engine) != len(model):
            break
        places = model if isinstance(model, dict) else range(len(model))
        i = next(i for i in places if engine[i] != model[i])
        engine, model, where = engine[i], model[i], f"{where}[{i!r}]"
    return f"result{where}: engine gave {engine}, model {model}"


def _pick(things: Any, place: int) -> Any:
    return things[place % len(things)]


def _polled(pool: Any, act: Callable[[Any], Any]) -> Any:
    """Inside the pool's napi if it is bound to one, and nobody else is in it."""
    with pool.napi or contextlib.nullcontext():
        return act(pool)


def _some(things: list[Any], first: int, n: int, step: int) -> list[Any]:
    """n of them or all, from one on, every step-th."""
    order = [(first + i * step) % len(things) for i in range(min(n, len(things)))]
    return [things[i] for i in dict.fromkeys(order)]
