/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The software IOMMU: which addresses it hands out, what it lets through, and what it says about
 * the rest.
 */
#include "core/iommu.h"
#include "test.h"

#define NOWHERE ((uint64_t)0xdead)
#define LEAF_SIZE ((size_t)PP_IOMMU_TABLE_SIZE << PP_PAGE_SHIFT)

static char memory[4 * MIB] __attribute__((aligned(4096)));

/* What was reported: the last, and how many. */
static struct {
	struct pp_iommu_fault fault;
	char text[256];
	unsigned n;
} heard;

static void hear(void *ctx, const struct pp_iommu_fault *fault)
{
	CHECK_PTR(ctx, &heard);
	heard.fault = *fault;
	snprintf(heard.text, sizeof(heard.text), "%s", fault->text);
	heard.n++;
}

/* A device behind an IOMMU of its own. */
static struct pp_device *make_device(unsigned bits)
{
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu;
	struct pp_device *d;

	params.bits = bits;
	params.fault = hear;
	params.ctx = &heard;
	CHECK_OK(pp_iommu_create(&params, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, "eth0", &d));
	pp_iommu_put(iommu); /* the device keeps it */
	memset(&heard, 0, sizeof(heard));
	return d;
}

static struct pp_iommu_device *inside(struct pp_device *d)
{
	return (struct pp_iommu_device *)d;
}

static uint64_t nodes(struct pp_device *d)
{
	return inside(d)->nr_node;
}

static uint64_t faults(struct pp_device *d)
{
	return pp_iommu_faults(inside(d)->iommu);
}

#define CHECK_TABLE(d)                                                     \
	do {                                                               \
		const char *why_;                                          \
		if (!pp_iommu_is_valid((d), &why_)) {                      \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, why_); \
			test_failed();                                     \
		}                                                          \
	} while (0)

/* The address, or a negative errno and *dma as it was. */
static int64_t map_dir(struct pp_device *d, void *at, size_t length, enum pp_dma_direction dir)
{
	uint64_t dma = NOWHERE;
	int err = d->ops->map(d, at, length, dir, &dma);

	if (err)
		CHECK_EQ(dma, NOWHERE);
	return err ? err : (int64_t)dma;
}

static int64_t map(struct pp_device *d, void *at, size_t length)
{
	return map_dir(d, at, length, PP_DMA_BIDIRECTIONAL);
}

static void unmap(struct pp_device *d, uint64_t dma, size_t length)
{
	d->ops->unmap(d, dma, length, PP_DMA_BIDIRECTIONAL);
}

static void sync_part(struct pp_device *d, uint64_t dma, size_t offset, size_t length)
{
	d->ops->sync(d, dma, offset, length, PP_DMA_BIDIRECTIONAL, false);
}

static size_t mappings(struct pp_device *d)
{
	static struct pp_iommu_mapping all[1 << 16];

	return pp_iommu_mappings(d, 0, PP_ARRAY_SIZE(all), all);
}

/* One report since the last time, and it says this. at: the memory, or NULL. */
#define CHECK_FAULT(d_, op_, why__, dma_, length_, at_)            \
	do {                                                       \
		CHECK_EQ(heard.n, 1);                              \
		CHECK_EQ(heard.fault.op, op_);                     \
		CHECK_EQ(heard.fault.why, why__);                  \
		CHECK_EQ(heard.fault.dma, dma_);                   \
		CHECK_EQ(heard.fault.length, length_);             \
		CHECK_PTR(heard.fault.memory, at_);                \
		CHECK_PTR(heard.fault.device, pp_device_name(d_)); \
		heard.n = 0;                                       \
	} while (0)

static void end_device(struct pp_device *d)
{
	CHECK_EQ(heard.n, 0);
	CHECK_TABLE(d);
	pp_device_put(d);
}

/* ---- addresses --------------------------------------------------------------------------------
 */

TEST(addresses_go_up)
{
	struct pp_device *d = make_device(0);

	CHECK_EQ(map(d, memory, 4096), 0x1000);
	CHECK_EQ(map(d, memory, 4096), 0x2000);
	CHECK_EQ(map(d, memory, 8192), 0x4000);
	CHECK_EQ(map(d, memory, 4096), 0x6000);
	CHECK_EQ(map(d, memory, 16384), 0x8000);
	/* A size is rounded up, and all of it is taken. */
	CHECK_EQ(map(d, memory, 1), 0xc000);
	CHECK_EQ(map(d, memory, 4097), 0xe000);
	CHECK_EQ(map(d, memory, 3 * 4096), 0x10000);
	CHECK_EQ(map(d, memory, 4096), 0x14000);
	CHECK_EQ(map(d, memory, 4 * MIB), 4 * MIB);
	CHECK_EQ(map(d, memory, 4096), 8 * MIB);
	/* What is free again is not used again before the space is through. */
	unmap(d, 0x2000, 4096);
	unmap(d, 8 * MIB, 4096);
	CHECK_EQ(map(d, memory, 4096), 8 * MIB + 4096);
	CHECK_EQ(mappings(d), 10);
	end_device(d);
}

TEST(no_bytes)
{
	struct pp_device *d = make_device(0);
	uint64_t dma;

	CHECK_FAILS(d->ops->map(d, memory, 0, PP_DMA_FROM_DEVICE, &dma), EINVAL, "of no bytes");
	CHECK_EQ(nodes(d), 0);
	end_device(d);
}

TEST(each_device_has_its_own)
{
	struct pp_device *d = make_device(0), *other;

	CHECK_OK(pp_iommu_attach(inside(d)->iommu, "eth1", &other));
	CHECK(d->syncs_device && d->syncs_cpu && other->syncs_device && other->syncs_cpu);
	CHECK_EQ(map(d, memory, 4096), 0x1000);
	CHECK_EQ(map(other, memory + 4096, 4096), 0x1000);
	CHECK_OK(pp_device_write(d, 0x1000, "eth0", 5));
	CHECK_OK(pp_device_write(other, 0x1000, "eth1", 5));
	CHECK_EQ(strcmp(memory, "eth0"), 0);
	CHECK_EQ(strcmp(memory + 4096, "eth1"), 0);
	CHECK_EQ(pp_device_unbind(d), 1);
	CHECK_OK(pp_device_write(other, 0x1000, "ETH1", 5));
	CHECK_EQ(mappings(other), 1);
	/* Faults are the IOMMU's. */
	CHECK_EQ(pp_device_write(d, 0x1000, "", 1), -ENODEV);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_DEVICE_GONE, 0x1000, 1, memory);
	CHECK_EQ(pp_device_write(other, 0x2000, "", 1), -EFAULT);
	CHECK_FAULT(other, PP_IOMMU_WRITE, PP_IOMMU_NEVER, 0x2000, 1, NULL);
	CHECK_EQ(faults(d), 2);
	end_device(d);
	CHECK_EQ(faults(other), 2);
	end_device(other);
}

