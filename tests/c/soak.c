/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The soak: everything on, for a billion operations, and the books balanced all the while.
 *
 *     soak [--operations 1e9] [--seed 1] [--threads 2] [--json]
 *
 * One consumer runs six pools, each in a napi of its own: NICs receive frames into pages, pages are
 * cut into pieces, taken in bulk, of a higher order, or out of a small region. Producers give back
 * what they are sent, one by one or in bulk, some of it with a second holder; they are the NICs'
 * wire, too. Each pool has a device behind a software IOMMU, some are checked pools. Now and then a
 * pool is destroyed while its pages are out and its device unbound, and the next takes its place.
 * Meanwhile the main thread reads statistics.
 *
 * An operation is a page or a piece, allocated and put. Whoever gets one finds a number there that
 * nobody else may have written over: a page that two have at a time shows. A fault of the IOMMU, a
 * report of a checked pool or any other message ends the soak, and so does a sum that does not hold
 * when a destroyed pool has all its pages back.
 *
 * What a thread does next it draws from the seed and its number; how threads meet is chance.
 * Exit: 0, 1 when something is wrong, 2 on a wrong argument.
 */
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/internal.h"

#if defined(__SANITIZE_ADDRESS__) || defined(PP_TSAN)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define MIB ((size_t)1 << 20)
#define ARENA (64 * MIB)
#define REGION (2 * MIB) /* little enough to run out of pages */
#define MAX_PRODUCERS 3
#define QUEUE 512    /* messages, a power of two */
#define PATIENCE 100 /* yields */
#define BATCH 64
#define NIC_SLOTS 256
#define MAX_OLD 256 /* destroyed pools with pages out */
#define NS 1000000000ll
/*
 * Memory is flat if the most that is resident in the last fifth is no more than this above, or
 * below, that of the second fifth. All pages of the providers are touched before the first
 * operation, so what moves are page tables of devices (8 KiB for each 2 MiB that is or was mapped,
 * 64 of them idle at most), pools and rings: in twelve runs of 2e7 operations, with 1 to 3
 * producers, the two were at most 0.8 MiB apart.
 */
#define RSS_MARGIN (4 * MIB)

/* ---- what ends it -------------------------------------------------------------------------------
 */

static uint64_t seed = 1;

static PP_COLD PP_PRINTF(1, 2) void fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	flockfile(stderr);
	fputs("\nsoak: ", stderr);
	vfprintf(stderr, fmt, args);
	fprintf(stderr, " (seed %" PRIu64 ")\n", seed);
	funlockfile(stderr);
	va_end(args);
	_Exit(1);
}

