/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * csrc/core/lanes.h: two producers, each with a lane to the consumer, who destroys the pool in the
 * end. With the producers' store buffers (first in, first out: x86), since a producer looks at dying
 * behind its store to tail without a fence, and membarrier has to make up for that.
 *
 * Page 0 is put by both: one of the two entries is to be refused. Each page that comes out of a lane is
 * handed out again with another stamp, and stays with its user. In the end each page has left the
 * hands of who put it by exactly one road: taken by the consumer, by destroy, by its producer who
 * found the pool dying, or out of the pool since the lane was full.
 *
 * Sizes of a lane and of what is published at once:
 *   SIZE=2 BATCH=2
 *   SIZE=1 BATCH=1
 *
 * Planted bugs, each of which must be found:
 *   NO_MEMBARRIER      destroy does without
 *   BARRIER_FIRST      membarrier before dying is set
 *   DYING_FIRST        the producer looks at dying before it stores tail
 *   NOT_COMPARED       the consumer takes a page that anybody has, whatever the entry says
 *   SAME_STAMP         a page is handed out with the stamp of the last time
 *   PUBLISHED_FIRST    published is stored before the entry
 *   NO_RETRACT         a producer that finds the pool dying leaves its entries in the lane
 *   TAKE_UNLOCKED      destroy and the producer both take out what is left, without the lock
 *   CLOSE_PUBLISHED    destroy takes only what was published
 *   HEAD_FIRST         the end reads what is left when it can be overwritten (SIZE=1 BATCH=1)
 *   HEAD_LATE          the producer does not look whether there is room (SIZE=1 BATCH=1)
 */
#ifndef SIZE
#define SIZE 2
#define BATCH 2
#endif
#define PAGES 2
#define TAKES 2

#define TAIL      2
#define PUBLISHED 3

typedef lane_t {
	byte entry[2];	/* page * 4 + stamp */
	byte tail, published, head;
	bool dying, locked
}
lane_t lane[2];
chan buffer[2] = [6] of { byte, byte };

byte held[PAGES] = 1;	/* stamp; 0: not held */
byte back[PAGES];	/* how often the first allocation of it came back */
byte readers[PAGES];	/* who has looked at its held word to put it */
byte refused, users;	/* users: bit of a page that was handed out again */
bool through[3];

inline store(i, what, v) { buffer[i]!what,v }

inline drain_one(i)
{
	buffer[i]?what,value;
	if
	:: what < TAIL -> lane[i].entry[what] = value
	:: what == TAIL -> lane[i].tail = value
	:: what == PUBLISHED -> lane[i].published = value
	fi
}

inline drain(i)
{
	do
	:: len(buffer[i]) > 0 -> drain_one(i)
	:: else -> break
	od
}

/* A locked operation: the own buffer is empty before it. */
inline lock(i)   { atomic { !lane[i].locked -> lane[i].locked = true } }
inline unlock(i) { lane[i].locked = false }

inline came_back(p)
{
	assert(!(users & (1 << p)));
	back[p]++;
	assert(back[p] == 1)
}

/* Somebody who is not the consumer takes it back: one step, whoever else tries. */
inline take_back(e)
{
	atomic {
		if
		:: held[e / 4] == e % 4 -> held[e / 4] = 0; came_back(e / 4)
		:: else -> refused++
		fi
	}
}

active proctype memory()
{
	byte what, value;

end:	do
	:: atomic { len(buffer[0]) > 0 -> drain_one(0) }
	:: atomic { len(buffer[1]) > 0 -> drain_one(1) }
	od
}

/* All that is in the lane, before who waits for room is told that there is some. */
inline read_entries(i)
{
	atomic { kept[0] = lane[i].entry[0]; kept[1] = lane[i].entry[1] }
}

inline take_all_back(i)
{
	do
	:: first != last ->
#ifdef HEAD_FIRST
		e = lane[i].entry[first % SIZE];
#else
		e = kept[first % SIZE];
#endif
		take_back(e);
		first++
	:: else -> break
	od
}

inline retract(i)
{
	atomic { drain(i) };
#ifndef TAKE_UNLOCKED
	lock(i);
#endif
	first = lane[i].head;
	last = lane[i].tail;
	read_entries(i);
	lane[i].head = last;
#ifndef TAKE_UNLOCKED
	unlock(i);
#endif
	take_all_back(i)
}