/* 15 pages: that is all there is in 16 bits, 0 is never used. */
TEST(a_small_space)
{
	struct pp_device *d = make_device(16);

	for (uint64_t i = 1; i < 16; i++)
		CHECK_EQ(map(d, memory + i * 4096, 4096), i << 12);
	CHECK_FAILS((int)map(d, memory, 4096), ENOSPC,
		    "iommu: eth0: address space of 16 bits is used up");
	unmap(d, 0x7000, 4096);
	unmap(d, 0x3000, 4096);
	CHECK_FAILS((int)map(d, memory, 8192), ENOSPC, "used up");
	/* From the end of the space it starts over once, at the first that is free. */
	CHECK_EQ(map(d, memory, 4096), 0x3000);
	CHECK_EQ(map(d, memory, 4096), 0x7000);
	CHECK_EQ(map(d, memory, 4096), -ENOSPC);
	/* One failed and changed nothing: the cursor is behind 0x7000, not at the start. */
	unmap(d, 0x1000, 4096);
	unmap(d, 0x8000, 4096);
	CHECK_EQ(map(d, memory, 4096), 0x8000);
	CHECK_EQ(map(d, memory, 4096), 0x1000);
	CHECK_EQ(mappings(d), 15);
	end_device(d);
}

TEST(larger_ones_skip_what_is_taken)
{
	struct pp_device *d = make_device(16);

	CHECK_EQ(map(d, memory, 65536), -ENOSPC); /* 0 is not to be had */
	CHECK_EQ(map(d, memory, 65537), -ENOSPC);
	CHECK_EQ(map(d, memory, SIZE_MAX), -ENOSPC);
	CHECK_EQ(map(d, memory, 32768), 0x8000);
	CHECK_EQ(map(d, memory, 4096), 0x1000); /* it was at the end */
	CHECK_EQ(map(d, memory, 16384), 0x4000);
	CHECK_EQ(map(d, memory, 8192), 0x2000); /* 0x8000 is taken: once more from the start */
	CHECK_EQ(map(d, memory, 4096), -ENOSPC);
	unmap(d, 0x4000, 16384);
	CHECK_EQ(map(d, memory, 4096), 0x4000);
	CHECK_EQ(map(d, memory, 8192), 0x6000);
	CHECK_EQ(map(d, memory, 4096), 0x5000);
	CHECK_EQ(map(d, memory, 4096), -ENOSPC);
	/* 3 pages take 4: the last is nobody else's, and not mapped either. */
	unmap(d, 0x8000, 32768);
	CHECK_EQ(map(d, memory, 3 * 4096), 0x8000);
	CHECK_EQ(map(d, memory, 16384), 0xc000);
	CHECK_EQ(map(d, memory, 4096), -ENOSPC);
	CHECK_EQ(pp_device_write(d, 0xb000, "x", 1), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, 0xb000, 1, NULL);
	end_device(d);
}

/* Whole leaves that are taken are passed at a step, and not a page further. */
TEST(full_leaves_are_skipped)
{
	struct pp_device *d = make_device(24);

	CHECK_EQ(map(d, memory, LEAF_SIZE), LEAF_SIZE);
	CHECK_EQ(map(d, memory, 2 * LEAF_SIZE), 2 * LEAF_SIZE);
	inside(d)->cursor = LEAF_SIZE + 5 * 4096;
	CHECK_EQ(map(d, memory, 4096), 4 * LEAF_SIZE);
	inside(d)->cursor = LEAF_SIZE;
	CHECK_EQ(map(d, memory, 4096), 4 * LEAF_SIZE + 4096);
	inside(d)->cursor = LEAF_SIZE;
	CHECK_EQ(map(d, memory, LEAF_SIZE), 5 * LEAF_SIZE);
	end_device(d);
}

/* The top of spaces that need a table of 2 to 5 levels. */
TEST(levels)
{
	static const struct {
		unsigned bits, levels;
	} spaces[] = {
		{16, 1}, {21, 1}, {22, 1}, {30, 1}, {31, 2}, {39, 2},
		{40, 3}, {48, 3}, {49, 4}, {56, 4}, {0, 3},
	};

	for (size_t i = 0; i < PP_ARRAY_SIZE(spaces); i++) {
		struct pp_device *d = make_device(spaces[i].bits);
		uint64_t end = 1ull << (spaces[i].bits ? spaces[i].bits : 48);
		unsigned levels = spaces[i].levels;
		char back[16];

		CHECK_EQ(inside(d)->levels, levels);
		inside(d)->cursor = end - 8192;
		CHECK_EQ(map(d, memory, 8192), end - 8192);
		CHECK_EQ(nodes(d), levels); /* a path: the root is the device's */
		CHECK_TABLE(d);
		CHECK_OK(pp_device_write(d, end - 16, "at the very end", 16));
		CHECK_OK(pp_device_read(d, end - 16, back, 16));
		CHECK_EQ(memcmp(memory + 8192 - 16, "at the very end", 16), 0);
		CHECK_EQ(memcmp(back, "at the very end", 16), 0);
		CHECK_EQ(pp_device_write(d, end - 16, "and beyond", 17), -EFAULT);
		CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, end - 16, 17, memory + 8192 - 16);
		CHECK_EQ(pp_device_write(d, end, "beyond", 1), -EFAULT);
		CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_NEVER, end, 1, NULL);
		/* Once more from the start. */
		CHECK_EQ(map(d, memory, 4096), 0x1000);
		CHECK_EQ(nodes(d), end > LEAF_SIZE ? 2 * levels : levels);
		CHECK_EQ(mappings(d), 2);
		unmap(d, end - 8192, 8192);
		unmap(d, 0x1000, 4096);
		CHECK_EQ(mappings(d), 0);
		end_device(d);
	}
}

