/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Workloads: each with each design, on one thread and on two, adds up and says the same again; and
 * what was computed by hand.
 */
#include "bench/workload.h"
#include "test.h"

static const unsigned designs[] = {
	PP_DESIGN_RING, PP_DESIGN_OURS,
	PP_LIST_RING,   PP_LIST_RING | PP_LIST_BATCH,
	PP_LIST_CACHE,  PP_LIST_RING | PP_LIST_CACHE,
	PP_DESIGN_LIST,
};

static struct workload_params standard(const struct workload *w)
{
	struct workload_params p = {.seed = 1, .reader_cpu = -1};

	memcpy(p.knobs, w->standard, sizeof(p.knobs));
	p.knobs[WORKLOAD_POLLS] = 200;
	return p;
}

static void run(const struct workload *w, const struct workload_params *p,
		struct workload_result *ret)
{
	int err = workload_run(w, p, ret);

	if (err) {
		printf("# %s with %s: %d: %s\n", w->name, pp_design_name(p->design), err,
		       ret->error);
		test_failed();
	}
}

/* All but the time. */
static void check_same(const struct workload_result *a, const struct workload_result *b)
{
	CHECK_EQ(a->nr_pools, b->nr_pools);
	for (size_t i = 0; i < a->nr_pools; i++) {
		CHECK(!memcmp(&a->pools[i].stats, &b->pools[i].stats, sizeof(a->pools[i].stats)));
		CHECK_EQ(a->pools[i].inflight, b->pools[i].inflight);
	}
	CHECK_EQ(a->nr_tags, b->nr_tags);
	for (size_t i = 0; i < a->nr_tags; i++)
		CHECK_EQ(a->tags[i].pages, b->tags[i].pages);
#define CHECK_COUNT(name) CHECK_EQ(a->name, b->name);
	WORKLOAD_COUNTS(CHECK_COUNT)
#undef CHECK_COUNT
}

TEST(each_design_and_again)
{
	static struct workload_result once, again;

	for (size_t i = 0; i < nr_workloads; i++) {
		for (size_t d = 0; d < PP_ARRAY_SIZE(designs); d++) {
			const struct workload *w = &workloads[i];
			struct workload_params p = standard(w);

			p.design = designs[d];
			run(w, &p, &once);
			run(w, &p, &again);
			check_same(&once, &again);
			CHECK_EQ(once.polls, 200);
			if (!(w->uses & 1u << WORKLOAD_THREADS))
				continue;
			p.knobs[WORKLOAD_THREADS] = 2;
			run(w, &p, &again);
			check_same(&once, &again);
		}
	}
}

TEST(the_reader_that_frees_itself)
{
	const struct workload *w = workload_find("tcp-stream");
	static struct workload_result once, again;
	struct workload_params p = standard(w);

	p.knobs[WORKLOAD_NAPI_DIRECT] = 1;
	p.knobs[WORKLOAD_DEFER_MAX] = 16;
	p.knobs[WORKLOAD_PAGES_FROM] = p.knobs[WORKLOAD_PAGES_TO] = 1;
	for (size_t d = 0; d < PP_ARRAY_SIZE(designs); d++) {
		p.design = designs[d];
		p.knobs[WORKLOAD_THREADS] = 1;
		run(w, &p, &once);
		p.knobs[WORKLOAD_THREADS] = 2;
		run(w, &p, &again);
		check_same(&once, &again);
		/* Of 64 packets a poll 16 are freed by the next poll, 48 at once by the reader. */
		CHECK_EQ(once.deferred, 199 * 16);
		CHECK_EQ(once.pools[0].stats.recycle_cached, 199 * 16);
		CHECK_EQ(once.pools[0].stats.recycle_ring, 200 * 48);
	}
}

/* 64 pages come back a poll, and after a hiccup of L polls 64 * (L + 1) at once. The cache is empty
 * then: 128 fit, and 1024 more into the ring. */
TEST(where_it_overflows)
{
	const struct workload *w = workload_find("tcp-stream");
	static struct workload_result r;
	struct workload_params p = standard(w);

	p.knobs[WORKLOAD_NAPI_DIRECT] = 1;
	p.knobs[WORKLOAD_PAGES_FROM] = p.knobs[WORKLOAD_PAGES_TO] = 1;
	for (unsigned length = 0; length < 32; length++) {
		unsigned back = 64 * (length + 1);

		/* The last of 64 polls are the hiccup; the reader's turn after the 65th ends it,
		 * and one more poll frees all. */
		p.knobs[WORKLOAD_POLLS] = 66;
		p.knobs[WORKLOAD_READER_HICCUP] = length;
		run(w, &p, &r);
		CHECK_EQ(r.pools[0].stats.recycle_cache_full, back > 128 ? back - 128 : 0);
		CHECK_EQ(r.left, back > 128 + 1024 ? back - 128 - 1024 : 0);
		/* The late poll is as good as a late reader: the packets come without any free in
		 * between, and then all are freed. */
		p.knobs[WORKLOAD_READER_HICCUP] = 0;
		p.knobs[WORKLOAD_POLLER_HICCUP] = length;
		run(w, &p, &r);
		CHECK_EQ(r.pools[0].stats.recycle_cache_full, back > 128 ? back - 128 : 0);
		CHECK_EQ(r.left, back > 128 + 1024 ? back - 128 - 1024 : 0);
		p.knobs[WORKLOAD_POLLER_HICCUP] = 0;
	}
}

