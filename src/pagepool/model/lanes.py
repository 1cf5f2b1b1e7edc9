# SPDX-License-Identifier: BSD-2-Clause
"""Design ``ours``: each thread that puts pages has a lane of its own to the consumer.

Putting a page writes only what no other thread writes; the consumer learns of it a batch at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import NamedTuple

from pagepool.model.context import STEP, Thread, this_thread
from pagepool.model.frame import Frame
from pagepool.model.ring import Ring
from pagepool.model.way import Taken, Way

LANE_BATCH = 32


class Entry(NamedTuple):
    """What a lane knows of a page, so that the consumer need not look at the page."""

    frame: Frame
    held: int  # the page's held word when it was put: which allocation was given back
    node: int


class Lane:
    """A circle of entries, from one thread to the consumer. Positions count up for ever."""

    def __init__(self, size: int) -> None:
        """size: pages that may be in it."""
        self.size = size
        # Rule: places are pool_size rounded up to a power of two; pages are at most pool_size.
        places = 1 << (size - 1).bit_length()
        self.entries: list[Entry | None] = [None] * places
        self.tail = 0  # the thread: entries ever put in
        self.head_seen = 0  # the thread: head, when it last looked
        self.ring_full = 0  # the thread: statistics
        self.published = 0  # the thread: up to here the consumer takes them
        self.head = 0  # the consumer: entries ever taken out
        self.seen = 0  # the consumer: up to where it has looked
        self.refused = 0  # the consumer: entries of pages that were put twice
        self.thread: weakref.ref[Thread] | None = None  # None: its thread has ended

    @property
    def place(self) -> int:
        """Of the next entry to be put in."""
        return self.tail % len(self.entries)

    @property
    def has_room(self) -> bool:
        """The thread: is there room for one more?"""
        # Rule: head is looked at only when there was no room by what was seen of it before.
        if self.tail - self.head_seen >= self.size:
            self.head_seen = self.head
        return self.tail - self.head_seen < self.size

    def put(self, entry: Entry) -> None:
        """The thread; there is room."""
        self.entries[self.place] = entry
        tail = self.tail + 1
        self.tail = tail
        # Rule: a batch of 32 is complete, counted from the lane's first entry.
        if tail % LANE_BATCH == 0:
            self.published = tail

    def flush(self) -> None:
        """The thread: all that it has put is published."""
        self.published = self.tail

    @property
    def held_back(self) -> int:
        """Put, and not published yet."""
        # Rule: what was held back counts as published once the consumer has looked at it.
        return self.tail - max(self.published, self.seen)

    def has_more(self, held_back: bool) -> bool:
        """The consumer: is there an entry to take? held_back: also one that is not published."""
        # Rule: it looks again only when it has taken all that it saw the last time.
        if self.head == self.seen:
            self.seen = max(self.seen, self.tail if held_back else self.published)
        return self.head < self.seen

    def pop(self) -> Entry:
        """The consumer: the oldest entry."""
        entry = self.entries[self.head % len(self.entries)]
        assert entry is not None, "an entry before the tail was put in"
        self.head += 1
        return entry

    def belongs_to(self, thread: Thread) -> None:
        """It is this thread's, until it ends."""
        me = weakref.ref(self)

        def ended(_: object) -> None:
            lane = me()
            if lane is not None:
                STEP.later(lane.leave)

        self.thread = weakref.ref(thread, ended)

    def leave(self) -> None:
        """Rule: the thread ends: what it holds back is published, and another may have the lane."""
        self.flush()
        self.thread = None