TEST(parameters)
{
	static const unsigned bad[] = {1, 12, 15, 57, 64, ~0u};
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu = (struct pp_iommu *)&params;
	struct pp_device *d;

	for (size_t i = 0; i < PP_ARRAY_SIZE(bad); i++) {
		params.bits = bad[i];
		CHECK_FAILS(pp_iommu_create(&params, &iommu), EINVAL, "must be 16 to 56");
	}
	params.bits = 0;
	params.size--;
	CHECK_FAILS(pp_iommu_create(&params, &iommu), EINVAL, "struct pp_iommu_params.size is");
	CHECK_PTR(iommu, &params);
	params.size++;
	CHECK_OK(pp_iommu_create(&params, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, NULL, &d));
	CHECK_EQ(strcmp(pp_device_name(d), "device"), 0);
	pp_device_put(d);
	CHECK_EQ(pp_iommu_faults(iommu), 0);
	pp_iommu_put(iommu);
}

/* ---- what goes through ------------------------------------------------------------------------
 */

TEST(any_address_inside)
{
	static char copy[4 * MIB];
	struct pp_device *d = make_device(0);
	uint64_t dma = (uint64_t)map(d, memory, sizeof(memory)), seed = 11;

	memset(memory, 0, sizeof(memory));
	CHECK_EQ(nodes(d), 2 + 2); /* two leaves */
	for (int i = 0; i < 2000; i++) {
		char data[9000], back[9000];
		size_t length = rnd_below(&seed, sizeof(data));
		size_t offset = rnd_below(&seed, sizeof(memory) - length + 1);

		memset(data, i, length);
		CHECK_OK(pp_device_write(d, dma + offset, data, length));
		memcpy(copy + offset, data, length);
		CHECK_OK(pp_device_read(d, dma + offset, back, length));
		CHECK_EQ(memcmp(back, data, length), 0);
	}
	CHECK_EQ(memcmp(memory, copy, sizeof(memory)), 0);
	/* From the first byte to the last, and none of the next. */
	CHECK_OK(pp_device_read(d, dma, copy, sizeof(copy)));
	CHECK_OK(pp_device_read(d, dma + sizeof(memory) - 1, copy, 1));
	CHECK_EQ(pp_device_read(d, dma + sizeof(memory), copy, 1), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_READ, PP_IOMMU_NEVER, dma + sizeof(memory), 1, NULL);
	end_device(d);
}

/* Memory need not be whole pages: what counts is its length, to the byte. */
TEST(odd_lengths)
{
	struct pp_device *d = make_device(0);
	char *odd = memory + 100;
	uint64_t dma = (uint64_t)map(d, odd, 5000);

	memset(memory, '-', 8192);
	CHECK_EQ(dma, 0x2000);
	CHECK_OK(pp_device_write(d, dma + 4990, "0123456789", 10));
	CHECK_EQ(memcmp(odd + 4990, "0123456789-", 11), 0);
	CHECK_EQ(pp_device_write(d, dma + 4990, "0123456789A", 11), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, dma + 4990, 11, odd + 4990);
	CHECK_EQ(odd[5000], '-');
	CHECK_OK(pp_device_write(d, dma + 5000, NULL, 0));
	CHECK_EQ(pp_device_write(d, dma + 5000, "x", 1), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, dma + 5000, 1, NULL);
	CHECK_EQ(pp_device_write(d, dma + 5001, NULL, 0), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, dma + 5001, 0, NULL);
	unmap(d, dma, 8192);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_LENGTH, dma, 8192, odd);
	unmap(d, dma, 5000);
	CHECK_EQ(mappings(d), 0);
	end_device(d);
}

TEST(directions)
{
	struct pp_device *d = make_device(0);
	uint64_t to = (uint64_t)map_dir(d, memory, 4096, PP_DMA_TO_DEVICE);
	uint64_t from = (uint64_t)map_dir(d, memory + 4096, 4096, PP_DMA_FROM_DEVICE);
	uint64_t both = (uint64_t)map_dir(d, memory + 8192, 4096, PP_DMA_BIDIRECTIONAL);
	char back[4] = "me";

	strcpy(memory, "to");
	strcpy(memory + 4096, "??");
	CHECK_OK(pp_device_read(d, to, back, 3));
	CHECK_EQ(strcmp(back, "to"), 0);
	CHECK_EQ(pp_device_write(d, to, "xx", 3), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_DIRECTION, to, 3, memory);
	CHECK(strstr(heard.text, "refused: the mapping is for the other direction; it is memory"));
	CHECK_EQ(strcmp(memory, "to"), 0);
	CHECK_OK(pp_device_write(d, from, "in", 3));
	CHECK_EQ(strcmp(memory + 4096, "in"), 0);
	CHECK_EQ(pp_device_read(d, from + 1, back, 2), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_READ, PP_IOMMU_DIRECTION, from + 1, 2, memory + 4097);
	CHECK_EQ(strcmp(back, "to"), 0);
	CHECK_OK(pp_device_write(d, both, "io", 3));
	CHECK_OK(pp_device_read(d, both, back, 3));
	CHECK_EQ(strcmp(back, "io"), 0);
	end_device(d);
}

TEST(syncs)
{
	struct pp_device *d = make_device(0);
	uint64_t dma = (uint64_t)map(d, memory, 8192);

	CHECK_EQ(map(d, memory + 8192, 8192), dma + 8192);
	sync_part(d, dma, 0, 8192);
	sync_part(d, dma, 8191, 1);
	sync_part(d, dma, 8192, 0);
	d->ops->sync(d, dma, 4000, 200, PP_DMA_FROM_DEVICE, true);
	CHECK_EQ(heard.n, 0);
	sync_part(d, dma, 0, 8193);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_LENGTH, dma, 8193, memory);
	sync_part(d, dma, 8191, 2);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_LENGTH, dma + 8191, 2, memory + 8191);
	d->ops->sync(d, dma, 10000, 1, PP_DMA_FROM_DEVICE, true); /* in the next mapping */
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_LENGTH, dma + 10000, 1, NULL);
	unmap(d, dma, 8192);
	sync_part(d, dma, 4096, 64);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_UNMAPPED, dma + 4096, 64, memory + 4096);
	sync_part(d, 1ull << 40, 0, 64);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_NEVER, 1ull << 40, 64, NULL);
	end_device(d);
}