#define CHECK(e)                                                          \
	do {                                                              \
		if (unlikely(!(e)))                                       \
			fail("%s:%d: not: %s", __FILE__, __LINE__, (#e)); \
	} while (0)

#define CHECK_EQ(a, b)                                                                          \
	do {                                                                                    \
		long long a_ = (long long)(a), b_ = (long long)(b);                             \
		if (unlikely(a_ != b_))                                                         \
			fail("%s:%d: %s is %lld, not %s: %lld", __FILE__, __LINE__, #a, a_, #b, \
			     b_);                                                               \
	} while (0)

#define CHECK_OK(call)                                                               \
	do {                                                                         \
		int err_ = (call);                                                   \
		if (unlikely(err_))                                                  \
			fail("%s:%d: %s is %d: %s", __FILE__, __LINE__, #call, err_, \
			     page_pool_last_error());                                \
	} while (0)

/* valid(..., &why_) */
#define CHECK_VALID(call)                                              \
	do {                                                           \
		const char *why_;                                      \
		if (unlikely(!(call)))                                 \
			fail("%s:%d: %s", __FILE__, __LINE__, (why_)); \
	} while (0)

static void on_fault(void *ctx, const struct pp_iommu_fault *fault)
{
	(void)ctx;
	fail("the IOMMU refused: %s", fault->text);
}

static void on_report(void *ctx, const struct pp_report *report)
{
	(void)ctx;
	fail("a checked pool reports: %s", report->text);
}

/* A refused put, a pool that is stalled. */
static void on_log(void *ctx, const char *text)
{
	(void)ctx;
	fail("the library says: %s", text);
}

/* ---- chance -------------------------------------------------------------------------------------
 */

/* xorshift64*: the same sequence on every machine. */
static inline uint64_t rnd(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 0x2545f4914f6cdd1dull) >> 16;
}

static inline uint64_t below(uint64_t *state, uint64_t n)
{
	return rnd(state) % n;
}

static uint64_t thread_seed(unsigned number)
{
	uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15ull + number * 0xd1342543de82ef95ull;

	state |= 1;
	for (int i = 0; i < 8; i++)
		rnd(&state);
	return state;
}

/* ---- pools --------------------------------------------------------------------------------------
 */

enum trait {
	NIC = 1,          /* frames arrive in its pages */
	WHOLE = 2,        /* pages are taken whole as well */
	PIECES = 4,       /* and cut up */
	BULK = 8,         /* puts in bulk: then ring_full counts calls */
	HELD_PIECES = 16, /* pages in pieces have second holders: some then leave uncounted */
	CHECKED = 32,     /* every second generation */
};

static const struct kind {
	const char *name;
	unsigned traits;
	unsigned order;
	bool region;
	unsigned max_piece;
} kinds[] = {
	{"rx", NIC | WHOLE, 0, false, 0},
	{"rx-checked", NIC | WHOLE | BULK | CHECKED, 0, false, 0},
	{"pieces", PIECES, 0, false, 2048},
	{"bulk", WHOLE | BULK, 0, false, 0},
	{"jumbo", WHOLE | PIECES | HELD_PIECES | BULK, 2, false, 9000},
	{"region", NIC | WHOLE | PIECES | CHECKED, 0, true, 1024},
};
#define SLOTS PP_ARRAY_SIZE(kinds)

/* A pool from its creation until its last page is back. */
struct generation {
	unsigned slot;
	struct page_pool *pool;
	uint64_t pages; /* handed out: whole, or begun to be cut up */
};

/* The consumer's, but for what says otherwise. */
static struct slot {
	const struct kind *kind;
	struct pp_napi *napi;
	struct generation now;
	struct pp_device *device;
	unsigned offset, max_len; /* of the device's part of a page */
	uint64_t left;            /* operations until the pool is replaced */
	uint32_t posted;          /* buffers that the NIC has */
	uint64_t next_frame;      /* the number that the next one must have */
	/* Whoever has this is the wire; the consumer takes it to change the NIC. */
	pthread_mutex_t wire;
	struct pp_nic *nic;
	uint64_t sent;
	/* under readers_lock */
	struct page_pool *seen; /* with a reference */
} slots[SLOTS];

static struct pp_provider *arena, *region;
static struct pp_iommu *iommu;
static pthread_mutex_t readers_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned nr_producers = 2;
static uint64_t nr_operations = 1000000000;

static struct generation old[MAX_OLD];
static unsigned nr_old;

/* Of pools that are through. The consumer's until it has ended. */
static struct {
	uint64_t pools, pools_out, pages_out; /* destroyed; with pages out; these */
	uint64_t unwatched;                   /* whose last page freed them */
	uint64_t frames, held, out_of_pages;
	struct page_pool_stats stats;
	struct page_pool_dma_stats dma;
} total;

/* Written by one thread each, read by the main thread: relaxed, a snapshot for people. */
static struct counter {
	uint64_t n PP_ALIGNED(PP_CACHELINE);
} allocated, put_by[MAX_PRODUCERS + 1]; /* the last one is the consumer's */
#define PUT_HERE put_by[MAX_PRODUCERS].n

static uint32_t consumer_done; /* atomic */

static struct page_pool_stats stats_of(const struct page_pool *pool)
{
	struct page_pool_stats s = {.size = sizeof(s)};

	CHECK_OK(page_pool_get_stats(pool, &s));
	return s;
}

static struct page_pool_dma_stats dma_stats_of(const struct page_pool *pool)
{
	struct page_pool_dma_stats s = {.size = sizeof(s)};

	CHECK_OK(page_pool_get_dma_stats(pool, &s));
	return s;
}

static void show_to_reader(struct slot *slot, struct page_pool *pool)
{
	struct page_pool *before;

	if (pool)
		page_pool_ref(pool);
	pthread_mutex_lock(&readers_lock);
	before = slot->seen;
	slot->seen = pool;
	pthread_mutex_unlock(&readers_lock);
	if (before)
		page_pool_unref(before);
}

static void begin_pool(struct slot *slot, uint64_t *s)
{
	static const unsigned sizes[] = {16, 64, 256, 1024};
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	/* Operations; in a short soak less, so that pools come and go all the same. */
	uint64_t life = nr_operations < 10000000 ? nr_operations / 50 + 1 : 200000;
	const struct kind *kind = slot->kind;
	char name[32];

	snprintf(name, sizeof(name), "%s-%" PRIu64, kind->name, total.pools);
	CHECK_OK(pp_iommu_attach(iommu, name, &slot->device));
	slot->offset = 64 * (unsigned)below(s, 5);
	slot->max_len = 2048;
	slot->left = life / 8 + below(s, life);
	params.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV;
	if ((kind->traits & CHECKED) && below(s, 2))
		params.flags |= PP_FLAG_CHECKED;
	params.order = kind->order;
	params.pool_size = sizes[below(s, PP_ARRAY_SIZE(sizes))];
	params.nid = (int)below(s, 3) - 1;
	params.napi = slot->napi;
	params.provider = kind->region ? region : arena;
	params.device = slot->device;
	params.dma_dir = below(s, 2) ? PP_DMA_FROM_DEVICE : PP_DMA_BIDIRECTIONAL;
	params.offset = slot->offset;
	params.max_len = slot->max_len;
	slot->now = (struct generation){.slot = (unsigned)(slot - slots)};
	CHECK_OK(page_pool_create(&params, &slot->now.pool));
	if (kind->traits & NIC) {
		struct pp_nic_params nic = PP_NIC_PARAMS_INIT;

		nic.device = slot->device;
		nic.slots = NIC_SLOTS;
		CHECK_OK(pp_nic_create(&nic, &slot->nic));
		slot->posted = 0;
	}
	show_to_reader(slot, slot->now.pool);
}

/* All pages of a destroyed pool are back: do the books balance? */
static void settle(const struct generation *g)
{
	struct page_pool_stats s = stats_of(g->pool);
	struct page_pool_dma_stats d = dma_stats_of(g->pool);
	uint64_t recycled = s.recycle_cached + s.recycle_ring + s.recycle_ring_full;
	uint64_t put = recycled + s.recycle_released_refcnt;
	unsigned traits = kinds[g->slot].traits;

	CHECK_EQ(s.alloc_fast + s.alloc_refill + s.alloc_slow + s.alloc_slow_high_order, g->pages);
	if (!kinds[g->slot].order)
		CHECK(s.alloc_slow <= s.alloc_empty + s.alloc_waive);
	CHECK(put <= g->pages);
	if (!(traits & (BULK | HELD_PIECES))) {
		/* The page that was being cut up at the end may have gone without a put. */
		CHECK(put + !!(traits & PIECES) >= g->pages);
		/* Each page that entered, and each that was recycled. */
		CHECK_EQ(d.syncs + d.syncs_skipped, d.maps + recycled);
	}
	CHECK_EQ(d.maps, d.unmaps + d.unmaps_destroy);
	CHECK_EQ(d.unmaps_skipped, d.unmaps_destroy);
	CHECK_EQ(d.map_errors, 0);
	CHECK(d.syncs_skipped <= d.unmaps_skipped);
	CHECK_EQ(page_pool_refused_puts(g->pool), 0);
#define ADD(group, name) total.stats.group##_##name += s.group##_##name;
	PAGE_POOL_STATS(ADD)
#undef ADD
#define ADD(name) total.dma.name += d.name;
	PAGE_POOL_DMA_STATS(ADD)
#undef ADD
	page_pool_unref(g->pool);
}

static void settle_old(void)
{
	for (unsigned i = 0; i < nr_old;) {
		CHECK(page_pool_inflight(old[i].pool) >= 0);
		if (page_pool_inflight(old[i].pool)) {
			i++;
			continue;
		}
		settle(&old[i]);
		old[i] = old[--nr_old];
	}
}

/* As a driver is unbound: the wire is silent, the buffers are back, nobody waits for the rest. */
static void end_pool(struct slot *slot, uint64_t *s)
{
	struct page_pool *pool = slot->now.pool;
	struct pp_iommu_mapping left;
	struct page_pool_dma_stats d;
	int32_t out;

	/* With the lock no producer is at work in the ring. */
	pp_spin_lock(&pool->ring.lock);
	CHECK_VALID(page_pool_is_valid(pool, PP_TIER_FULL, &why_));
	pp_spin_unlock(&pool->ring.lock);
	show_to_reader(slot, NULL);
	page_pool_ref(pool);
	page_pool_destroy(pool);
	/* Whoever brings a page back now finds it unmapped. */
	d = dma_stats_of(pool);
	CHECK_EQ(d.maps, d.unmaps + d.unmaps_destroy);
	CHECK_VALID(pp_iommu_is_valid(slot->device, &why_));
	CHECK_EQ(pp_iommu_mappings(slot->device, 0, 1, &left), 0);
	CHECK_EQ(pp_device_unbind(slot->device), 0);
	pp_device_put(slot->device);
	out = page_pool_inflight(pool);
	CHECK(out >= 0);
	total.pools++;
	total.pools_out += out != 0;
	total.pages_out += (uint64_t)out;
	if (below(s, 8) == 0) {
		/* Its last page frees it, wherever that is. */
		total.unwatched++;
		page_pool_unref(pool);
		return;
	}
	while (nr_old == MAX_OLD) {
		settle_old();
		sched_yield();
	}
	old[nr_old++] = slot->now;
}

/* ---- mail ---------------------------------------------------------------------------------------
 */

enum role {
	PUT,      /* a whole page, to be put as one likes */
	PUT_ONE,  /* by itself */
	PUT_PART, /* a piece */
	LET_GO,   /* a second holder: only look at it, then let go */
};

struct message {
	struct pp_page *page;
	struct page_pool *pool; /* not for LET_GO */
	uint64_t tag;
	uint32_t first, last; /* where in the page the tag stands, bytes */
	enum role role;
	bool bulk;
};

/* From the consumer to a producer. */
static struct queue {
	struct message messages[QUEUE];
	uint64_t head PP_ALIGNED(PP_CACHELINE); /* messages sent; consumer, atomic */
	uint64_t sent, seen_tail;               /* consumer's own */
	uint64_t tail PP_ALIGNED(PP_CACHELINE); /* messages taken; producer, atomic */
	uint32_t closed;                        /* atomic */
} queues[MAX_PRODUCERS];

static void write_tag(const struct message *m)
{
	char *page = pp_page_address(m->page);

	memcpy(page + m->first, &m->tag, sizeof(m->tag));
	memcpy(page + m->last, &m->tag, sizeof(m->tag));
}

static void check_tag(const struct message *m)
{
	const char *page = pp_page_address(m->page);
	uint64_t first, last;

	memcpy(&first, page + m->first, sizeof(first));
	memcpy(&last, page + m->last, sizeof(last));
	if (unlikely(first != m->tag || last != m->tag))
		fail("the page at %p has %016" PRIx64 " at %u and %016" PRIx64
		     " at %u, not %016" PRIx64 ": somebody else has it, too",
		     (const void *)page, first, m->first, last, m->last, m->tag);
}

/* What was sent so far is seen by the producers. */
static void flush(void)
{
	for (unsigned i = 0; i < nr_producers; i++)
		/* release: the messages, and what they are about, come before. */
		pp_store_release(&queues[i].head, queues[i].sent);
}

static bool is_full(struct queue *q)
{
	if (q->sent - q->seen_tail < QUEUE)
		return false;
	/* acquire: the producer is through with these slots. */
	q->seen_tail = pp_load_acquire(&q->tail);
	return q->sent - q->seen_tail == QUEUE;
}

/* Waits a while for room, so that a good part goes through other threads; false: there is none. */
static bool send(struct queue *q, const struct message *m)
{
	if (unlikely(is_full(q))) {
		unsigned turns = PATIENCE;

		flush();
		while (is_full(q) && --turns)
			sched_yield();
		if (!turns)
			return false;
	}
	q->messages[q->sent++ % QUEUE] = *m;
	return true;
}

/* ---- the wire -----------------------------------------------------------------------------------
 */

struct frame {
	union {
		uint64_t number;
		char bytes[2048];
	};
};

/* A few frames, if nobody else is the wire and the driver has buffers out. */
static void carry(struct slot *slot, struct frame *frame, uint64_t *s)
{
	if (!(slot->kind->traits & NIC) || pthread_mutex_trylock(&slot->wire))
		return;
	for (int n = 0; n < BATCH; n++) {
		size_t length = below(s, 16) ? 64 : 64 + below(s, sizeof(frame->bytes) - 64);
		int err;

		frame->number = slot->sent;
		memcpy(frame->bytes + length - sizeof(frame->number), &frame->number,
		       sizeof(frame->number));
		err = pp_nic_receive(slot->nic, frame->bytes, length);
		if (err) {
			CHECK_EQ(err, -ENOBUFS);
			break;
		}
		slot->sent++;
	}
	pthread_mutex_unlock(&slot->wire);
}

/* ---- producers ----------------------------------------------------------------------------------
 */

struct producer {
	pthread_t thread;
	unsigned number;
	uint64_t state;
	uint64_t held;
	struct frame frame;
};

static void put_one(struct producer *p, const struct message *m)
{
	uint64_t r = rnd(&p->state);

	if (r % 16 == 0 && m->role != PUT_PART) {
		/* Keeps it beyond the put. */
		pp_page_get(m->page);
		page_pool_put_full_page(m->pool, m->page, false);
		check_tag(m);
		pp_page_put(m->page);
		p->held++;
	} else if (r & 256) {
		page_pool_put_page(m->pool, m->page, 64 + (r >> 16) % 2048, false);
	} else {
		page_pool_put_full_page(m->pool, m->page, false);
	}
}

static void take(struct producer *p, const struct message *messages, uint64_t tail, uint64_t n)
{
	struct pp_page *bulk[BATCH];
	bool in_bulk = below(&p->state, 2);
	uint64_t puts = 0;
	size_t nr = 0;

	for (uint64_t i = 0; i < n; i++) {
		const struct message *m = &messages[(tail + i) % QUEUE];

		check_tag(m);
		if (m->role == LET_GO) {
			pp_page_put(m->page);
			p->held++;
			continue;
		}
		puts++;
		if (in_bulk && m->bulk)
			bulk[nr++] = m->page;
		else
			put_one(p, m);
	}
	page_pool_put_page_bulk(bulk, nr);
	pp_add_single_writer(&put_by[p->number].n, puts);
}

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct queue *q = &queues[p->number];
	uint64_t tail = 0;
	unsigned idle = 0;

	for (unsigned turn = 0;; turn++) {
		/* acquire: closed comes after the last message. */
		bool closed = pp_load_acquire(&q->closed);
		/* acquire: pairs with flush(). */
		uint64_t n = pp_load_acquire(&q->head) - tail;

		if (!n && closed)
			return NULL;
		if (n > BATCH)
			n = BATCH;
		if (n) {
			take(p, q->messages, tail, n);
			tail += n;
			/* release: the slots were read. */
			pp_store_release(&q->tail, tail);
			idle = 0;
		} else if (++idle > 64) {
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
		} else {
			sched_yield();
		}
		/* Slots are shared out among the producers. */
		if (turn % 2 == 0)
			carry(&slots[(turn / 2 * nr_producers + p->number) % SLOTS], &p->frame,
			      &p->state);
	}
}

