/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who frees the pool: csrc/core/teardown.c and recycle_in_ring(). Producers that have a page each, the
 * consumer that destroys the pool, the janitor, and a reader with a reference. `alive` is the pool's
 * memory: whoever looks at it asserts it. All of them together, in any order of their steps.
 *
 * Planted bugs, each of which must be found:
 *   NO_ROUND           destroy does not take the ring's lock once
 *   NOT_DYING          pages may enter the ring after it was emptied
 *   TOUCH_AFTER_COUNT  a page that has counted itself out looks at the pool once more
 *   COUNT_FIRST        destroy settles its account before it puts the pool into the janitor's list
 *   FREE_LISTED        the last one frees the pool before it takes it off the list
 *   TORN_COUNT         destroy settles with a load and a store instead of one step
 *   NO_REF             the reader's reference does not count
 *   COUNT_IN_RING      a page that goes into the ring counts itself out at once
 *   FULL_UNLOCKED      pages that found the ring full are counted out after the unlock
 *   FULL_FORGOTTEN     destroy forgets these pages when it settles
 */
#define LIVE 60 /* far from 0 for the few pages here */
#define REF  100

#define PRODUCERS 3
#define ROOM      1 /* in the ring */

bool alive = true;
#ifdef NO_REF
int pending = LIVE;
#else
int pending = LIVE + REF; /* the reader has its reference from the start */
#endif
byte held = PRODUCERS, here; /* the consumer's */
bool ring_lock, janitor_lock, dying, watched, listed, destroyed;
byte ring, freed;
byte overflow; /* pages that found no room, counted under the ring's lock */

#define LOOK assert(alive)

inline lock(l)
{
	atomic { !l -> l = true }
}

inline unlock(l)
{
	l = false
}

inline free_pool()
{
	LOOK;
#ifdef FREE_LISTED
	alive = false;
	freed++;
#endif
	if
	:: watched ->
		lock(janitor_lock);
		listed = false;
		unlock(janitor_lock)
	:: else
	fi;
#ifndef FREE_LISTED
	atomic {
		LOOK;
		alive = false;
		freed++
	}
#endif
}

/* One atomic step; who brings it to 0 frees. */
inline unpend(n)
{
	atomic {
		LOOK;
		pending = pending - (n);
		last = (pending == 0)
	}
	if
	:: last -> free_pool()
	:: else
	fi
}

/* A page on its way back, over the ring or (somebody else holds it) out of the pool directly. */
active [PRODUCERS] proctype producer()
{
	bool last, counted;
#ifdef FULL_UNLOCKED
	bool late;
#endif

	if
	:: atomic { !ring_lock -> ring_lock = true; LOOK };
		if
		:: dying
		:: !dying && ring < ROOM ->
			LOOK;
			ring++;
			counted = true /* it is not out */
		:: !dying && ring >= ROOM ->
			LOOK;
#ifdef FULL_UNLOCKED
			late = true;
#else
			overflow++;
#endif
			counted = true
		fi;
#ifdef COUNT_IN_RING
		pending--;
#endif
		/* Unlocking is a look at the pool. */
		atomic { LOOK; unlock(ring_lock) };
#ifdef FULL_UNLOCKED
		if
		:: late -> LOOK; overflow++
		:: else
		fi;
#endif
		if
		:: counted
		:: else -> unpend(1)
		fi
	:: unpend(1)
	fi;
#ifdef TOUCH_AFTER_COUNT
	if
	:: !counted -> LOOK
	:: else
	fi
#endif
}

active proctype consumer()
{
	bool last;
	byte left;
	int seen;

	/* Some pages are taken out of the ring and leave the pool by the consumer's own count: as
	 * from the cache. */
	do
	:: atomic { ring > 0 -> ring--; here++ }
	:: break
	od;
#ifndef NO_ROUND
	lock(ring_lock);
#endif
#ifndef NOT_DYING
	dying = true;
#endif
#ifndef NO_ROUND
	unlock(ring_lock);
#endif
	do
	:: atomic { ring > 0 -> ring--; here++ }
	:: ring == 0 -> break
	od;
#ifdef FULL_FORGOTTEN
	left = held - here;
#else
	left = held - here - overflow;
#endif
#ifdef COUNT_FIRST
	unpend(LIVE - left);
#endif
	/* page_pool_inflight() */
	if
	:: (pending % REF) - LIVE + left != 0 ->
		lock(janitor_lock);
		LOOK;
		watched = true;
		listed = true;
		unlock(janitor_lock)
	:: else
	fi;
#ifdef TORN_COUNT
	seen = pending;
	pending = seen - (LIVE - left);
	if
	:: pending == 0 -> free_pool()
	:: else
	fi;
#else
#ifndef COUNT_FIRST
	unpend(LIVE - left);
#endif
#endif
	destroyed = true
}

/* It looks now and then, but not for ever: so a pool that is never freed is a dead end. */
active proctype janitor()
{
	byte looks;

	do
	:: looks < 3 ->
		looks++;
		lock(janitor_lock);
		if
		:: listed -> LOOK
		:: else
		fi;
		unlock(janitor_lock)
	:: break
	od
}

active proctype reader()
{
	bool last;

	LOOK;
#ifndef NO_REF
	unpend(REF)
#endif
}

init {
	/* Never stuck, and freed exactly once. */
	destroyed && freed;
	assert(freed == 1)
}
