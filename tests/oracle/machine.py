# SPDX-License-Identifier: BSD-2-Clause
"""Random sequences of calls, on engine and model side by side."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from oracle.worlds import CHUNK, World
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
sizes = st.one_of(st.integers(1, 5000), st.sampled_from([0, 64, 1024, 2048, 2049, 4096, 4097]))
numbers = st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 128, 129, 200]))
nodes = st.sampled_from([None, 0, 0, 1, 2, 1024, -1])


class SideBySide(RuleBasedStateMachine):
    """Every rule is one call (or a run of the same) on both; then all that can be seen is equal."""

    sequences = 0
    met: ClassVar[Counter[str]] = Counter()  # exceptions and statistics

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
        if isinstance(got[0], tuple):
            type(self).met[got[0][0]] += 1

    @staticmethod
    def compare(engine: dict[str, list[Any]], model: dict[str, list[Any]]) -> None:
        for kind, expected in model.items():
            for i, (mine, its) in enumerate(zip(engine[kind], expected, strict=True)):
                assert mine == its, f"{kind}[{i}]: engine {mine}, model {its}"

    def teardown(self) -> None:
        # The sequence may have ended in a difference: then the end is no matter, but threads leave.
        for pool in self.model.pools:
            type(self).met.update(pool._pool.count.__dict__)
        self.compare(self.engine.end(), self.model.end())
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
    )
    def start(self, arenas: list[tuple[int, int, int | None]]) -> None:
        def make(w: World) -> None:
            for limit, reserve, node in arenas:
                w.arenas.append(w.api.Arena(limit=limit, reserve=reserve, node=node))
            w.napis += [w.api.Napi(), w.api.Napi()]

        self.both(make)
        self.make_pool(0, 4, 0, None, None)

    @precondition(lambda self: len(self.model.pools) < 5)
    @rule(
        arena=places,
        pool_size=st.sampled_from([1, 2, 4, 16, 31, 32, 40, 64, 1024]),
        order=st.sampled_from([0, 0, 0, 0, 0, 1, 3, 8, 10]),
        node=nodes,
        napi=st.sampled_from([None, None, 0, 1]),
    )
    def make_pool(
        self, arena: int, pool_size: int, order: int, node: int | None, napi: int | None
    ) -> None:
        def make(w: World) -> None:
            w.pools.append(
                w.api.PagePool(
                    provider=w.arenas[arena % len(w.arenas)],
                    pool_size=pool_size,
                    order=order,
                    node=node,
                    napi=None if napi is None else w.napis[napi],
                    statistics=pool_size != 31,
                )
            )

        self.both(make)

    # -- allocate

    @rule(pool=places, n=numbers, other=threads)
    def alloc(self, pool: int, n: int, other: bool) -> None:
        def act(w: World) -> None:
            for _ in range(n):
                w.pages.append(_pick(w.pools, pool).alloc())

        self.both(act, other)

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
        other=threads,
    )
    def put(self, first: int, n: int, step: int, direct: bool, other: bool) -> None:
        def act(w: World) -> None:
            for page in _some(w.pages, first, n, step):
                page.pool.put(page, allow_direct=direct)

        self.both(act, other)
        self.forget_put()

    @precondition(lambda self: self.model.pages)
    @rule(page=places)
    def put_twice(self, page: int) -> None:
        def act(w: World) -> None:
            mine = _pick(w.pages, page)
            mine.put()
            mine.put()

        self.both(act)
        self.forget_put()

    @precondition(lambda self: self.model.pages)
    @rule(page=places, pool=places)
    def put_perhaps_foreign(self, page: int, pool: int) -> None:
        self.both(lambda w: _pick(w.pools, pool).recycle_direct(_pick(w.pages, page)))
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
    @rule(page=places, whole=st.booleans())
    def look(self, page: int, whole: bool) -> None:
        def act(w: World) -> None:
            view = _pick(w.pages, page).view()
            w.views.append(view if whole else view[:1])

        self.both(act)

    @precondition(lambda self: self.model.pages)
    @rule(page=places)
    def look_and_forget(self, page: int) -> None:
        def act(w: World) -> object:
            page_ = _pick(w.pages, page)
            page_.view()[:1] = b"x"
            return bytes(page_.view()[:1])

        self.both(act)

    @precondition(lambda self: self.model.views)
    @rule(view=places)
    def drop_view(self, view: int) -> None:
        self.both(lambda w: _drop(w.views, view))

    @precondition(lambda self: self.model.pages and not self.model.views)
    @rule(page=places)
    def drop_page(self, page: int) -> None:
        self.both(lambda w: _drop(w.pages, page))

    @precondition(lambda self: self.model.batches and not self.model.views)
    @rule(batch=places)
    def drop_batch(self, batch: int) -> None:
        self.both(lambda w: _drop(w.batches, batch))

    # -- settings, contexts, the end

    @rule(pool=places, node=nodes, other=threads)
    def update_nid(self, pool: int, node: int | None, other: bool) -> None:
        self.both(lambda w: _pick(w.pools, pool).update_nid(node), other)

    @rule(pool=places, napi=places)
    def bind(self, pool: int, napi: int) -> None:
        self.both(lambda w: _pick(w.pools, pool).enable_direct_recycling(_pick(w.napis, napi)))

    @rule(pool=places)
    def unbind(self, pool: int) -> None:
        self.both(lambda w: _pick(w.pools, pool).disable_direct_recycling())

    @rule(napi=places, other=threads)
    def enter(self, napi: int, other: bool) -> None:
        self.both(lambda w: _pick(w.napis, napi).enter(), other)

    @rule(napi=places, other=threads)
    def exit(self, napi: int, other: bool) -> None:
        self.both(lambda w: _pick(w.napis, napi).exit(), other)

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
    while isinstance(engine, tuple | list) and isinstance(model, tuple | list):
        if len(engine) != len(model):
            break
        i = next(i for i in range(len(model)) if engine[i] != model[i])
        engine, model, where = engine[i], model[i], f"{where}[{i}]"
    return f"result{where}: engine gave {engine}, model {model}"


def _pick(things: Any, place: int) -> Any:
    return things[place % len(things)]


def _polled(pool: Any, act: Callable[[Any], Any]) -> Any:
    """Inside the pool's napi if it is bound to one, and nobody else is in it."""
    with pool.napi or contextlib.nullcontext():
        return act(pool)


def _drop(things: list[Any], place: int) -> None:
    del things[place % len(things)]


def _some(things: list[Any], first: int, n: int, step: int) -> list[Any]:
    """n of them or all, from one on, every step-th."""
    order = [(first + i * step) % len(things) for i in range(min(n, len(things)))]
    return [things[i] for i in dict.fromkeys(order)]