/* ---- the consumer -------------------------------------------------------------------------------
 */

/* Pages of the present poll that go back in one call. */
struct batch {
	struct pp_page *pages[BATCH];
	size_t n;
};

static void put_here(struct slot *slot, const struct message *m, uint64_t r)
{
	struct page_pool *pool = slot->now.pool;

	switch (r % 4) {
	case 0:
		page_pool_put_full_page(pool, m->page, false); /* direct by the napi */
		break;
	case 1:
		page_pool_put_page(pool, m->page, 1 + (r >> 8) % 4096, true);
		break;
	default:
		page_pool_recycle_direct(pool, m->page);
	}
	pp_add_single_writer(&PUT_HERE, 1u);
}

/* In the napi: a page or piece, with its tag in it, that nobody needs any more. */
static void dispose(struct slot *slot, struct message *m, struct batch *batch, uint64_t *s)
{
	uint64_t r = rnd(s), what = r & 63;
	struct queue *q = &queues[(r >> 6 & 255) % nr_producers];
	bool may_hold = m->role != PUT_PART || (slot->kind->traits & HELD_PIECES);

	r >>= 14;
	slot->left -= slot->left != 0;
	if (what < 2 && may_hold) {
		/* A second holder elsewhere, who lets go before or after the put. */
		struct message hold = *m;

		hold.role = LET_GO;
		pp_page_get(m->page);
		if (!send(q, &hold))
			pp_page_put(m->page);
		if (what == 0) {
			put_here(slot, m, r);
			return;
		}
		q = &queues[r % nr_producers];
	} else if (what < 24) {
		put_here(slot, m, r);
		return;
	} else if (what < 32 && m->bulk) {
		batch->pages[batch->n++] = m->page;
		if (batch->n == BATCH) {
			page_pool_put_page_bulk(batch->pages, batch->n);
			pp_add_single_writer(&PUT_HERE, batch->n);
			batch->n = 0;
		}
		return;
	}
	if (!send(q, m))
		put_here(slot, m, r);
}

