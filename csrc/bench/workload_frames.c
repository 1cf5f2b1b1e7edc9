/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * multi-buffer: a frame larger than a page comes as several pages, and each must come back exactly
 * once, whether the frame is dropped, passed to a reader, or cut short and then passed. A driver
 * that forgets the pages which were cut off (as one did) leaks them: with driver-bug this one does,
 * and then asks the pool, in checked mode, who has them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "workload_parts.h"

#define TAG(n) "page " #n " of a frame"
#define TAGS_8(a, b, c, d, e, f, g, h) \
	TAG(a), TAG(b), TAG(c), TAG(d), TAG(e), TAG(f), TAG(g), TAG(h)
/* What the thread that allocates is about: strings that last. */
static const char *const tags[WORKLOAD_MAX_PAGES] = {
	TAGS_8(1, 2, 3, 4, 5, 6, 7, 8),         TAGS_8(9, 10, 11, 12, 13, 14, 15, 16),
	TAGS_8(17, 18, 19, 20, 21, 22, 23, 24), TAGS_8(25, 26, 27, 28, 29, 30, 31, 32),
	TAGS_8(33, 34, 35, 36, 37, 38, 39, 40), TAGS_8(41, 42, 43, 44, 45, 46, 47, 48),
	TAGS_8(49, 50, 51, 52, 53, 54, 55, 56), TAGS_8(57, 58, 59, 60, 61, 62, 63, 64),
};

int work_frames_prepare(struct work *w)
{
	/* Not the machine's: what leaks shall not be more than this, and then there are no pages.
	 */
	int err = work_make_region(w);

	return err ? err
		   : work_add_pool(w, true, w->knobs[WORKLOAD_DRIVER_BUG] ? PP_FLAG_CHECKED : 0);
}

/* Like work_alloc(), but each page is allocated under the tag of its place. */
static size_t alloc_tagged(struct work *w, size_t n, struct pp_page **pages)
{
	const char *before = page_pool_set_tag(NULL);
	size_t got = 0;

	while (got < n) {
		page_pool_set_tag(tags[got]);
		if (!work_alloc(w, w->pools[0], 1, &pages[got]))
			break;
		got++;
	}
	page_pool_set_tag(before);
	if (got < n)
		for (size_t i = 0; i < got; i++)
			work_put(w, w->pools[0], pages[i]);
	return got;
}

static void put_all(struct work *w, struct pp_page **pages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		work_put(w, w->pools[0], pages[i]);
}

int work_frames_poll(struct work *w)
{
	struct pp_page *pages[WORKLOAD_MAX_PAGES];
	bool bug = w->knobs[WORKLOAD_DRIVER_BUG];
	struct workload_result *r = w->r;

	for (uint64_t i = 0; i < w->knobs[WORKLOAD_PACKETS]; i++) {
		size_t n = work_pages(w), keep = n, got;
		/* Dropped, passed, cut. */
		uint64_t verdict = work_chance(w, 3);

		/* Always drawn, so that the frames that follow are the same with and without. */
		if (verdict == 2 && n > 1)
			keep = 1 + work_chance(w, n - 1);
		got = bug ? alloc_tagged(w, n, pages) : work_alloc(w, w->pools[0], n, pages);
		if (got < n) {
			r->dropped++;
			continue;
		}
		r->packets++;
		if (verdict == 0) {
			r->frames_dropped++;
			put_all(w, pages, n);
			continue;
		}
		if (keep < n) {
			r->frames_cut++;
			r->pages_cut += n - keep;
			if (!bug)
				put_all(w, pages + keep, n - keep);
		} else {
			r->frames_passed++;
		}
		if (work_queue_add(&w->queue, pages, keep)) {
			put_all(w, pages, keep);
			return work_fail(w, -ENOMEM, "no memory for the reader's queue");
		}
	}
	return 0;
}

/* In the order of the places. */
static void name_leaks(struct workload_result *r, const struct pp_holder *holders, int64_t n)
{
	for (size_t place = 0; place <= WORKLOAD_MAX_PAGES; place++) {
		const char *tag = place < WORKLOAD_MAX_PAGES ? tags[place] : NULL;
		uint64_t pages = 0;

		for (int64_t i = 0; i < n; i++)
			pages += holders[i].allocated.tag == tag;
		if (!pages)
			continue;
		r->tags[r->nr_tags].tag = tag ? tag : "no tag";
		r->tags[r->nr_tags++].pages = pages;
	}
}

/* Everybody has put what they have: what is out now, nobody has. */
int work_frames_inspect(struct work *w)
{
	struct page_pool *pool = w->pools[0];
	struct pp_holder *holders;
	int64_t n, again;

	if (!w->knobs[WORKLOAD_DRIVER_BUG])
		return 0; /* if there are any the pool's end will tell */
	n = page_pool_holders(pool, 0, NULL);
	if (n < 0)
		return work_fail(w, (int)n, "who has the pages is not known: %s",
				 page_pool_last_error());
	w->r->leaked = (uint64_t)n;
	if (!n)
		return 0;
	holders = calloc((size_t)n, sizeof(*holders));
	if (!holders)
		return work_fail(w, -ENOMEM, "no memory for a list of %" PRId64 " pages", n);
	again = page_pool_holders(pool, (size_t)n, holders);
	if (again < n)
		n = again;
	name_leaks(w->r, holders, n);
	/* If these are the right ones, the pool comes to its end. */
	for (int64_t i = 0; i < n; i++)
		page_pool_put_full_page(pool, holders[i].page, false);
	free(holders);
	return 0;
}
