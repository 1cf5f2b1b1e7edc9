/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exactly one side unmaps: csrc/core/dma.c. Pool A with a device of its own; users that put its
 * pages; a reader who has a reference to one and syncs it for the CPU; A's consumer, which hands
 * pages out, maps more, and at any moment stops or destroys the pool, and then the device is gone.
 * Pool B maps the pages that have left A for a device of its own, and may keep them, or be at them,
 * for ever.
 *
 * mapped[page] is pp_page.mapped. A device does everything in two steps, so that anything else can
 * happen between them. Each step sees all those before it: memory orders are not looked at here.
 *
 * Proven: a device is asked only for what is mapped there, and not once it is gone; when destroy
 * returns nothing is mapped; what goes to the provider is mapped nowhere; nobody waits for ever.
 *
 * Sizes, each searched by itself:
 *   PAGES=2
 *   PAGES=3
 *
 * Planted bugs, each of which must be found:
 *   CLAIM_TORN       a load and a store instead of one compare and exchange
 *   NO_WAIT_SCRUB    destroy passes over a page that somebody syncs or unmaps right now
 *   NO_WAIT_LEAVE    a page goes back to the provider while somebody is at it
 *   WAIT_FOR_NONE    a page that leaves and finds somebody at it waits until it is unmapped
 *   NO_IDENTITY      destroy takes every mapped page for its own
 *   WAIT_FOR_OTHERS  destroy waits for whoever is at the page, also when it is not its own
 *   SYNC_UNCLAIMED   a sync that only looks whether the page is mapped
 *   OLD_RULE         who has the page unmaps it, whatever has become of the pool
 *   FORGOTTEN_PAGE   destroy misses a page
 *   STORE_EARLY      the page says that it is not mapped before it is unmapped
 *   BUSY_LEFT        a sync does not give the page free again
 */
#ifndef PAGES
#define PAGES 2
#endif
#define USERS 2
#define ROOM  1 /* in A's ring: so pages also leave because it is full */

#define NONE 0
#define BUSY 1 /* added to: */
#define A    2
#define B    4

#define OWNER(p) (mapped[p] & (A + B))

byte mapped[PAGES];
bool in_a[PAGES], in_b[PAGES]; /* what the devices can reach */
bool gone;                     /* A's device */
byte refs[PAGES];
bool ring_lock, dying;
chan ring = [ROOM] of { byte };
chan hand = [0] of { byte };  /* from A's consumer to a user */
chan share = [1] of { byte }; /* from a user to the reader, who has a reference as well */
chan provider = [PAGES] of { byte };
bool over; /* the consumer hands nothing out any more */
byte left; /* users that are through */

inline use_a(p)
{
	assert(!gone && in_a[p]);
	assert(!gone && in_a[p])
}

inline unmap_a(p)
{
	assert(!gone && in_a[p]);
	atomic { assert(!gone && in_a[p]); in_a[p] = false }
}

/* Waits while somebody else of that pool is at it. patient: not if it is false, which is a bug. */
inline claim(p, pool, patient, won)
{
#ifdef CLAIM_TORN
	if
	:: mapped[p] == pool -> mapped[p] = pool + BUSY; won = true
#else
	if
	:: atomic { mapped[p] == pool -> mapped[p] = pool + BUSY; won = true }
#endif
	:: OWNER(p) != pool -> won = false
#if defined(NO_WAIT_SCRUB) || defined(NO_WAIT_LEAVE)
	:: mapped[p] == pool + BUSY && !(patient) -> won = false
#endif
	fi
}

inline unmap_claimed(p)
{
#ifdef STORE_EARLY
	mapped[p] = NONE;
	unmap_a(p)
#else
	unmap_a(p);
	mapped[p] = NONE
#endif
}

inline sync(p)
{
#ifdef OLD_RULE
	use_a(p)
#else
#ifdef SYNC_UNCLAIMED
	if
	:: mapped[p] == A -> use_a(p)
	:: else
	fi
#else
	claim(p, A, true, won);
	if
	:: won ->
		use_a(p);
#ifndef BUSY_LEFT
		mapped[p] = A
#endif
	:: else
	fi
#endif
#endif
}