static void count(struct slot *slot, uint64_t pages, uint64_t operations)
{
	slot->now.pages += pages;
	pp_add_single_writer(&allocated.n, operations);
}

static struct message message_of(const struct slot *slot, struct pp_page *page, enum role role)
{
	return (struct message){
		.page = page,
		.pool = slot->now.pool,
		.role = role,
		.bulk = slot->kind->traits & BULK,
	};
}

/* A frame that has arrived; its number is the tag. */
static struct message receive(struct slot *slot, struct pp_page *page, int64_t length)
{
	struct message m = message_of(slot, page, PUT);

	if (unlikely(length < 0))
		fail("%s: a frame that was not written: %lld", slot->kind->name, (long long)length);
	page_pool_dma_sync_for_cpu(slot->now.pool, page, 0, (unsigned)length);
	m.tag = slot->next_frame++;
	m.first = slot->offset;
	m.last = slot->offset + (uint32_t)length - (uint32_t)sizeof(m.tag);
	check_tag(&m);
	slot->posted--;
	total.frames++;
	return m;
}

static void poll_nic(struct slot *slot, struct batch *batch, uint64_t *s)
{
	struct pp_page *pages[BATCH];
	int64_t length;
	void *cookie;
	size_t n;

	for (int budget = BATCH; budget && pp_nic_poll(slot->nic, &cookie, &length); budget--) {
		struct message m = receive(slot, cookie, length);

		dispose(slot, &m, batch, s);
	}
	if (slot->posted > NIC_SLOTS - BATCH)
		return;
	n = page_pool_alloc_pages_bulk(slot->now.pool, BATCH, pages);
	total.out_of_pages += n < BATCH;
	count(slot, n, n);
	for (size_t i = 0; i < n; i++)
		CHECK_OK(pp_nic_post(slot->nic, page_pool_get_dma_addr(pages[i]) + slot->offset,
				     slot->max_len, pages[i]));
	slot->posted += (uint32_t)n;
}

