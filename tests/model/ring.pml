/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * csrc/core/ring.h and what uses it, recycle_in_ring() and refill(): two producers under the ring's
 * lock, one consumer that clears the slots it has emptied in batches. A page goes round: the
 * consumer hands it to a producer, who writes its data and puts it; if the ring is full it leaves
 * the pool, and the consumer gets it from the provider again. There is no end: the runs are of any
 * length.
 *
 * Memory is weak. A store waits in its thread's buffer, and may overtake any other of that thread
 * but one to the same address; a release store arrives only when all that its thread stored before
 * has. A load looks into the own buffer first, and is done when it is its turn: that an acquire is
 * missing shows where a bug below does the load earlier.
 *
 * Proven: what comes out is what went in, in that order (no page is lost, none comes twice), and no
 * page is written over; the consumer sees the data; nobody is stuck. With DOUBLE_PUTS a producer
 * puts a page once more, whoever has it by then: each time that it was handed out it is put once,
 * and who was given it is refused only if another has put it. With COUNTED: the pages in flight, as
 * the consumer counts them, are never fewer than there are, nor more than there can be.
 *
 * With CLEAR_RELAXED the consumer clears without a release, and all is right as well: the loads and
 * stores of one slot are in order by themselves, and nothing is handed over by an empty slot.
 *
 * Sizes, each searched by itself:
 *   SIZE=2 BATCH=1 PAGES=3
 *   SIZE=3 BATCH=2 PAGES=3
 *   SIZE=3 BATCH=2 PAGES=3 CLEAR_RELAXED
 *   SIZE=4 BATCH=2 PAGES=4
 *   SIZE=2 BATCH=1 PAGES=3 DOUBLE_PUTS
 *   SIZE=2 BATCH=1 PAGES=4 COUNTED
 *
 * Planted bugs, each of which must be found:
 *   PRODUCE_RELAXED       the page may be in its slot before its data is there
 *   PEEK_RELAXED          the consumer may have looked at the data before it looks at the slot
 *   LOCK_RELAXED          a producer has looked at the index before it has the lock
 *   UNLOCK_RELAXED        the lock may be free before the index is there
 *   NO_LOCK               producers do not exclude each other
 *   NO_FULL_CHECK         a producer does not look whether the slot is free
 *   CLEAR_BEFORE_READ     the consumer clears a slot before it reads it
 *   CLEAR_TOO_MANY        a batch includes the slot that is to be emptied next
 *   CLEAR_TOO_FEW         a batch leaves out the slot that was emptied first
 *   NO_WRAP_CLEAR         what is left of a batch at the wrap is not cleared
 *   FULL_UNCOUNTED        a page that finds the ring full is not counted out
 *   COUNT_UNLOCKED        it is counted out after the unlock
 *   HELD_UNCHECKED        whether the user has the page is not looked at
 *   HELD_CHECKED_OUTSIDE  it is, before the lock is taken
 *   HELD_SET_LATE         the user has the page, which then says so
 *   HELD_DIRECT           the consumer puts it, without the lock, while a producer does. A limit
 *                         of the pool, not a mistake in it: see page_pool_refused_puts()
 */
#ifndef SIZE
#define SIZE  2
#define BATCH 1
#define PAGES 3
#endif
#if !defined(DOUBLE_PUTS) && !defined(COUNTED)
#define WITH_DATA
#endif

/* Addresses. Pages have numbers from 1, as an empty slot is 0. */
#define SLOT(i)  (i)
#define LOCK     (SIZE)
#define INDEX    (SIZE + 1) /* pp_ring.producer */
#define MAIL(p)  (SIZE + 2 + (p)) /* how a page comes to its user: a release */
#define RELEASED (SIZE + 4)
/* Of page 1: the others are as that one. */
#define DATA     (SIZE + 5)
#define HELD     (SIZE + 5) /* with DOUBLE_PUTS, instead */
#define WORDS    (SIZE + 6)

#define CONSUMER 2 /* after producers 0 and 1 */

byte mem[WORDS];
/* The buffers. */
short pending[3];         /* bit of each address that has a store in it */
byte value[3 * WORDS];
short before[3 * WORDS]; /* what has to arrive before it */
hidden byte k;

#define BIT(a) (1 << (a))

#define LOAD(t, a) (pending[t] & BIT(a) -> value[(t) * WORDS + (a)] : mem[a])

/* A second store to one address waits for the first to arrive. */
inline store(t, a, v)
{
	d_step {
		!(pending[t] & BIT(a)) ->
		value[(t) * WORDS + (a)] = v;
		pending[t] = pending[t] | BIT(a)
	}
}

inline store_release(t, a, v)
{
	d_step {
		!(pending[t] & BIT(a)) ->
		value[(t) * WORDS + (a)] = v;
		before[(t) * WORDS + (a)] = pending[t];
		pending[t] = pending[t] | BIT(a)
	}
}

#define READY(t, a) ((pending[t] & BIT(a)) && !before[(t) * WORDS + (a)])