/* ---- what is refused --------------------------------------------------------------------------
 */

TEST(after_unmap)
{
	struct pp_device *d = make_device(0);
	uint64_t dma = (uint64_t)map(d, memory, 8192);
	char back = 'b', text[256];

	memory[0] = 'a';
	unmap(d, dma, 8192);
	CHECK_FAILS(pp_device_write(d, dma, "x", 1), EFAULT, "iommu: eth0: write of 1 bytes at");
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_UNMAPPED, dma, 1, memory);
	snprintf(text, sizeof(text),
		 "iommu: eth0: write of 1 bytes at 0x2000 refused: it was unmapped; it was memory "
		 "0x%" PRIxPTR,
		 (uintptr_t)memory);
	CHECK_EQ(strcmp(heard.text, text), 0);
	CHECK_EQ(strcmp(page_pool_last_error(), text), 0);
	CHECK_EQ(memory[0], 'a');
	CHECK_EQ(pp_device_read(d, dma + 5000, &back, 1), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_READ, PP_IOMMU_UNMAPPED, dma + 5000, 1, memory + 5000);
	CHECK_EQ(back, 'b');
	unmap(d, dma, 8192);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_UNMAPPED, dma, 8192, memory);
	CHECK_EQ(faults(d), 3);
	/* The memory may be mapped again, elsewhere. */
	CHECK_EQ(map(d, memory, 8192), dma + 8192);
	CHECK_EQ(pp_device_write(d, dma, "x", 1), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_UNMAPPED, dma, 1, memory);
	CHECK_OK(pp_device_write(d, dma + 8192, "x", 1));
	end_device(d);
}

TEST(never)
{
	struct pp_device *d = make_device(0);
	char byte;

	CHECK_FAILS(pp_device_read(d, 0x3000, &byte, 1), EFAULT,
		    "iommu: eth0: read of 1 bytes at 0x3000 refused: nothing known was ever "
		    "mapped there");
	CHECK_FAULT(d, PP_IOMMU_READ, PP_IOMMU_NEVER, 0x3000, 1, NULL);
	CHECK(!strstr(heard.text, "memory"));
	CHECK_EQ(map(d, memory, 4096), 0x1000);
	unmap(d, 0x2000, 4096);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_NEVER, 0x2000, 4096, NULL);
	CHECK_EQ(pp_device_write(d, 0, &byte, 1), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_NEVER, 0, 1, NULL);
	CHECK_EQ(pp_device_write(d, 0, &byte, 0), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_NEVER, 0, 0, NULL);
	end_device(d);
}

/* It crosses the end of its mapping: nothing is written, whatever comes next. */
TEST(beyond_the_mapping)
{
	struct pp_device *d = make_device(0);
	uint64_t dma = (uint64_t)map(d, memory, 4096);
	static char long_one[8192];

	CHECK_EQ(map(d, memory + 4096, 4096), dma + 4096);
	memset(memory, '-', 8192);
	CHECK_FAILS(pp_device_write(d, dma + 4095, "xy", 2), EFAULT,
		    "refused: it goes beyond the mapping; it is memory 0x");
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, dma + 4095, 2, memory + 4095);
	CHECK_EQ(pp_device_write(d, dma, long_one, 4097), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, dma, 4097, memory);
	CHECK_EQ(pp_device_read(d, dma, long_one, 8192), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_READ, PP_IOMMU_LENGTH, dma, 8192, memory);
	CHECK_EQ(long_one[0], 0);
	for (int i = 0; i < 8192; i++)
		CHECK_EQ(memory[i], '-');
	end_device(d);
}

TEST(unmap_is_all_of_it)
{
	struct pp_device *d = make_device(0);
	uint64_t dma = (uint64_t)map(d, memory, 16384);

	unmap(d, dma, 4096);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_LENGTH, dma, 4096, memory);
	CHECK(strstr(heard.text, "that is not all of the mapping; it is memory 0x"));
	unmap(d, dma, 32768);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_LENGTH, dma, 32768, memory);
	unmap(d, dma, 0);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_LENGTH, dma, 0, memory);
	/* Its last part, and with the right length from the wrong place. */
	unmap(d, dma + 8192, 8192);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_LENGTH, dma + 8192, 8192, memory + 8192);
	unmap(d, dma + 8192, 16384);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_LENGTH, dma + 8192, 16384, memory + 8192);
	/* The mapping stays. */
	CHECK_EQ(mappings(d), 1);
	CHECK_OK(pp_device_write(d, dma + 16383, "x", 1));
	unmap(d, dma, 16384);
	CHECK_EQ(mappings(d), 0);
	end_device(d);
}

/* No sum of address, offset and length is trusted to fit into 64 bits. */
TEST(no_overflow)
{
	struct pp_device *d = make_device(56);
	uint64_t dma = (uint64_t)map(d, memory, 8192), top = UINT64_MAX;
	char byte = 'x';

	memory[0] = '-';
	for (uint64_t back = 0; back < 3; back++) {
		uint64_t at = top - back * 4095;

		CHECK_EQ(pp_device_write(d, at, &byte, 8192), -EFAULT);
		CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_NEVER, at, 8192, NULL);
		CHECK_EQ(pp_device_read(d, at, &byte, SIZE_MAX), -EFAULT);
		CHECK_FAULT(d, PP_IOMMU_READ, PP_IOMMU_NEVER, at, SIZE_MAX, NULL);
		unmap(d, at, 4096);
		CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_NEVER, at, 4096, NULL);
	}
	for (uint64_t lap = 1; lap < 256; lap++) /* the mapping's address and bits beyond 56 */
		CHECK_EQ(pp_device_write(d, dma + (lap << 56), &byte, 1), -EFAULT);
	CHECK_EQ(heard.n, 255);
	CHECK_EQ(heard.fault.why, PP_IOMMU_NEVER);
	heard.n = 0;
	CHECK_EQ(pp_device_write(d, dma + 1, &byte, SIZE_MAX), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, dma + 1, SIZE_MAX, memory + 1);
	CHECK_EQ(pp_device_write(d, dma + 1, &byte, 0 - dma), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_LENGTH, dma + 1, 0 - dma, memory + 1);
	unmap(d, dma, SIZE_MAX);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_LENGTH, dma, SIZE_MAX, memory);
	sync_part(d, dma, SIZE_MAX, 2);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_LENGTH, dma + SIZE_MAX, 2, NULL);
	sync_part(d, dma, 1, SIZE_MAX);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_LENGTH, dma + 1, SIZE_MAX, memory + 1);
	sync_part(d, dma + 4096, 0 - (uint64_t)4096, 64); /* back to its start */
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_LENGTH, dma, 64, NULL);
	sync_part(d, top, SIZE_MAX, SIZE_MAX);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_NEVER, top - 1, SIZE_MAX, NULL);
	CHECK_EQ(memory[0], '-');
	CHECK_EQ(mappings(d), 1);
	end_device(d);
}