static void take_pages(struct slot *slot, struct batch *batch, uint64_t *s, uint64_t *tag)
{
	uint32_t room = (uint32_t)(PP_PAGE_SIZE << slot->kind->order);
	size_t want = 1 + below(s, BATCH), n = 0;
	struct pp_page *pages[BATCH];

	if (want & 1)
		n = page_pool_alloc_pages_bulk(slot->now.pool, want, pages);
	while (n < want && (pages[n] = page_pool_alloc_pages(slot->now.pool)))
		n++;
	total.out_of_pages += n < want;
	count(slot, n, n);
	for (size_t i = 0; i < n; i++) {
		struct message m = message_of(slot, pages[i], PUT);

		m.tag = ++*tag;
		m.first = (uint32_t)(m.tag % 32) * 64;
		m.last = room - 64 - m.first;
		write_tag(&m);
		dispose(slot, &m, batch, s);
	}
}

/* More than the cache holds, and all of it back at once. */
static void take_wave(struct slot *slot, uint64_t *s)
{
	struct pp_page *pages[PP_ALLOC_CACHE_SIZE + BATCH];
	size_t n;

	n = page_pool_alloc_pages_bulk(slot->now.pool, PP_ARRAY_SIZE(pages), pages);
	total.out_of_pages += n < PP_ARRAY_SIZE(pages);
	count(slot, n, n);
	for (size_t i = 0; i < n; i++) {
		struct message m = message_of(slot, pages[i], PUT);

		put_here(slot, &m, rnd(s));
	}
}

static void take_pieces(struct slot *slot, struct batch *batch, uint64_t *s, uint64_t *tag)
{
	size_t want = 1 + below(s, 2 * BATCH), n = 0, begun = 0;
	/* Now and then all are back before the next page is needed: it is used in place. */
	bool back_at_once = below(s, 4) == 0;

	for (; n < want; n++) {
		size_t size = 64 + below(s, below(s, 4) ? 192 : slot->kind->max_piece - 64), offset;
		struct pp_page *page = page_pool_alloc_frag(slot->now.pool, &offset, size);
		struct message m;

		if (!page)
			break;
		begun += offset == 0;
		m = message_of(slot, page, PUT_PART);
		m.tag = ++*tag;
		m.first = (uint32_t)offset;
		m.last = (uint32_t)(offset + size - sizeof(m.tag));
		write_tag(&m);
		if (back_at_once)
			put_here(slot, &m, rnd(s));
		else
			dispose(slot, &m, batch, s);
	}
	total.out_of_pages += n < want;
	count(slot, begun, n);
}

static void poll(struct slot *slot, uint64_t *s, uint64_t *tag)
{
	struct batch batch = {.n = 0};
	unsigned traits = slot->kind->traits;

	CHECK_OK(pp_napi_enter(slot->napi));
	if (traits & NIC)
		poll_nic(slot, &batch, s);
	/* Where there are frames they are the greater part. */
	if ((traits & WHOLE) && (!(traits & NIC) || below(s, 4) == 0))
		take_pages(slot, &batch, s, tag);
	if (traits & PIECES)
		take_pieces(slot, &batch, s, tag);
	if ((traits & WHOLE) && below(s, 64) == 0)
		take_wave(slot, s);
	page_pool_put_page_bulk(batch.pages, batch.n);
	pp_add_single_writer(&PUT_HERE, batch.n);
	if (below(s, 256) == 0)
		CHECK_OK(page_pool_update_nid(slot->now.pool, (int)below(s, 3) - 1));
	CHECK_OK(pp_napi_exit(slot->napi));
}