inline arrive(t, a)
{
	assert(!((a) < SIZE && mem[a] && value[(t) * WORDS + (a)])); /* over a page */
	mem[a] = value[(t) * WORDS + (a)];
	value[(t) * WORDS + (a)] = 0;
	pending[t] = pending[t] & ~BIT(a);
	do
	:: k < WORDS ->
		before[(t) * WORDS + k] = before[(t) * WORDS + k] & ~BIT(a);
		k++
	:: else -> break
	od;
	k = 0
}

#define ARRIVES(t, a) :: d_step { READY(t, a) -> arrive(t, a) }

/* What is true, known to nobody: */
chan fifo = [SIZE + 1] of { byte }; /* the pages in the ring */
byte inflight;
#ifdef DOUBLE_PUTS
/* Page 1 */
bool out;             /* was taken out, and not put since; so it */
bool sent[2], has[2]; /* is on its way to a producer; was given to him */
#endif
#ifdef WITH_DATA
bit data; /* what was written last */
#endif

byte provider = (1 << PAGES) - 1; /* bit of each page that it has */
#define PAGE_BIT(page) (1 << ((page) - 1))

#ifdef DOUBLE_PUTS
inline is_put()
{
	assert(out);
	out = false;
	sent[0] = false;
	sent[1] = false;
	has[0] = false;
	has[1] = false
}

inline is_out()
{
	if
	:: page == 1 ->
		assert(!out);
		out = true;
#ifndef HELD_SET_LATE
		store(CONSUMER, HELD, 1)
#endif
	:: else
	fi
}
#endif

inline send(p, page)
{
	atomic {
		!mem[MAIL(p)] && !(pending[CONSUMER] & BIT(MAIL(p))) ->
#ifdef DOUBLE_PUTS
		sent[p] = (page == 1 && out);
#endif
		store_release(CONSUMER, MAIL(p), page)
	}
}

inline count_out()
{
	seen = LOAD(_pid, RELEASED);
	store_release(_pid, RELEASED, (seen + 1) % (PAGES + 2));
	seen = 0
}

/*
 * What a thread does between two waits is one step. It loses no run: nobody sees a store before it
 * arrives, which is a step of memory's; and what arrives between two of these loads has no part in
 * the earlier one, so that it might as well have arrived before both.
 */
active [2] proctype producer()
{
	byte page, index, seen;
	bool leaves;
#ifdef DOUBLE_PUTS
	bool again, good;
#endif

	do
	:: atomic {
			mem[MAIL(_pid)] ->
			page = mem[MAIL(_pid)];
			mem[MAIL(_pid)] = 0;
#ifdef DOUBLE_PUTS
			has[_pid] = sent[_pid];
			sent[_pid] = false;
#endif
#ifdef WITH_DATA
			if
			:: page == 1 -> store(_pid, DATA, 1 - data); data = 1 - data
			:: else
			fi
#endif
		};
put:
#ifdef LOCK_RELAXED
		index = LOAD(_pid, INDEX);
#endif
#if defined(DOUBLE_PUTS) && defined(HELD_CHECKED_OUTSIDE)
		good = LOAD(_pid, HELD);
#endif
		atomic {
#ifndef NO_LOCK
			/* An exchange, on memory itself. */
			!mem[LOCK] && !(pending[_pid] & BIT(LOCK)) -> mem[LOCK] = 1;
#endif
#ifdef DOUBLE_PUTS
			if
			:: page == 1 ->
#if !defined(HELD_UNCHECKED) && !defined(HELD_CHECKED_OUTSIDE)
				good = LOAD(_pid, HELD);
#endif
#ifdef HELD_UNCHECKED
				good = true;
#endif
				if
				:: good -> store(_pid, HELD, 0); is_put()
				:: else ->
					assert(!has[_pid]); /* refused for a reason */
					goto unlock
				fi
			:: else
			fi;
#endif
#ifndef LOCK_RELAXED
			index = LOAD(_pid, INDEX);
#endif
			seen = LOAD(_pid, SLOT(index));
			if
#ifdef NO_FULL_CHECK
			:: true ->
#else
			:: !seen ->
#endif
#ifdef PRODUCE_RELAXED
				store(_pid, SLOT(index), page);
#else
				store_release(_pid, SLOT(index), page);
#endif
				fifo!page;
				store(_pid, INDEX, (index + 1) % SIZE)
			:: seen ->
				leaves = true;
				inflight--;
#if defined(COUNTED) && !defined(FULL_UNCOUNTED) && !defined(COUNT_UNLOCKED)
				count_out()
#endif
			fi;
unlock:
#ifndef NO_LOCK
#ifdef UNLOCK_RELAXED
			store(_pid, LOCK, 0);
#else
			store_release(_pid, LOCK, 0);
#endif
#endif
			index = 0;
			seen = 0
		};
		if
		:: leaves ->
#if defined(COUNTED) && defined(COUNT_UNLOCKED)
			atomic { count_out() };
#endif
			atomic {
				/* The provider has a lock of its own: all before arrives before. */
				!pending[_pid] -> provider = provider | PAGE_BIT(page);
				leaves = false
			}
		:: else
		fi;
#ifdef DOUBLE_PUTS
		atomic {
			good = false;
			if
			:: page == 1 && !again -> again = true; goto put
			:: true -> again = false
			fi
		};
#endif
		page = 0
	od
}