/* ---- unbind -----------------------------------------------------------------------------------
 */

TEST(unbind)
{
	struct pp_device *d = make_device(0);
	uint64_t dma = (uint64_t)map(d, memory, 4096), second = (uint64_t)map(d, memory, 8192);
	char back = 'b', text[256];

	memory[0] = 'a';
	CHECK_EQ(map(d, memory, 4 * MIB), 4 * MIB);
	unmap(d, dma, 4096);
	CHECK_EQ(pp_device_unbind(d), 2);
	CHECK_EQ(mappings(d), 0);
	CHECK_TABLE(d);
	/* All that comes late is refused, with the memory that it was about. */
	unmap(d, second, 8192);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_DEVICE_GONE, second, 8192, memory);
	snprintf(text, sizeof(text),
		 "iommu: eth0: unmap of 8192 bytes at 0x2000 refused: the device is gone; it was "
		 "memory 0x%" PRIxPTR,
		 (uintptr_t)memory);
	CHECK_EQ(strcmp(heard.text, text), 0);
	unmap(d, second, 8192); /* and again: that one changed nothing */
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_DEVICE_GONE, second, 8192, memory);
	unmap(d, dma, 4096);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_DEVICE_GONE, dma, 4096, memory);
	unmap(d, 0x9000, 4096);
	CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_DEVICE_GONE, 0x9000, 4096, NULL);
	sync_part(d, 4 * MIB, 3 * MIB, 64);
	CHECK_FAULT(d, PP_IOMMU_SYNC, PP_IOMMU_DEVICE_GONE, 7 * MIB, 64, memory + 3 * MIB);
	CHECK_FAILS(pp_device_write(d, second, "x", 1), ENODEV, "the device is gone");
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_DEVICE_GONE, second, 1, memory);
	CHECK_EQ(pp_device_read(d, second, &back, 1), -ENODEV);
	CHECK_FAULT(d, PP_IOMMU_READ, PP_IOMMU_DEVICE_GONE, second, 1, memory);
	CHECK_EQ(memory[0], 'a');
	CHECK_EQ(back, 'b');
	CHECK_EQ(map(d, memory, 4096), -ENODEV);
	CHECK_FAULT(d, PP_IOMMU_MAP, PP_IOMMU_DEVICE_GONE, 0, 4096, memory);
	snprintf(text, sizeof(text),
		 "iommu: eth0: map of 4096 bytes refused: the device is gone; it is memory "
		 "0x%" PRIxPTR,
		 (uintptr_t)memory);
	CHECK_EQ(strcmp(heard.text, text), 0);
	CHECK_EQ(strcmp(page_pool_last_error(), text), 0);
	CHECK_EQ(faults(d), 8);
	CHECK_FAILS((int)pp_device_unbind(d), ENODEV, "device eth0 was unbound already");
	CHECK_EQ(faults(d), 8);
	end_device(d);
}

/* However many there were. */
TEST(unbind_remembers_all)
{
	struct pp_device *d = make_device(0);
	const uint64_t n = 100 * PP_IOMMU_TABLE_SIZE; /* 100 leaves */

	for (uint64_t i = 1; i < n; i++)
		CHECK_EQ(map(d, memory + i % 1024 * 4096, 4096), i << 12);
	CHECK_EQ(mappings(d), n - 1);
	CHECK_EQ(pp_device_unbind(d), n - 1);
	for (uint64_t i = 1; i < n; i++) {
		unmap(d, i << 12, 4096);
		CHECK_FAULT(d, PP_IOMMU_UNMAP, PP_IOMMU_DEVICE_GONE, i << 12, 4096,
			    memory + i % 1024 * 4096);
	}
	end_device(d);
}

/* ---- what the table remembers, and forgets ----------------------------------------------------
 */

/* Is something known of that address? */
static bool known(struct pp_device *d, uint64_t dma)
{
	CHECK_EQ(pp_device_write(d, dma, "x", 1), -EFAULT);
	CHECK_EQ(heard.n, 1);
	heard.n = 0;
	CHECK(heard.fault.why == PP_IOMMU_UNMAPPED || heard.fault.why == PP_IOMMU_NEVER);
	CHECK_EQ(!heard.fault.memory, heard.fault.why == PP_IOMMU_NEVER);
	return heard.fault.why == PP_IOMMU_UNMAPPED;
}

TEST(forgets_the_oldest_leaf)
{
	struct pp_device *d = make_device(0);
	uint64_t leaf = LEAF_SIZE;

	/* A mapping fills a leaf, and the cursor stands in the next. */
	for (uint64_t i = 1; i <= PP_IOMMU_IDLE_LEAVES; i++) {
		CHECK_EQ(map(d, memory, leaf), i * leaf);
		unmap(d, i * leaf, leaf);
		CHECK_EQ(nodes(d), 2 + i);
		CHECK_TABLE(d);
	}
	CHECK(known(d, leaf) && known(d, 2 * leaf - 1));
	CHECK_EQ(map(d, memory, leaf), 65 * leaf);
	CHECK(known(d, leaf));
	unmap(d, 65 * leaf, leaf);
	CHECK(!known(d, leaf) && !known(d, 2 * leaf - 1));
	CHECK(known(d, 2 * leaf));
	CHECK(known(d, 65 * leaf));
	CHECK_EQ(nodes(d), 2 + PP_IOMMU_IDLE_LEAVES);
	end_device(d);
}