/* The driver stops its NIC: frames that are there, then buffers that are not used. The wire is
 * silent, and stays so until the caller lets go of it. */
static void stop_nic(struct slot *slot)
{
	int64_t length;
	void *cookie;

	while (pp_nic_poll(slot->nic, &cookie, &length)) {
		struct message m = receive(slot, cookie, length);

		page_pool_put_full_page(slot->now.pool, m.page, true);
		pp_add_single_writer(&PUT_HERE, 1u);
	}
	while (pp_nic_take(slot->nic, &cookie)) {
		page_pool_put_full_page(slot->now.pool, cookie, false);
		pp_add_single_writer(&PUT_HERE, 1u);
		slot->posted--;
	}
	CHECK_EQ(slot->posted, 0);
	CHECK_EQ(slot->sent, slot->next_frame);
	pp_nic_destroy(slot->nic);
	slot->nic = NULL;
}

static void replace(struct slot *slot, uint64_t *s, uint64_t *tag, bool again)
{
	bool nic = slot->kind->traits & NIC;

	if (nic) {
		pthread_mutex_lock(&slot->wire);
		stop_nic(slot);
	}
	if (below(s, 4)) {
		/* So that some are out whatever the producers do: these hear of it too late. */
		struct batch none = {.n = 0};

		CHECK_OK(pp_napi_enter(slot->napi));
		if (slot->kind->traits & WHOLE)
			take_pages(slot, &none, s, tag);
		else
			take_pieces(slot, &none, s, tag);
		page_pool_put_page_bulk(none.pages, none.n);
		pp_add_single_writer(&PUT_HERE, none.n);
		CHECK_OK(pp_napi_exit(slot->napi));
	}
	end_pool(slot, s);
	flush();
	if (again)
		begin_pool(slot, s);
	if (nic && again) /* else it is silent for ever */
		pthread_mutex_unlock(&slot->wire);
}

static void *consume(void *unused)
{
	uint64_t s = thread_seed(0), tag = 1ull << 56; /* no frame has such a number */

	(void)unused;
	/* relaxed: its own counter. */
	for (unsigned turn = 0; pp_load_relaxed(&allocated.n) < nr_operations; turn++) {
		struct slot *slot = &slots[below(&s, SLOTS)];

		poll(slot, &s, &tag);
		flush();
		if (!slot->left)
			replace(slot, &s, &tag, true);
		if (turn % 64 == 0)
			settle_old();
	}
	/* release: allocated and the rest come before. */
	pp_store_release(&consumer_done, 1u);
	return NULL;
}

/* ---- the main thread: statistics, progress ------------------------------------------------------
 */

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS + ts.tv_nsec;
}

static uint64_t rss(void)
{
	static long page;
	unsigned long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!page)
		page = sysconf(_SC_PAGE_SIZE);
	CHECK(f && fscanf(f, "%lu %lu", &size, &resident) == 2);
	fclose(f);
	return (uint64_t)resident * (uint64_t)page;
}

/* The most that was resident in each fifth of the way. */
static uint64_t rss_of_fifth[5];
static uint64_t reads;

/* Statistics go forward, and what is in flight is never negative; returns it. */
static int64_t read_statistics(void)
{
	static struct page_pool_stats last[SLOTS];
	static uint32_t id[SLOTS];
	struct pp_holder holders[4];
	int64_t inflight = 0;

	for (size_t i = 0; i < SLOTS; i++) {
		struct page_pool_stats s;
		struct page_pool *pool;
		int32_t n;

		pthread_mutex_lock(&readers_lock);
		pool = slots[i].seen;
		if (pool)
			page_pool_ref(pool);
		pthread_mutex_unlock(&readers_lock);
		if (!pool)
			continue;
		s = stats_of(pool);
		dma_stats_of(pool);
		if (page_pool_id(pool) == id[i]) {
			/* Destroyed meanwhile: what left by the ring just then is not told apart
			 * from what somebody held. acquire: after the statistics. */
			if (pp_load_acquire(&pool->pending) < PP_PENDING_LIVE / 2)
				s.recycle_released_refcnt = UINT64_MAX;
#define FORWARD(group, name) CHECK(s.group##_##name >= last[i].group##_##name);
			PAGE_POOL_STATS(FORWARD)
#undef FORWARD
		}
		if (reads % 64 == 0 && (page_pool_flags(pool) & PP_FLAG_CHECKED))
			CHECK(page_pool_holders(pool, PP_ARRAY_SIZE(holders), holders) >= 0);
		n = page_pool_inflight(pool);
		CHECK(n >= 0);
		inflight += n;
		id[i] = page_pool_id(pool);
		last[i] = s;
		page_pool_unref(pool); /* may be the end of it */
		reads++;
	}
	return inflight;
}

static uint64_t operations_done(void)
{
	uint64_t n = 0;

	for (size_t i = 0; i < PP_ARRAY_SIZE(put_by); i++)
		n += pp_load_relaxed(&put_by[i].n);
	return n;
}

static void show_progress(bool terminal, uint64_t done, double seconds, int64_t inflight,
			  uint64_t resident)
{
	double rate = seconds > 0 ? (double)done / seconds : 0;
	uint64_t left = nr_operations > done ? nr_operations - done : 0;

	fprintf(stderr,
		"%ssoak: %5.1f %% of %.4g: %.2f M/s, %" PRId64 " in flight, RSS %" PRIu64
		" MiB, %.0f s to go%s",
		terminal ? "\r" : "", 100.0 * (double)done / (double)nr_operations,
		(double)nr_operations, rate / 1e6, inflight, resident / MIB,
		rate > 0 ? (double)left / rate : 0.0, terminal ? "\033[K" : "\n");
}