active proctype consumer()
{
	byte head, tail, page, i;
#ifdef PEEK_RELAXED
	bit early;
#endif
#ifdef COUNTED
	byte held; /* of the pool: pages that ever came in; modulo PAGES + 2, as what is counted out */
#endif

	do
#ifdef PEEK_RELAXED
	:: early = LOAD(CONSUMER, DATA)
#endif
	:: /* from the ring */
		atomic {
			LOAD(CONSUMER, SLOT(head)) ->
#ifdef CLEAR_BEFORE_READ
			store_release(CONSUMER, SLOT(head), 0);
#endif
			page = LOAD(CONSUMER, SLOT(head));
			assert(page && len(fifo) > 0);
			fifo?i;
			assert(page == i);
#ifdef DOUBLE_PUTS
			is_out();
#endif
#ifdef WITH_DATA
#ifdef PEEK_RELAXED
			assert(page != 1 || early == data);
#else
			assert(page != 1 || LOAD(CONSUMER, DATA) == data);
#endif
#endif
			/* discard; unsigned as there */
			head++;
			if
#ifdef NO_WRAP_CLEAR
			:: ((head - tail) & 255) >= BATCH ->
#else
			:: ((head - tail) & 255) >= BATCH || head == SIZE ->
#endif
#ifdef CLEAR_TOO_MANY
				i = (head < SIZE -> head + 1 : head);
#else
				i = head;
#endif
				do
#ifdef CLEAR_TOO_FEW
				:: i > tail + 1 ->
#else
				:: i > tail ->
#endif
					i--;
#ifdef CLEAR_RELAXED
					store(CONSUMER, SLOT(i), 0)
#else
					store_release(CONSUMER, SLOT(i), 0)
#endif
				:: else -> break
				od;
				head = head % SIZE;
				tail = head
			:: else
			fi;
#ifdef NO_WRAP_CLEAR
			head = head % SIZE;
#endif
			i = 0
		};
		goto hand_out
	:: atomic {
			/* from the provider */
			!LOAD(CONSUMER, SLOT(head)) && provider ->
			page = 1;
			do
			:: provider & PAGE_BIT(page) -> break
			:: else -> page++
			od;
			provider = provider & ~PAGE_BIT(page);
			inflight++;
#ifdef DOUBLE_PUTS
			is_out();
#endif
#ifdef COUNTED
			held = (held + 1) % (PAGES + 2);
			i = (held + PAGES + 2 - LOAD(CONSUMER, RELEASED)) % (PAGES + 2);
			assert(i >= inflight && i <= PAGES);
			i = 0
#endif
		};
#if defined(DOUBLE_PUTS) && defined(HELD_DIRECT)
		goto hand_out
	:: LOAD(CONSUMER, HELD) ->
		/* Into the cache, and out of it. */
		atomic { page = 1; store(CONSUMER, HELD, 0); is_put(); is_out() };
#endif
hand_out:
		if
		:: send(0, page)
		:: send(1, page)
		fi;
#if defined(DOUBLE_PUTS) && defined(HELD_SET_LATE)
		if
		:: page == 1 -> store(CONSUMER, HELD, 1)
		:: else
		fi;
#endif
#ifdef PEEK_RELAXED
		early = LOAD(CONSUMER, DATA);
#endif
		page = 0
	od
}

active proctype memory()
{
end:	do
	ARRIVES(0, INDEX)
	ARRIVES(1, INDEX)
	ARRIVES(0, SLOT(0))
	ARRIVES(1, SLOT(0))
	ARRIVES(CONSUMER, SLOT(0))
	ARRIVES(0, SLOT(1))
	ARRIVES(1, SLOT(1))
	ARRIVES(CONSUMER, SLOT(1))
#if SIZE > 2
	ARRIVES(0, SLOT(2))
	ARRIVES(1, SLOT(2))
	ARRIVES(CONSUMER, SLOT(2))
#endif
#if SIZE > 3
	ARRIVES(0, SLOT(3))
	ARRIVES(1, SLOT(3))
	ARRIVES(CONSUMER, SLOT(3))
#endif
	ARRIVES(CONSUMER, MAIL(0))
	ARRIVES(CONSUMER, MAIL(1))
#ifndef NO_LOCK
	ARRIVES(0, LOCK)
	ARRIVES(1, LOCK)
#endif
#ifdef COUNTED
	ARRIVES(0, RELEASED)
	ARRIVES(1, RELEASED)
#endif
#ifdef DOUBLE_PUTS
	ARRIVES(0, HELD)
	ARRIVES(1, HELD)
	ARRIVES(CONSUMER, HELD)
#endif
#ifdef WITH_DATA
	ARRIVES(0, DATA)
	ARRIVES(1, DATA)
#endif
	od
}