#ifdef NO_WAIT_LEAVE
#define LEAVER_WAITS false
#else
#define LEAVER_WAITS true
#endif
#ifdef NO_WAIT_SCRUB
#define SCRUB_WAITS false
#else
#define SCRUB_WAITS true
#endif

inline leave(p)
{
#ifdef OLD_RULE
	unmap_claimed(p);
#else
#ifdef WAIT_FOR_NONE
	if
	:: mapped[p] == A + BUSY -> mapped[p] == NONE
	:: else
	fi;
#endif
	claim(p, A, LEAVER_WAITS, won);
	if
	:: won -> unmap_claimed(p)
	:: else
	fi;
#endif
	drop(p)
}

inline drop(p)
{
	atomic {
		refs[p]--;
		if
		:: refs[p] == 0 ->
			assert(mapped[p] == NONE && !in_a[p] && !in_b[p]);
			provider!p
		:: else
		fi
	}
}

inline lock()
{
	atomic { !ring_lock -> ring_lock = true }
}

active [USERS] proctype user()
{
	byte page;
	bool won, in;

	do
	:: hand?page ->
		if
		:: true ->
			sync(page);
			lock();
			atomic {
				if
				:: !dying && nfull(ring) -> ring!page; in = true
				:: dying || full(ring)
				fi;
				ring_lock = false
			}
		:: atomic { nfull(share) -> refs[page]++; share!page } /* it will not be recycled */
		fi;
		if
		:: in
		:: else -> leave(page)
		fi;
		d_step { page = 0; won = false; in = false }
	:: atomic { over -> left++; break }
	od
}

active proctype reader()
{
	byte page;
	bool won;

end:	do
	:: share?page ->
		sync(page);
		drop(page);
		d_step { page = 0; won = false }
	od
}

inline scrub()
{
#ifdef FORGOTTEN_PAGE
	page = 1;
#else
	page = 0;
#endif
	do
	:: page < PAGES ->
#ifdef WAIT_FOR_OTHERS
		!(mapped[page] & BUSY);
#endif
#ifdef NO_IDENTITY
		owner = OWNER(page);
#else
		owner = A;
#endif
		if
		:: owner && OWNER(page) == owner ->
			claim(page, owner, SCRUB_WAITS, won);
			if
			:: won -> unmap_claimed(page)
			:: else
			fi
		:: else
		fi;
		page++
	:: else -> break
	od
}

active proctype consumer()
{
	byte page, owner;
	bool won;

	do
	:: ring?page -> hand!page
	:: atomic { provider?page -> refs[page] = 1 };
		atomic { assert(!in_a[page] && !in_b[page]); in_a[page] = true };
		mapped[page] = A;
		hand!page
	:: break
	:: goto lives_on
	od;

	/* page_pool_destroy() */
	lock();
	dying = true;
	ring_lock = false;
	do
	:: ring?page ->
		/* Nobody else knows it: the claim is sure to succeed. */
		atomic { assert(mapped[page] == A); mapped[page] = A + BUSY };
		unmap_claimed(page);
		drop(page)
	:: empty(ring) -> break
	od;
#ifndef OLD_RULE
	scrub();
#endif
	/* The driver unbinds. */
	atomic {
		gone = true;
		page = 0;
		do
		:: page < PAGES ->
#ifndef OLD_RULE
			assert(!in_a[page]);
#endif
			page++
		:: else -> break
		od
	}
lives_on:
	over = true
}

active proctype other()
{
	byte page;

end:	do
	:: provider?page ->
		atomic {
			assert(!in_a[page] && !in_b[page]);
			refs[page] = 1;
			in_b[page] = true
		};
		mapped[page] = B;
		if
		:: true ->
			atomic { assert(mapped[page] == B); mapped[page] = B + BUSY };
			assert(in_b[page]);
			if
			:: true ->
				in_b[page] = false;
				mapped[page] = NONE;
				drop(page)
			:: true -> break /* at it for ever */
			fi
		:: true -> break /* keeps it */
		fi
	od
}

init {
	byte page;

	d_step {
		do
		:: page < PAGES -> provider!page; page++
		:: else -> break
		od;
		page = 0
	}
	/* Never stuck. */
	over && left == USERS;
	do
	:: page < PAGES -> assert(!gone || (OWNER(page) != A && !in_a[page])); page++
	:: else -> break
	od
}