class Lanes(Way):
    """The lanes of a pool, in the order in which they were made, and the locked ring behind them.

    The ring is for a thread that cannot have a lane: here, that puts its first page after the pool
    was closed; in the C core also one without memory for a lane, or without membarrier(2).
    """

    def __init__(self, size: int) -> None:
        """size: pages of each lane, and of the ring."""
        self.lanes: list[Lane] = []
        self.ring = Ring(size)
        # Rule: the first refill begins at the ring: there is no lane yet.
        self.cursor: Lane | Ring = self.ring
        self._of_thread: weakref.WeakKeyDictionary[Thread, Lane] = weakref.WeakKeyDictionary()
        super().__init__(size)

    def _new_lane(self) -> Lane:
        return Lane(self.size)

    def _mine(self) -> Lane:
        """The calling thread's lane."""
        me = this_thread()
        lane = self._of_thread.get(me)
        if lane is None:
            # Rule: the first lane whose thread has ended is taken over, as it was left.
            lane = next((lane for lane in self.lanes if lane.thread is None), None)
            # Rule: else a new one, behind the others.
            if lane is None:
                lane = self._new_lane()
                self.lanes.append(lane)
            lane.belongs_to(me)
            self._of_thread[me] = lane
        return lane

    def put(self, frames: list[Frame]) -> list[Frame]:
        """Into the calling thread's lane; those that leave the pool."""
        # Rule: the pool was destroyed: as in the ring.
        if self.closed:
            return self.ring.put(frames)
        lane = self._mine()
        leave: list[Frame] = []
        for frame in frames:
            # Rule: a page that was put already, and taken out since, is refused at once. The held
            # word is only read: whether the page is in a lane already is found when it is taken
            # out.
            held = frame.held
            if not held:
                self.refused += 1
            # Rule: the lane is full: this page and the rest of the call leave the pool; `ring_full`
            # counts the call.
            elif leave or not lane.has_room:
                frame.held = 0
                leave.append(frame)
            else:
                lane.put(Entry(frame, held, frame.node))
        if leave:
            lane.ring_full += 1
        return leave

    @property
    def counted(self) -> tuple[int, int]:
        """Rule: a page counts as ``ring`` when it is put, published or not."""
        ring, ring_full = self.ring.counted
        for lane in self.lanes:
            ring += lane.tail - lane.refused
            ring_full += lane.ring_full
        return ring, ring_full

    def take(self, n: int, node: int | None) -> Taken:
        """Lanes and ring in turn.

        Rule: the turn is the lanes in the order in which they were made, then the ring, then the
        first lane again. A refill begins at the cursor, and goes once around.
        """
        start = self.cursor
        frames, wrong = self._around(n, node, held_back=False)
        # Rule: nothing was published in any lane, nor in the ring: the same walk is done over what
        # is held back.
        if not frames and wrong is None:
            frames, wrong = self._around(n, node, held_back=True)
        # Rule: the next refill begins behind where this one began, wherever it ended.
        self.cursor = self._behind(start)
        return frames, wrong

    @property
    def _turn(self) -> list[Lane | Ring]:
        return [*self.lanes, self.ring]

    def _behind(self, place: Lane | Ring) -> Lane | Ring:
        turn = self._turn
        return turn[(turn.index(place) + 1) % len(turn)]

    def _around(self, n: int, node: int | None, held_back: bool) -> Taken:
        turn = self._turn
        start = turn.index(self.cursor)
        frames: list[Frame] = []
        for place in turn[start:] + turn[:start]:
            if isinstance(place, Ring):
                # Rule: the ring holds nothing back.
                more, wrong = ([], None) if held_back else place.take(n - len(frames), node)
            else:
                more, wrong = self._take(place, n - len(frames), node, held_back)
            frames += more
            # Rule: a page on the wrong node ends it, as in the ring; so do n pages.
            if wrong is not None:
                return frames, wrong
            if len(frames) == n:
                break
        return frames, None

    def _take(self, lane: Lane, n: int, node: int | None, held_back: bool) -> Taken:
        """The oldest first, until there are n or the lane has no more."""
        frames: list[Frame] = []
        while len(frames) < n and lane.has_more(held_back):
            frame, held, at = lane.pop()
            # Rule: this allocation of the page came back by another way: it was put twice. The
            # second is refused, and it was no `ring`.
            if frame.held != held:
                lane.refused += 1
                self.refused += 1
                continue
            frame.held = 0
            # Rule: a page on the wrong node ends it.
            if node is not None and at != node:
                return frames, frame
            frames.append(frame)
        return frames, None

    def _rest(self) -> Iterator[Frame]:
        # Rule: the ring, then the lanes; also what is held back.
        yield from self.ring.close()
        for lane in self.lanes:
            yield from self._take(lane, len(lane.entries), None, True)[0]

    def flush(self) -> None:
        """Rule: a thread that has no lane has nothing to publish."""
        lane = self._of_thread.get(this_thread())
        if lane is not None:
            lane.flush()

    @property
    def held_back(self) -> int:
        """Of all lanes; at most 31 pages each."""
        return sum(lane.held_back for lane in self.lanes)
