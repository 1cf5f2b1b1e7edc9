/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * csrc/base/biased_lock.h, with the store buffers that make it difficult: a store goes into its
 * processor's buffer (first in, first out: x86) and reaches memory at any later time; a load sees the
 * own buffer first. membarrier empties all buffers at once, as each thread passes a full barrier.
 *
 * Both sides increment a counter inside, by a load and a store: it proves that they exclude each
 * other, and that each sees what the other did.
 *
 * Planted bugs, each of which must be found:
 *   NO_MEMBARRIER      the remote side does without
 *   BARRIER_FIRST      membarrier before wanted is set
 *   CHECK_FIRST        the owner looks at wanted before it sets busy
 *   NO_WAIT            the remote side does not wait for the owner to leave
 *   REFUSED_BUSY       the owner that was refused leaves busy set
 *   NO_UNLOCK          the remote side forgets to take wanted back
 */
#define BUSY   0
#define WANTED 1
#define COUNT  2

#define OWNER  0
#define REMOTE 1

#define TURNS 3 /* of either side */

byte mem[3];
chan buffer[2] = [3] of { byte, byte };
byte pending[6], last[6]; /* of a process's stores to an address */
byte did; /* increments, counted where nothing can be lost */
byte refused;
bool remote_done, owner_done;

inline store(p, a, v)
{
	atomic {
		buffer[p]!a,v;
		pending[p * 3 + a]++;
		last[p * 3 + a] = v
	}
}

inline load(p, a, r)
{
	atomic {
		if
		:: pending[p * 3 + a] > 0 -> r = last[p * 3 + a]
		:: else -> r = mem[a]
		fi
	}
}

inline drain_one(p)
{
	buffer[p]?address,value;
	mem[address] = value;
	pending[p * 3 + address]--
}

inline membarrier()
{
	atomic {
		do
		:: len(buffer[OWNER]) > 0 -> drain_one(OWNER)
		:: else -> break
		od;
		do
		:: len(buffer[REMOTE]) > 0 -> drain_one(REMOTE)
		:: else -> break
		od
	}
}

/* Inside: two steps. */
inline work(p)
{
	load(p, COUNT, seen);
	store(p, COUNT, seen + 1);
	did++
}

active proctype memory()
{
	byte address, value;

end:	do
	:: atomic { len(buffer[OWNER]) > 0 -> drain_one(OWNER) }
	:: atomic { len(buffer[REMOTE]) > 0 -> drain_one(REMOTE) }
	od
}

active proctype owner()
{
	byte turn, seen, wanted;

	do
	:: turn < TURNS ->
		turn++;
#ifdef CHECK_FIRST
		load(OWNER, WANTED, wanted);
		store(OWNER, BUSY, 1);
#else
		store(OWNER, BUSY, 1);
		load(OWNER, WANTED, wanted);
#endif
		if
		:: wanted ->
			refused++;
#ifndef REFUSED_BUSY
			store(OWNER, BUSY, 0)
#endif
		:: else ->
			work(OWNER);
			store(OWNER, BUSY, 0)
		fi
	:: else -> break
	od;
	/* Once the remote side has gone for good, it is let in. */
	remote_done;
	store(OWNER, BUSY, 1);
	load(OWNER, WANTED, wanted);
	assert(!wanted);
	work(OWNER);
	store(OWNER, BUSY, 0);
	owner_done = true
}

active proctype remote()
{
	byte turn, seen, address, value;

	do
	:: turn < TURNS ->
		turn++;
#ifdef BARRIER_FIRST
		membarrier();
#endif
		store(REMOTE, WANTED, 1);
#if !defined(NO_MEMBARRIER) && !defined(BARRIER_FIRST)
		membarrier();
#endif
#ifndef NO_WAIT
		mem[BUSY] == 0; /* it has no store of its own to that in its buffer */
#endif
		work(REMOTE);
#ifndef NO_UNLOCK
		store(REMOTE, WANTED, 0)
#endif
	:: else -> break
	od;
	/* The end of the test: whatever it sees next, it sees after all this. */
	membarrier();
	remote_done = true
}

/* When both are through and all stores have arrived, nothing is lost. */
active proctype judge()
{
	remote_done && owner_done && len(buffer[OWNER]) == 0 && len(buffer[REMOTE]) == 0;
	assert(mem[COUNT] == did);
	assert(did + refused == 2 * TURNS + 1)
}