static double watch(void)
{
	bool terminal = isatty(STDERR_FILENO);
	int64_t start = now_ns(), shown = start, every = terminal ? NS / 5 : 10 * NS;

	/* acquire: pairs with the release at the consumer's end. */
	while (!pp_load_acquire(&consumer_done)) {
		uint64_t done = operations_done(), resident = rss();
		uint64_t fifth = done / (nr_operations / 5 + 1);
		int64_t inflight = read_statistics(), now;

		if (fifth < 5 && rss_of_fifth[fifth] < resident)
			rss_of_fifth[fifth] = resident;
		now = now_ns();
		if (now - shown >= every) {
			shown = now;
			show_progress(terminal, done, (double)(now - start) / NS, inflight,
				      resident);
		}
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	if (terminal)
		fputs("\r\033[K", stderr);
	return (double)(now_ns() - start) / NS;
}

/* ---- beginning and end --------------------------------------------------------------------------
 */

/* All its pages are touched now, so that what is resident later is not theirs. */
static void touch(struct pp_provider *provider)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	size_t n = 0, max = ARENA >> PP_PAGE_SHIFT;
	struct pp_page **pages = calloc(max, sizeof(pages[0]));
	struct page_pool *pool;

	CHECK(pages);
	params.provider = provider;
	/* Checked, so that its records are there as well. */
	params.flags = PP_FLAG_CHECKED;
	CHECK_OK(page_pool_create(&params, &pool));
	while (n < max && (pages[n] = page_pool_alloc_pages(pool)))
		memset(pp_page_address(pages[n++]), 1, PP_PAGE_SIZE);
	CHECK(n >= REGION >> PP_PAGE_SHIFT);
	while (n)
		page_pool_put_full_page(pool, pages[--n], false);
	page_pool_destroy(pool);
	free(pages);
}

static bool released;

static void on_release(void *ctx, void *memory, size_t length)
{
	(void)ctx;
	(void)memory;
	(void)length;
	released = true;
}

static void *begin(void)
{
	struct pp_arena_params a = PP_ARENA_PARAMS_INIT;
	struct pp_region_params r = PP_REGION_PARAMS_INIT;
	struct pp_iommu_params i = PP_IOMMU_PARAMS_INIT;
	void *memory = aligned_alloc(PP_PAGE_SIZE, REGION);
	uint64_t s = thread_seed(1 + MAX_PRODUCERS);

	CHECK(memory);
	page_pool_set_log(on_log, NULL);
	page_pool_set_report(on_report, NULL);
	a.limit = ARENA;
	CHECK_OK(pp_arena_create(&a, &arena));
	r.memory = memory;
	r.length = REGION;
	r.release = on_release;
	CHECK_OK(pp_region_create(&r, &region));
	i.fault = on_fault;
	CHECK_OK(pp_iommu_create(&i, &iommu));
	touch(arena);
	touch(region);
	for (size_t k = 0; k < SLOTS; k++) {
		slots[k].kind = &kinds[k];
		pthread_mutex_init(&slots[k].wire, NULL);
		CHECK_OK(pp_napi_create(&slots[k].napi));
		begin_pool(&slots[k], &s);
	}
	return memory;
}

static uint64_t out_of(struct pp_provider *provider)
{
	struct pp_provider_info info = {.size = sizeof(info)};

	CHECK_OK(pp_provider_get_info(provider, &info));
	return info.out;
}

static void end_provider(struct pp_provider *provider)
{

	CHECK_EQ(out_of(provider), 0);
	CHECK_VALID(pp_arena_is_valid(provider, &why_));
	/* A pool that was not freed would have one. acquire: everybody else is through. */
	CHECK_EQ(pp_load_acquire(&provider->refs), 1);
	pp_provider_put(provider);
}

/* Nobody else allocates any more: the pools go while the producers still have pages of theirs. */
static void end(struct producer *producers, void *memory)
{
	uint64_t s = thread_seed(2 + MAX_PRODUCERS), tag = 1ull << 57;

	for (size_t k = 0; k < SLOTS; k++)
		replace(&slots[k], &s, &tag, false);
	for (unsigned i = 0; i < nr_producers; i++)
		/* release: after the last message. */
		pp_store_release(&queues[i].closed, 1u);
	for (unsigned i = 0; i < nr_producers; i++) {
		pthread_join(producers[i].thread, NULL);
		total.held += producers[i].held;
	}
	settle_old();
	CHECK_EQ(nr_old, 0);
	CHECK_EQ(operations_done(), pp_load_relaxed(&allocated.n));
	for (size_t k = 0; k < SLOTS; k++) {
		CHECK_OK(pp_napi_destroy(slots[k].napi));
		if (kinds[k].traits & NIC)
			pthread_mutex_unlock(&slots[k].wire);
		pthread_mutex_destroy(&slots[k].wire);
	}
	CHECK_EQ(pp_iommu_faults(iommu), 0);
	pp_iommu_put(iommu);
	end_provider(arena);
	end_provider(region);
	CHECK(released);
	free(memory);
}