/* By the time at which it became idle, not by address. */
TEST(forgets_in_the_order_of_unmaps)
{
	struct pp_device *d = make_device(0);
	uint64_t leaf = LEAF_SIZE;

	for (uint64_t i = 1; i <= 66; i++)
		CHECK_EQ(map(d, memory, leaf), i * leaf);
	unmap(d, 40 * leaf, leaf);
	for (uint64_t i = 66; i > 0; i--)
		if (i != 40)
			unmap(d, i * leaf, leaf);
	CHECK(!known(d, 40 * leaf));
	CHECK(!known(d, 66 * leaf));
	CHECK(known(d, 65 * leaf) && known(d, leaf));
	end_device(d);
}

/* Where the cursor is, nothing is forgotten: that leaf is in use all the time. */
TEST(the_cursors_leaf_stays)
{
	struct pp_device *d = make_device(0);
	uint64_t leaf = LEAF_SIZE;

	for (uint64_t i = 1; i < PP_IOMMU_TABLE_SIZE - 1; i++) {
		CHECK_EQ(map(d, memory, 4096), i << 12);
		unmap(d, i << 12, 4096);
		CHECK_EQ(inside(d)->nr_idle, 0);
	}
	CHECK_EQ(nodes(d), 3);
	CHECK(known(d, 0x1000));
	/* The last page of it: the cursor has moved on, but the page is mapped. */
	CHECK_EQ(map(d, memory, 4096), leaf - 4096);
	CHECK_EQ(inside(d)->nr_idle, 0);
	unmap(d, leaf - 4096, 4096);
	CHECK_EQ(inside(d)->nr_idle, 1);
	CHECK(known(d, 0x1000) && known(d, leaf - 4096));
	/* A leaf without mappings that a larger mapping jumps out of. */
	CHECK_EQ(map(d, memory, 4096), leaf);
	unmap(d, leaf, 4096);
	CHECK_EQ(inside(d)->nr_idle, 1);
	CHECK_EQ(map(d, memory, 4 * MIB), 4 * MIB);
	CHECK_EQ(inside(d)->nr_idle, 2);
	CHECK_TABLE(d);
	for (uint64_t at = 8 * MIB; at < 8 * MIB + 63 * leaf; at += leaf) {
		CHECK_EQ(map(d, memory, leaf), at);
		unmap(d, at, leaf);
	}
	CHECK(!known(d, 0x1000));
	CHECK(known(d, leaf));
	end_device(d);
}

/* Mapped again after the space was through: it has nothing to forget. */
TEST(an_idle_leaf_is_used_again)
{
	struct pp_device *d = make_device(22); /* two leaves */
	uint64_t leaf = LEAF_SIZE;

	CHECK_EQ(map(d, memory, leaf), leaf);
	unmap(d, leaf, leaf);
	CHECK_EQ(inside(d)->nr_idle, 1);
	CHECK_EQ(map(d, memory + 8192, leaf), leaf);
	CHECK_EQ(inside(d)->nr_idle, 0);
	CHECK_TABLE(d);
	CHECK_EQ(map(d, memory, 4096), 0x1000);
	unmap(d, leaf, leaf);
	/* Part of what is remembered gets a new meaning, the rest keeps its own. */
	inside(d)->cursor = leaf;
	CHECK_EQ(map(d, memory, 8192), leaf);
	CHECK_EQ(pp_device_write(d, leaf + 8192, "x", 1), -EFAULT);
	CHECK_FAULT(d, PP_IOMMU_WRITE, PP_IOMMU_UNMAPPED, leaf + 8192, 1, memory + 16384);
	CHECK_OK(pp_device_write(d, leaf + 8191, "x", 1));
	end_device(d);
}

/* Tables above the leaves go with their last leaf. */
TEST(forgets_upper_tables)
{
	struct pp_device *d = make_device(56);
	uint64_t top = 0;

	for (uint64_t i = 1; i <= 3 * PP_IOMMU_IDLE_LEAVES; i++) {
		uint64_t at = i << 40; /* of its own from the second level down */

		inside(d)->cursor = at;
		CHECK_EQ(map(d, memory, 4096), at);
		inside(d)->cursor = at + LEAF_SIZE;
		unmap(d, at, 4096);
		CHECK_TABLE(d);
		if (nodes(d) > top)
			top = nodes(d);
	}
	/* 64 leaves with two tables each of their own, and one above them. */
	CHECK_EQ(top, PP_IOMMU_IDLE_LEAVES * 3 + 1);
	CHECK_EQ(nodes(d), top);
	CHECK(!known(d, 1ull << 40));
	CHECK(known(d, 3ull * PP_IOMMU_IDLE_LEAVES << 40));
	end_device(d);
}

/* A million mappings, some of them for long, four times through the space. */
TEST(memory_stays_flat)
{
	enum {
		LIVE = 300
	};
	struct pp_device *d = make_device(30);
	int64_t live[LIVE] = {0};
	uint64_t top = 0, seed = 3;

	for (int i = 0; i < 1000000; i++) {
		size_t k = rnd_below(&seed, LIVE);

		if (live[k])
			unmap(d, (uint64_t)live[k], 4096);
		live[k] = map(d, memory, 4096);
		CHECK(live[k] > 0);
		if (nodes(d) > top)
			top = nodes(d);
	}
	CHECK_EQ(heard.n, 0);
	CHECK_EQ(mappings(d), LIVE);
	/* One step through 262144 pages leaves 300 mappings behind: they are in the last few
	 * leaves, and the others come and go. */
	CHECK(top <= PP_IOMMU_IDLE_LEAVES + 20);
	for (int i = 0; i < LIVE; i++)
		unmap(d, (uint64_t)live[i], 4096);
	CHECK(nodes(d) <= PP_IOMMU_IDLE_LEAVES + 1);
	end_device(d);
}

/* ---- the table as others see it -------------------------------------------------------------- */