inline put(i, p)
{
	/* Only looked at: the line is shared by pages of other lanes. */
	atomic { e = (p) * 4 + held[p]; readers[p]++ }
	if
	:: e % 4 == 0 -> atomic { refused++ }
#if !defined(HEAD_LATE) && SIZE == 1
	:: e % 4 != 0 && tail - lane[i].head >= SIZE ->
		/* Full: it leaves the pool. */
		atomic { drain(i) };
		take_back(e)
	:: e % 4 != 0 && tail - lane[i].head < SIZE ->
#else
	:: e % 4 != 0 ->
#endif
#ifdef PUBLISHED_FIRST
		store(i, PUBLISHED, tail + 1);
#endif
		store(i, tail % SIZE, e);
#ifdef DYING_FIRST
		dying = lane[i].dying;
#endif
		tail++;
		store(i, TAIL, tail);
#ifndef PUBLISHED_FIRST
		if
		:: tail % BATCH == 0 -> store(i, PUBLISHED, tail)
		:: else
		fi;
#endif
#ifndef DYING_FIRST
		dying = lane[i].dying;
#endif
		if
		:: dying ->
#ifndef NO_RETRACT
			retract(i)
#else
			skip
#endif
		:: else
		fi
	fi
}

proctype producer(byte i)
{
	byte k, tail, e, first, last, what, value, kept[2];
	bool dying;

	/* Both put page 0, the first page 1 before it. */
	k = i;
	do
	:: k < 2 -> put(i, (1 - k)); k++
	:: else -> break
	od;
	through[i] = true
}

/* The consumer takes out of lane i up to end. */
inline take(i)
{
	do
	:: lane[i].head < end ->
		e = lane[i].entry[lane[i].head % SIZE];
		p = e / 4;
		/* One step, where the core has two: who puts a page twice, and gets it out of a full
		 * lane between the two, is not found. */
		atomic {
#ifdef NOT_COMPARED
		if
		:: held[p] != 0 ->
#else
		if
		:: held[p] == e % 4 ->
#endif
			came_back(p);
			held[p] = 0;
			/* And out again; but a second put after that is nobody's to find. */
			if
			:: p != 0 || readers[p] == 2 ->
#ifdef SAME_STAMP
				held[p] = e % 4;
#else
				held[p] = e % 4 + 1;
#endif
				users = users | (1 << p)
			:: else
			fi
		:: else -> refused++
		fi
		};
		lane[i].head++
	:: else -> break
	od
}

proctype consumer()
{
	byte turn, end, e, p, i, first, last, what, value, kept[2];

	do
	:: turn < TAKES ->
		turn++;
		if
		:: i = 0
		:: i = 1
		fi;
		if
		:: end = lane[i].published
		:: end = lane[i].tail
		fi;
		take(i)
	:: else -> break
	od;
#ifdef BARRIER_FIRST
	atomic { drain(0); drain(1) };
#endif
	lane[0].dying = true;
	lane[1].dying = true;
#if !defined(NO_MEMBARRIER) && !defined(BARRIER_FIRST)
	atomic { drain(0); drain(1) };
#endif
	i = 0;
	do
	:: i < 2 ->
#ifndef TAKE_UNLOCKED
		lock(i);
#endif
		first = lane[i].head;
#ifdef CLOSE_PUBLISHED
		last = (lane[i].published > first -> lane[i].published : first);
#else
		last = lane[i].tail;
#endif
		read_entries(i);
		lane[i].head = last;
#ifndef TAKE_UNLOCKED
		unlock(i);
#endif
		take_all_back(i);
		i++
	:: else -> break
	od;
	through[2] = true
}

/* When all are through and all stores have arrived, nothing is lost, and one put was refused. */
active proctype judge()
{
	byte p;

	through[0] && through[1] && through[2] && len(buffer[0]) == 0 && len(buffer[1]) == 0;
	do
	:: p < PAGES -> assert(back[p] == 1); p++
	:: else -> break
	od;
	assert(refused == 1)
}

init { atomic { run producer(0); run producer(1); run consumer() } }