/* A soak that left something out proves nothing about it. */
static void everything_happened(void)
{
	if (nr_operations < 1000000)
		return;
#define HAPPENED(group, name) CHECK(total.stats.group##_##name > 0);
	PAGE_POOL_STATS(HAPPENED)
#undef HAPPENED
	CHECK(total.pools > SLOTS && total.pools_out > 0 && total.unwatched > 0);
	CHECK(total.frames > 0 && total.held > 0 && reads > 0);
	CHECK(total.dma.unmaps > 0 && total.dma.unmaps_destroy > 0 && total.dma.syncs_skipped > 0);
}

/* ---- summary ------------------------------------------------------------------------------------
 */

static void summarize(double seconds, bool json)
{
	uint64_t n = operations_done(), early = rss_of_fifth[1], late = rss_of_fifth[4];
	const struct {
		const char *key, *text;
		uint64_t value;
	} lines[] = {{"seed", "seed", seed},
		     {"producers", "producer threads", nr_producers},
		     {"operations", "operations", n},
		     {"frames", "frames received", total.frames},
		     {"pools", "pools destroyed", total.pools},
		     {"pools_with_pages_out", "  with pages out", total.pools_out},
		     {"pages_out_at_destroy", "  these pages", total.pages_out},
		     {"held_elsewhere", "pages with a second holder", total.held},
		     {"out_of_pages", "times out of pages", total.out_of_pages},
		     {"reads", "statistics read", reads},
		     {"rss_early", "most resident from 20 to 40 %, bytes", early},
		     {"rss_late", "most resident from 80 to 100 %, bytes", late},
		     {"faults", "faults of the IOMMU", 0},
		     {"reports", "reports of checked pools", 0},
		     {"in_flight", "in flight at the end", 0},
#define LINE(group, name) {#group "_" #name, "  " #group "_" #name, total.stats.group##_##name},
		     PAGE_POOL_STATS(LINE)
#undef LINE
#define LINE(name) {"dma_" #name, "  " #name, total.dma.name},
			     PAGE_POOL_DMA_STATS(LINE)
#undef LINE
	};

	if (json) {
		printf("{\"seconds\": %.3f, \"operations_per_second\": %.0f", seconds,
		       (double)n / seconds);
		for (size_t i = 0; i < PP_ARRAY_SIZE(lines); i++)
			printf(", \"%s\": %" PRIu64, lines[i].key, lines[i].value);
		puts("}");
		return;
	}
	printf("%.3g operations in %.1f s: %.2f M/s, all sums hold\n", (double)n, seconds,
	       (double)n / seconds / 1e6);
	for (size_t i = 0; i < PP_ARRAY_SIZE(lines); i++)
		printf("%-38s %" PRIu64 "\n", lines[i].text, lines[i].value);
}

static void check_memory(void)
{
	uint64_t early = rss_of_fifth[1], late = rss_of_fifth[4];
	uint64_t moved = late > early ? late - early : early - late;

	/* A sanitizer keeps what was freed; a run too short to look twice has nothing to compare.
	 */
	if (SANITIZED || !early || !late)
		return;
	if (moved > RSS_MARGIN)
		fail("memory is not flat: %" PRIu64 " KiB resident early, %" PRIu64
		     " KiB late, %zu KiB may be between",
		     early >> 10, late >> 10, (size_t)RSS_MARGIN >> 10);
}

/* ---- arguments ----------------------------------------------------------------------------------
 */

static const char usage[] =
	"Usage: soak [--operations N] [--seed N] [--threads N] [--json]\n"
	"\n"
	"  --operations N  pages and pieces, allocated and put; 1e9 if not given\n"
	"  --seed N        1 if not given\n"
	"  --threads N     producers, 1 to 3; 2 if not given\n"
	"  --json          the summary as JSON\n";

/* 1000000 or 1e6. */
static bool parse_count(const char *text, double low, double high, uint64_t *ret)
{
	char *end;
	double value = strtod(text, &end);

	/* Not >= low is true of what is no number as well. */
	if (end == text || *end || !(value >= low && value <= high) ||
	    value != (double)(uint64_t)value)
		return false;
	*ret = (uint64_t)value;
	return true;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"operations", required_argument, NULL, 'o'},
		{"seed", required_argument, NULL, 's'},
		{"threads", required_argument, NULL, 't'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static struct producer producers[MAX_PRODUCERS];
	uint64_t threads = nr_producers;
	pthread_t consumer;
	bool json = false;
	double seconds;
	void *memory;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		bool ok = true;

		if (opt == 'o')
			ok = parse_count(optarg, 1, 1e15, &nr_operations);
		else if (opt == 's')
			ok = parse_count(optarg, 0, 1e15, &seed);
		else if (opt == 't')
			ok = parse_count(optarg, 1, MAX_PRODUCERS, &threads);
		else if (opt == 'j')
			json = true;
		else if (opt == 'h')
			return fputs(usage, stdout) < 0;
		if (opt == '?' || !ok) {
			fprintf(stderr, "%s%s", ok ? "" : "soak: a number out of range\n", usage);
			return 2;
		}
	}
	if (optind < argc) {
		fputs(usage, stderr);
		return 2;
	}
	nr_producers = (unsigned)threads;
	memory = begin();
	for (unsigned i = 0; i < nr_producers; i++) {
		producers[i].number = i;
		producers[i].state = thread_seed(1 + i);
		CHECK_EQ(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
	}
	CHECK_EQ(pthread_create(&consumer, NULL, consume, NULL), 0);
	seconds = watch();
	pthread_join(consumer, NULL);
	end(producers, memory);
	everything_happened();
	check_memory();
	summarize(seconds, json);
	return fflush(stdout) ? 1 : 0;
}
