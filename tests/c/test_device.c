/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices: the one without an IOMMU, a caller's own, and what all of them have in common. */
#include "test.h"

/* What a caller's device was asked, in order: one letter a call. */
struct asked {
	char calls[16];
	void *memory;
	uint64_t dma;
	size_t offset, length;
	enum pp_dma_direction dir;
	char data[8];
	int err;
};

static void ask(struct asked *asked, char call)
{
	size_t n = strlen(asked->calls);

	CHECK(n + 1 < sizeof(asked->calls));
	asked->calls[n] = call;
}

static int my_map(void *ctx, void *memory, size_t length, enum pp_dma_direction dir, uint64_t *dma)
{
	struct asked *asked = ctx;

	ask(asked, 'm');
	asked->memory = memory;
	asked->length = length;
	asked->dir = dir;
	if (!asked->err)
		*dma = 0x1234000;
	return asked->err;
}

static void remember(struct asked *asked, char call, uint64_t dma, size_t offset, size_t length,
		     enum pp_dma_direction dir)
{
	ask(asked, call);
	asked->dma = dma;
	asked->offset = offset;
	asked->length = length;
	asked->dir = dir;
}

static void my_unmap(void *ctx, uint64_t dma, size_t length, enum pp_dma_direction dir)
{
	remember(ctx, 'u', dma, 0, length, dir);
}

static void my_sync_for_device(void *ctx, uint64_t dma, size_t offset, size_t length,
			       enum pp_dma_direction dir)
{
	remember(ctx, 'd', dma, offset, length, dir);
}

static void my_sync_for_cpu(void *ctx, uint64_t dma, size_t offset, size_t length,
			    enum pp_dma_direction dir)
{
	remember(ctx, 'c', dma, offset, length, dir);
}

static int my_write(void *ctx, uint64_t dma, const void *data, size_t length)
{
	struct asked *asked = ctx;

	remember(asked, 'w', dma, 0, length, PP_DMA_FROM_DEVICE);
	memcpy(asked->data, data, length);
	return asked->err;
}

static int my_read(void *ctx, uint64_t dma, void *data, size_t length)
{
	struct asked *asked = ctx;

	remember(asked, 'r', dma, 0, length, PP_DMA_TO_DEVICE);
	memcpy(data, asked->data, length);
	return asked->err;
}

static void my_release(void *ctx)
{
	ask(ctx, '.');
}

static struct pp_device_params all_of(struct asked *asked)
{
	struct pp_device_params params = PP_DEVICE_PARAMS_INIT;

	params.ctx = asked;
	params.map = my_map;
	params.unmap = my_unmap;
	params.sync_for_device = my_sync_for_device;
	params.sync_for_cpu = my_sync_for_cpu;
	params.write = my_write;
	params.read = my_read;
	params.release = my_release;
	return params;
}

TEST(none)
{
	struct pp_device *none = pp_device_none();
	struct pp_iommu_mapping mapping;
	char memory[64] = "as it was", back[64];
	uint64_t dma = 0;

	CHECK_PTR(pp_device_none(), none);
	CHECK_EQ(strcmp(pp_device_name(none), "none"), 0);
	CHECK(!none->syncs_device && !none->syncs_cpu);
	/* An address is what the CPU has. */
	CHECK_OK(none->ops->map(none, memory, sizeof(memory), PP_DMA_FROM_DEVICE, &dma));
	CHECK_EQ(dma, (uintptr_t)memory);
	CHECK_OK(pp_device_write(none, dma + 3, "IT WAS", 6));
	CHECK_EQ(strcmp(memory, "as IT WAS"), 0);
	CHECK_OK(pp_device_read(none, dma, back, sizeof(back)));
	CHECK_EQ(memcmp(back, memory, sizeof(back)), 0);
	none->ops->unmap(none, dma, sizeof(memory), PP_DMA_FROM_DEVICE);
	CHECK_EQ(pp_iommu_mappings(none, 0, 1, &mapping), 0);
	/* It is there for ever. */
	pp_device_get(none);
	for (int i = 0; i < 5; i++)
		pp_device_put(none);
	CHECK_EQ(none->refs, 1);
	CHECK_OK(pp_device_write(none, dma, "still there", 12));
	CHECK_EQ(strcmp(memory, "still there"), 0);
}

TEST(a_callers_own)
{
	struct asked asked = {0};
	struct pp_device_params params = all_of(&asked);
	struct pp_device *device;
	uint64_t dma = 7;
	char back[4] = "";

	params.name = "mine";
	CHECK_OK(pp_device_create(&params, &device));
	memset(&params, 0xff, sizeof(params)); /* it has its own copy */
	CHECK_EQ(strcmp(pp_device_name(device), "mine"), 0);
	CHECK(device->syncs_device && device->syncs_cpu);

	CHECK_OK(device->ops->map(device, back, 4096, PP_DMA_FROM_DEVICE, &dma));
	CHECK_EQ(dma, 0x1234000);
	CHECK_PTR(asked.memory, back);
	CHECK_EQ(asked.length, 4096);
	CHECK_EQ(asked.dir, PP_DMA_FROM_DEVICE);

	device->ops->sync(device, dma, 16, 64, PP_DMA_BIDIRECTIONAL, false);
	CHECK_EQ(strcmp(asked.calls, "md"), 0);
	CHECK_EQ(asked.dma, dma);
	CHECK_EQ(asked.offset, 16);
	CHECK_EQ(asked.length, 64);
	CHECK_EQ(asked.dir, PP_DMA_BIDIRECTIONAL);
	device->ops->sync(device, dma + 1, 17, 65, PP_DMA_FROM_DEVICE, true);
	CHECK_EQ(strcmp(asked.calls, "mdc"), 0);
	CHECK_EQ(asked.dma, dma + 1);
	CHECK_EQ(asked.offset, 17);
	CHECK_EQ(asked.length, 65);

	CHECK_OK(pp_device_write(device, dma + 5, "hey", 4));
	CHECK_EQ(asked.dma, dma + 5);
	CHECK_OK(pp_device_read(device, dma + 6, back, 4));
	CHECK_EQ(asked.dma, dma + 6);
	CHECK_EQ(strcmp(back, "hey"), 0);
	device->ops->unmap(device, dma, 8192, PP_DMA_TO_DEVICE);
	CHECK_EQ(asked.length, 8192);
	CHECK_EQ(asked.dir, PP_DMA_TO_DEVICE);
	CHECK_EQ(strcmp(asked.calls, "mdcwru"), 0);

	/* What the callbacks say is what the caller hears. */
	asked.err = -EIO;
	CHECK_EQ(device->ops->map(device, back, 1, PP_DMA_FROM_DEVICE, &dma), -EIO);
	CHECK_EQ(dma, 0x1234000);
	CHECK_EQ(pp_device_write(device, dma, "", 1), -EIO);
	CHECK_EQ(pp_device_read(device, dma, back, 1), -EIO);
	pp_device_put(device);
	CHECK_EQ(strcmp(asked.calls, "mdcwrumwr."), 0);
}