TEST(listed_by_address)
{
	struct pp_device *d = make_device(56);
	struct pp_iommu_mapping m[8];

	CHECK_EQ(pp_iommu_mappings(d, 0, 8, m), 0);
	map_dir(d, memory, 4096, PP_DMA_FROM_DEVICE);
	map_dir(d, memory + 4096, 3 * 4096, PP_DMA_TO_DEVICE);
	CHECK_EQ(map(d, memory, 4 * MIB), 4 * MIB);
	inside(d)->cursor = 1ull << 55;
	CHECK_EQ(map(d, memory, 1), 1ll << 55);
	CHECK_EQ(map(d, memory, 2), (1ll << 55) + 4096);
	unmap(d, (1ull << 55) + 4096, 2); /* remembered, not listed */

	memset(m, 0xff, sizeof(m));
	CHECK_EQ(pp_iommu_mappings(d, 0, 8, m), 4);
	CHECK_EQ(m[0].dma, 0x1000);
	CHECK_PTR(m[0].memory, memory);
	CHECK_EQ(m[0].length, 4096);
	CHECK_EQ(m[0].dir, PP_DMA_FROM_DEVICE);
	CHECK_EQ(m[1].dma, 0x4000);
	CHECK_PTR(m[1].memory, memory + 4096);
	CHECK_EQ(m[1].length, 3 * 4096);
	CHECK_EQ(m[1].dir, PP_DMA_TO_DEVICE);
	CHECK_EQ(m[2].dma, 4 * MIB);
	CHECK_EQ(m[2].length, 4 * MIB);
	CHECK_EQ(m[2].dir, PP_DMA_BIDIRECTIONAL);
	CHECK_EQ(m[3].dma, 1ull << 55);
	CHECK_EQ(m[3].length, 1);

	/* From the first at or after an address, so many and no more. */
	memset(m, 0xff, sizeof(m));
	CHECK_EQ(pp_iommu_mappings(d, 0x1000, 2, m), 2);
	CHECK_EQ(m[0].dma, 0x1000);
	CHECK_EQ(m[1].dma, 0x4000);
	CHECK_EQ(m[2].dma, UINT64_MAX);
	CHECK_EQ(pp_iommu_mappings(d, 0x1001, 1, m), 1);
	CHECK_EQ(m[0].dma, 0x4000);
	CHECK_EQ(pp_iommu_mappings(d, 5 * MIB, 8, m), 1);
	CHECK_EQ(m[0].dma, 1ull << 55);
	CHECK_EQ(pp_iommu_mappings(d, (1ull << 55) + 1, 8, m), 0);
	CHECK_EQ(pp_iommu_mappings(d, UINT64_MAX, 8, m), 0);
	CHECK_EQ(pp_iommu_mappings(d, 0, 0, NULL), 0);
	end_device(d);
}

/* ---- against the rules, written down as simply as can be ------------------------------------- */

#define SIMPLE_PAGES 1024u /* 22 bits */

static struct {
	uint64_t cursor; /* in pages, like all here */
	bool taken[SIMPLE_PAGES];
	struct {
		uint64_t at, span;
		size_t length;
		char *memory;
	} mapping[SIMPLE_PAGES];
	size_t n;
} simple;

static int64_t simple_map(char *at_memory, size_t length)
{
	uint64_t pages = (length + 4095) / 4096, span = 1, at;

	while (span < pages)
		span *= 2;
	for (int lap = 0; lap < 2; lap++) {
		uint64_t from = lap ? 1 : simple.cursor;

		for (at = (from + span - 1) / span * span; at + span <= SIMPLE_PAGES; at += span) {
			uint64_t i = 0;

			while (i < span && !simple.taken[at + i])
				i++;
			if (i < span)
				continue;
			memset(simple.taken + at, true, span);
			simple.cursor = at + span;
			simple.mapping[simple.n].at = at;
			simple.mapping[simple.n].span = span;
			simple.mapping[simple.n].length = length;
			simple.mapping[simple.n++].memory = at_memory;
			return (int64_t)at * 4096;
		}
	}
	return -ENOSPC;
}

TEST(as_the_rules_say)
{
	struct pp_device *d = make_device(22);
	uint64_t seed = 2024;
	unsigned refused = 0;

	memset(&simple, 0, sizeof(simple));
	simple.cursor = 1;
	for (int step = 0; step < 60000; step++) {
		/* Fills up, and empties again. */
		bool fill = rnd_below(&seed, 100) < (step / 3000 % 2 ? 35 : 65);

		if (fill || !simple.n) {
			size_t length = 1 + rnd_below(&seed, 4096ull << rnd_below(&seed, 8));
			char *at = memory + rnd_below(&seed, 2 * MIB);
			int64_t dma = map(d, at, length);

			CHECK_EQ(dma, simple_map(at, length));
			refused += dma == -ENOSPC;
		} else {
			size_t k = rnd_below(&seed, simple.n);

			unmap(d, simple.mapping[k].at * 4096, simple.mapping[k].length);
			memset(simple.taken + simple.mapping[k].at, false, simple.mapping[k].span);
			simple.mapping[k] = simple.mapping[--simple.n];
		}
		if (simple.n) {
			size_t k = rnd_below(&seed, simple.n);
			size_t offset = rnd_below(&seed, simple.mapping[k].length);
			char mark = (char)step;

			CHECK_OK(
				pp_device_write(d, simple.mapping[k].at * 4096 + offset, &mark, 1));
			CHECK_EQ(simple.mapping[k].memory[offset], mark);
		}
		CHECK_EQ(heard.n, 0);
		if (step % 256)
			continue;
		CHECK_TABLE(d);
		CHECK_EQ(mappings(d), simple.n);
	}
	CHECK(refused > 100);
	end_device(d);
}

/* ---- reports ----------------------------------------------------------------------------------
 */

static char logged[256];

static void log_it(void *ctx, const char *text)
{
	snprintf(logged, sizeof(logged), "%s", text);
}

TEST(logged_by_default)
{
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu;
	struct pp_device *d;

	page_pool_set_log(log_it, NULL);
	CHECK_OK(pp_iommu_create(&params, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, "wlan0", &d));
	CHECK_EQ(pp_device_write(d, 0x7000, "x", 1), -EFAULT);
	CHECK_EQ(strcmp(logged, "iommu: wlan0: write of 1 bytes at 0x7000 refused: nothing known "
				"was ever mapped there"),
		 0);
	page_pool_set_log(NULL, NULL);
	CHECK_EQ(pp_iommu_faults(iommu), 1);
	pp_device_put(d);
	pp_iommu_put(iommu);
}