TEST(the_leak_is_found)
{
	const struct workload *w = workload_find("multi-buffer");
	static struct workload_result bug, none;
	struct workload_params p = standard(w);
	uint64_t tagged = 0;

	p.knobs[WORKLOAD_POLLS] = 20;
	for (size_t d = 0; d < PP_ARRAY_SIZE(designs); d++) {
		p.design = designs[d];
		p.knobs[WORKLOAD_DRIVER_BUG] = 0;
		run(w, &p, &none);
		CHECK_EQ(none.leaked, 0);
		p.knobs[WORKLOAD_DRIVER_BUG] = 1;
		run(w, &p, &bug);
		CHECK_EQ(bug.frames_cut, none.frames_cut);
		CHECK_EQ(bug.pages_cut, none.pages_cut);
		CHECK_EQ(bug.leaked, bug.pages_cut);
		CHECK(bug.leaked > 0);
		tagged = 0;
		for (size_t i = 0; i < bug.nr_tags; i++) {
			/* A cut leaves the first page. */
			CHECK(strcmp(bug.tags[i].tag, "page 1 of a frame"));
			tagged += bug.tags[i].pages;
		}
		CHECK_EQ(tagged, bug.leaked);
		CHECK_EQ(bug.allocated - bug.put, bug.leaked);
	}
}

/* With the bug all memory ends in the leak; the driver goes on, and drops. */
TEST(until_there_is_no_page_left)
{
	const struct workload *w = workload_find("multi-buffer");
	static struct workload_result r;
	struct workload_params p = standard(w);

	p.knobs[WORKLOAD_DRIVER_BUG] = 1;
	p.knobs[WORKLOAD_MEMORY] = 1024;
	run(w, &p, &r);
	CHECK(r.dropped > 0);
	CHECK(r.leaked <= 1024);
	CHECK_EQ(r.packets + r.dropped, 200 * 64);
}

TEST(under_pressure)
{
	const struct workload *w = workload_find("memory-pressure");
	static struct workload_result r;
	struct workload_params p = standard(w);

	/* 512 pages, 128 of them the reserve. The reader has a turn after poll 0, and then none:
	 * what poll 0 got comes back, and polls 1 to 6 get 384 good pages. */
	p.knobs[WORKLOAD_HICCUP_EVERY] = 32;
	p.knobs[WORKLOAD_READER_HICCUP] = 31;
	p.knobs[WORKLOAD_POLLS] = 7;
	run(w, &p, &r);
	CHECK_EQ(r.packets, 7 * 64);
	CHECK_EQ(r.emergency, 0);
	CHECK_EQ(r.pools[0].stats.alloc_slow, 6);
	CHECK_EQ(r.pools[0].stats.alloc_refill, 1);
	/* Poll 7 has the reserve: every fourth packet is kept, the others are dropped. */
	p.knobs[WORKLOAD_POLLS] = 8;
	run(w, &p, &r);
	CHECK_EQ(r.emergency, 64);
	CHECK_EQ(r.packets, 7 * 64 + 16);
	CHECK_EQ(r.dropped, 48);
	CHECK_EQ(r.pools[0].stats.recycle_released_refcnt, 48);
	CHECK_EQ(r.failed, 0);
	/* In the end all 512 are with the reader, and nothing is to be had. */
	p.knobs[WORKLOAD_POLLS] = 32;
	run(w, &p, &r);
	CHECK_EQ(r.most_out, 512);
	CHECK(r.failed > 0);
}

static void check_wrong(const char *name, enum workload_knob knob, uint64_t value, const char *text)
{
	const struct workload *w = workload_find(name);
	static struct workload_result r;
	struct workload_params p = standard(w);

	p.knobs[knob] = value;
	CHECK_EQ(workload_check(w, &p, &r), -EINVAL);
	if (strcmp(r.error, text)) {
		printf("# \"%s\", not \"%s\"\n", r.error, text);
		test_failed();
	}
	CHECK_EQ(workload_run(w, &p, &r), -EINVAL);
	CHECK(!strcmp(r.error, text));
}

TEST(what_cannot_be)
{
	struct workload_params p = {.knobs = {0}};
	static struct workload_result r;

	CHECK_PTR(workload_find("tcp"), NULL);
	check_wrong("xdp-drop", WORKLOAD_PAGES_TO, 2, "xdp-drop: has no pages-to");
	check_wrong("tcp-stream", WORKLOAD_PACKETS, 65,
		    "tcp-stream: packets is 65: can be 1 to 64");
	check_wrong("tcp-stream", WORKLOAD_READER_HICCUP, 64,
		    "tcp-stream: a hiccup of 64 polls every 64: it would never end");
	check_wrong("tcp-stream", WORKLOAD_POLLER_HICCUP, 70,
		    "tcp-stream: a hiccup of 70 polls every 64: it would never end");
	check_wrong("mixed", WORKLOAD_PAGES_FROM, 5, "mixed: packets of 5 to 4 pages: none");
	check_wrong(
		"xdp-tx", WORKLOAD_RX_RING, 63,
		"xdp-tx: 64 packets a poll, and buffers for 63: no more can arrive than the NIC "
		"has buffers for");
	check_wrong("memory-pressure", WORKLOAD_RESERVE, 512,
		    "memory-pressure: a reserve of 512 pages leaves nothing of 512");
	p = standard(workload_find("mixed"));
	p.design = 12345;
	CHECK(workload_check(workload_find("mixed"), &p, &r) < 0);
	CHECK(strstr(r.error, "mixed: no pool: "));
}