TEST(the_last_reference_releases)
{
	struct asked asked = {0};
	struct pp_device_params params = all_of(&asked);
	struct pp_device *device;

	CHECK_OK(pp_device_create(&params, &device));
	CHECK_EQ(strcmp(pp_device_name(device), "device"), 0);
	pp_device_get(device);
	pp_device_get(device);
	pp_device_put(device);
	pp_device_put(device);
	CHECK_EQ(strcmp(asked.calls, ""), 0);
	pp_device_put(device);
	CHECK_EQ(strcmp(asked.calls, "."), 0);

	params.release = NULL;
	CHECK_OK(pp_device_create(&params, &device));
	pp_device_put(device);
	CHECK_EQ(strcmp(asked.calls, "."), 0);
}

#define HOLDERS 4
static void *holds_and_drops(void *arg)
{
	struct pp_device *device = arg;

	for (int i = 0; i < 20000; i++) {
		pp_device_get(device);
		pp_device_put(device);
	}
	pp_device_put(device);
	return NULL;
}

TEST(references_from_many_threads)
{
	struct asked asked = {0};
	struct pp_device_params params = all_of(&asked);
	struct pp_device *device;
	pthread_t thread[HOLDERS];

	CHECK_OK(pp_device_create(&params, &device));
	for (int i = 0; i < HOLDERS; i++) {
		pp_device_get(device);
		CHECK_EQ(pthread_create(&thread[i], NULL, holds_and_drops, device), 0);
	}
	pp_device_put(device);
	for (int i = 0; i < HOLDERS; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	CHECK_EQ(strcmp(asked.calls, "."), 0);
}

TEST(what_it_may_leave_out)
{
	struct asked asked = {0};
	struct pp_device_params params = all_of(&asked);
	struct pp_device *device, *untouched = (struct pp_device *)&asked;
	char byte = 0;

	device = untouched;
	params.map = NULL;
	CHECK_FAILS(pp_device_create(&params, &device), EINVAL, "a device needs map and unmap");
	params = all_of(&asked);
	params.unmap = NULL;
	CHECK_FAILS(pp_device_create(&params, &device), EINVAL, "a device needs map and unmap");
	params = all_of(&asked);
	params.size--;
	CHECK_FAILS(pp_device_create(&params, &device), EINVAL, "struct pp_device_params.size is");
	CHECK_PTR(device, untouched);

	/* Either sync without the other. */
	params = all_of(&asked);
	params.sync_for_device = NULL;
	CHECK_OK(pp_device_create(&params, &device));
	CHECK(!device->syncs_device && device->syncs_cpu);
	pp_device_put(device);
	params = all_of(&asked);
	params.sync_for_cpu = NULL;
	params.write = NULL;
	params.read = NULL;
	params.name = "quiet";
	CHECK_OK(pp_device_create(&params, &device));
	CHECK(device->syncs_device && !device->syncs_cpu);
	CHECK_FAILS(pp_device_write(device, 1, &byte, 1), EOPNOTSUPP,
		    "device quiet was made without write");
	CHECK_FAILS(pp_device_read(device, 1, &byte, 1), EOPNOTSUPP,
		    "device quiet was made without read");
	pp_device_put(device);
	CHECK_EQ(strcmp(asked.calls, ".."), 0);
}

TEST(a_long_name_is_cut)
{
	struct asked asked = {0};
	struct pp_device_params params = all_of(&asked);
	struct pp_device *device;

	params.name = "0123456789012345678901234567890123456789";
	CHECK_OK(pp_device_create(&params, &device));
	CHECK_EQ(strcmp(pp_device_name(device), "0123456789012345678901234567890"), 0);
	pp_device_put(device);
}

/* Only a device behind an IOMMU has a driver that can go, and a table to look at. */
TEST(no_iommu_no_unbind)
{
	struct asked asked = {0};
	struct pp_device_params params = all_of(&asked);
	struct pp_iommu_mapping mapping;
	struct pp_device *device;

	params.name = "mine";
	CHECK_OK(pp_device_create(&params, &device));
	CHECK_FAILS((int)pp_device_unbind(device), EINVAL,
		    "device mine is not behind an IOMMU: it cannot be unbound");
	CHECK_FAILS((int)pp_device_unbind(pp_device_none()), EINVAL, "device none is not behind");
	CHECK_EQ(pp_iommu_mappings(device, 0, 1, &mapping), 0);
	pp_device_put(device);
	CHECK_EQ(strcmp(asked.calls, "."), 0);
}