/* No lock is held: whoever is told may use the device, and fail. */
static void look_around(void *ctx, const struct pp_iommu_fault *fault)
{
	struct pp_device *d = *(struct pp_device **)ctx;
	struct pp_iommu_mapping m;
	uint64_t dma;

	if (fault->length == 77)
		return;
	CHECK_EQ(faults(d), 1);
	CHECK_EQ(pp_iommu_mappings(d, 0, 1, &m), 1);
	CHECK_OK(d->ops->map(d, memory, 4096, PP_DMA_FROM_DEVICE, &dma));
	d->ops->unmap(d, dma, 4096, PP_DMA_FROM_DEVICE);
	CHECK_EQ(pp_device_write(d, dma, memory, 77), -EFAULT);
	CHECK_EQ(pp_device_unbind(d), 1);
}

TEST(reported_without_a_lock)
{
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu;
	struct pp_device *d;

	params.fault = look_around;
	params.ctx = &d;
	CHECK_OK(pp_iommu_create(&params, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, "eth0", &d));
	CHECK_EQ(map(d, memory, 4096), 0x1000);
	/* The reason is that of this call, not of one that the callback made. */
	CHECK_FAILS(pp_device_write(d, 0x1fff, "xy", 2), EFAULT, "write of 2 bytes at 0x1fff");
	CHECK_EQ(pp_iommu_faults(iommu), 2);
	pp_device_put(d);
	pp_iommu_put(iommu);
}

/* ---- threads ----------------------------------------------------------------------------------
 */

struct race {
	struct pp_device *device;
	uint64_t dma; /* mapped at the moment, or not any more; atomic, as all of these */
	bool stop;
	uint64_t through; /* writes; by the thread that writes */
	uint64_t refused;
};

static void quiet(void *ctx, const struct pp_iommu_fault *fault)
{
}

static void *writes_on(void *arg)
{
	struct race *race = arg;
	char frame[2048];

	memset(frame, 'w', sizeof(frame));
	/* relaxed: nothing but the device's lock shall order this with the other thread. */
	while (!pp_load_relaxed(&race->stop)) {
		int err = pp_device_write(race->device, pp_load_relaxed(&race->dma) + 512, frame,
					  sizeof(frame));

		if (err)
			CHECK(err == -EFAULT || err == -ENODEV);
		pp_inc_single_writer(err ? &race->refused : &race->through);
	}
	return NULL;
}

static struct pp_device *make_race(struct race *race, pthread_t *thread)
{
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu;

	params.fault = quiet;
	CHECK_OK(pp_iommu_create(&params, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, "eth0", &race->device));
	pp_iommu_put(iommu);
	CHECK_EQ(pthread_create(thread, NULL, writes_on, race), 0);
	return race->device;
}

/* Until the device has written another n frames. */
static void wait_for_writes(struct race *race, uint64_t n)
{
	uint64_t enough = pp_load_relaxed(&race->through) + n;

	while (pp_load_relaxed(&race->through) < enough)
		sched_yield();
}

/* The owner of the memory uses it as its own once unmap has returned: plain loads and stores, which
 * ThreadSanitizer would see race with a late copy, and a late copy would overwrite. */
static void mine_again(char *page)
{
	memset(page, 'm', 4096);
	for (int look = 0; look < 3; look++) {
		for (int i = 0; i < 4096; i++)
			CHECK_EQ(page[i], 'm');
		sched_yield();
	}
}

TEST(no_write_after_unmap)
{
	struct race race = {.dma = 0x1000};
	pthread_t thread;
	struct pp_device *d = make_race(&race, &thread);
	uint64_t faulted;

	for (int round = 0; round < 1000; round++) {
		char *page = memory + round % 4 * 4096;
		int64_t dma = map_dir(d, page, 4096, PP_DMA_FROM_DEVICE);

		CHECK(dma > 0);
		pp_store_relaxed(&race.dma, (uint64_t)dma);
		if (round % 2)
			wait_for_writes(&race, 1);
		d->ops->unmap(d, (uint64_t)dma, 4096, PP_DMA_FROM_DEVICE);
		mine_again(page);
	}
	pp_store_relaxed(&race.stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	faulted = faults(d);
	CHECK(race.through >= 500);
	CHECK_EQ(faulted, race.refused);
	CHECK_TABLE(d);
	pp_device_put(d);
}

TEST(no_write_after_unbind)
{
	for (uint64_t round = 0; round < 100; round++) {
		struct race race = {.dma = 0x1000};
		pthread_t thread;
		struct pp_device *d = make_race(&race, &thread);

		CHECK_EQ(map(d, memory, 4096), 0x1000);
		wait_for_writes(&race, round % 10);
		CHECK_EQ(pp_device_unbind(d), 1);
		mine_again(memory);
		pp_store_relaxed(&race.stop, true);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		CHECK_TABLE(d);
		pp_device_put(d);
	}
}

#define MAPPERS 3

static void *maps_and_unmaps(void *arg)
{
	struct pp_device *d = arg;
	uint64_t at[16] = {0};

	for (int i = 0; i < 8000; i++) {
		uint64_t *mine = &at[i % 16];
		size_t length = 4096u << (i % 3);
		char data[2];

		if (*mine)
			d->ops->unmap(d, *mine & ~7ull, 4096u << (*mine & 7), PP_DMA_BIDIRECTIONAL);
		CHECK_OK(d->ops->map(d, &data, length, PP_DMA_BIDIRECTIONAL, mine));
		CHECK_OK(pp_device_write(d, *mine, "a", 2));
		CHECK_EQ(data[0], 'a');
		*mine |= (unsigned)i % 3;
	}
	for (int i = 0; i < 16; i++)
		d->ops->unmap(d, at[i] & ~7ull, 4096u << (at[i] & 7), PP_DMA_BIDIRECTIONAL);
	return NULL;
}

TEST(many_map_at_once)
{
	struct pp_device *d = make_device(24);
	pthread_t thread[MAPPERS];

	for (int i = 0; i < MAPPERS; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, maps_and_unmaps, d), 0);
	for (int i = 0; i < MAPPERS; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	CHECK_EQ(mappings(d), 0);
	end_device(d);
}
