/* SPDX-License-Identifier: BSD-2-Clause */
/* The NIC: what the wire brings goes into the posted buffers, in order, or is dropped and said so.
 */
#include "test.h"

static struct pp_nic *make_nic(struct pp_device *device, unsigned slots)
{
	struct pp_nic_params params = PP_NIC_PARAMS_INIT;
	struct pp_nic *nic;

	params.device = device;
	params.slots = slots;
	CHECK_OK(pp_nic_create(&params, &nic));
	return nic;
}

/* Without an IOMMU: an address is what the CPU has. */
static int post(struct pp_nic *nic, void *buffer, size_t length)
{
	return pp_nic_post(nic, (uintptr_t)buffer, length, buffer);
}

#define CHECK_POLL(nic, buffer, bytes)                         \
	do {                                                   \
		void *cookie_ = NULL;                          \
		int64_t length_ = 0;                           \
		CHECK(pp_nic_poll((nic), &cookie_, &length_)); \
		CHECK_PTR(cookie_, buffer);                    \
		CHECK_EQ(length_, bytes);                      \
	} while (0)

#define CHECK_TAKE(nic, buffer)                      \
	do {                                         \
		void *cookie_ = NULL;                \
		CHECK(pp_nic_take((nic), &cookie_)); \
		CHECK_PTR(cookie_, buffer);          \
	} while (0)

#define CHECK_IDLE(nic)                                         \
	do {                                                    \
		void *cookie_ = &nic;                           \
		int64_t length_ = 77;                           \
		CHECK(!pp_nic_poll((nic), &cookie_, &length_)); \
		CHECK_PTR(cookie_, &nic);                       \
		CHECK_EQ(length_, 77);                          \
	} while (0)

TEST(in_order)
{
	struct pp_nic *nic = make_nic(NULL, 4);
	char buffer[3][32] = {"", "", ""};

	CHECK_IDLE(nic);
	for (int i = 0; i < 3; i++)
		CHECK_OK(post(nic, buffer[i], 32));
	CHECK_IDLE(nic);
	CHECK_OK(pp_nic_receive(nic, "first", 6));
	CHECK_OK(pp_nic_receive(nic, "second one", 11));
	CHECK_POLL(nic, buffer[0], 6);
	CHECK_POLL(nic, buffer[1], 11);
	CHECK_IDLE(nic);
	CHECK_EQ(strcmp(buffer[0], "first"), 0);
	CHECK_EQ(strcmp(buffer[1], "second one"), 0);
	CHECK_EQ(buffer[2][0], 0);
	CHECK_OK(pp_nic_receive(nic, "", 0));
	CHECK_POLL(nic, buffer[2], 0);
	pp_nic_destroy(nic);
}

TEST(goes_round)
{
	struct pp_nic *nic = make_nic(NULL, 8);
	uint32_t buffer[8], posted = 0, polled = 0;

	/* 0 to 8 of them under way, and the ring goes round many times. */
	for (uint32_t round = 0; round < 1000; round++) {
		uint32_t n = round % 9;

		for (uint32_t i = 0; i < n; i++, posted++)
			CHECK_OK(post(nic, &buffer[posted % 8], 4));
		for (uint32_t i = 0; i < n; i++) {
			uint32_t frame = polled + i;

			CHECK_OK(pp_nic_receive(nic, &frame, 4));
		}
		for (uint32_t i = 0; i < n; i++, polled++) {
			CHECK_POLL(nic, &buffer[polled % 8], 4);
			CHECK_EQ(buffer[polled % 8], polled);
		}
		CHECK_IDLE(nic);
	}
	pp_nic_destroy(nic);
}

TEST(full_and_empty)
{
	struct pp_nic *nic = make_nic(NULL, 2);
	char buffer[3][8];

	CHECK_FAILS(pp_nic_receive(nic, "x", 1), ENOBUFS, "no buffer posted");
	CHECK_OK(post(nic, buffer[0], 8));
	CHECK_OK(post(nic, buffer[1], 8));
	CHECK_FAILS(post(nic, buffer[2], 8), ENOSPC, "all 2 descriptors");
	CHECK_OK(pp_nic_receive(nic, "x", 1));
	/* Completed, but the driver has not seen it: not free. */
	CHECK_FAILS(post(nic, buffer[2], 8), ENOSPC, "all 2 descriptors");
	CHECK_POLL(nic, buffer[0], 1);
	CHECK_OK(post(nic, buffer[2], 8));
	CHECK_OK(pp_nic_receive(nic, "y", 1));
	CHECK_OK(pp_nic_receive(nic, "z", 1));
	CHECK_FAILS(pp_nic_receive(nic, "dropped", 7), ENOBUFS, "no buffer posted");
	CHECK_POLL(nic, buffer[1], 1);
	CHECK_POLL(nic, buffer[2], 1);
	CHECK_IDLE(nic);
	CHECK_EQ(buffer[1][0], 'y');
	CHECK_EQ(buffer[2][0], 'z');
	pp_nic_destroy(nic);
}

TEST(too_long)
{
	struct pp_nic *nic = make_nic(NULL, 0);
	char buffer[8] = "as ever";

	CHECK_OK(post(nic, buffer, 4));
	CHECK_FAILS(pp_nic_receive(nic, "12345", 5), EMSGSIZE, "5 bytes for a buffer of 4");
	CHECK_IDLE(nic);
	CHECK_EQ(strcmp(buffer, "as ever"), 0);
	/* The buffer stays for the next. */
	CHECK_OK(pp_nic_receive(nic, "1234", 4));
	CHECK_POLL(nic, buffer, 4);
	CHECK_EQ(strcmp(buffer, "1234ver"), 0);
	pp_nic_destroy(nic);
}

static struct pp_iommu_fault last_fault;

static void hear(void *ctx, const struct pp_iommu_fault *fault)
{
	last_fault = *fault;
}

/* The device refuses: the frame is lost, and the driver gets its buffer back with the reason. */
TEST(refused)
{
	static char buffer[3][4096] __attribute__((aligned(4096)));
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu;
	struct pp_device *device;
	struct pp_nic *nic;
	uint64_t dma[3];

	params.fault = hear;
	CHECK_OK(pp_iommu_create(&params, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, "eth0", &device));
	nic = make_nic(device, 4);
	pp_device_put(device); /* the NIC keeps it */
	for (int i = 0; i < 3; i++) {
		CHECK_OK(device->ops->map(device, buffer[i], 4096, PP_DMA_FROM_DEVICE, &dma[i]));
		CHECK_OK(pp_nic_post(nic, dma[i], 4096, buffer[i]));
	}
	device->ops->unmap(device, dma[0], 4096, PP_DMA_FROM_DEVICE);
	CHECK_FAILS(pp_nic_receive(nic, "lost", 5), EFAULT, "write of 5 bytes at 0x1000 refused");
	CHECK_EQ(last_fault.why, PP_IOMMU_UNMAPPED);
	CHECK_OK(pp_nic_receive(nic, "well", 5));
	CHECK_EQ(pp_device_unbind(device), 2);
	CHECK_FAILS(pp_nic_receive(nic, "late", 5), ENODEV, "the device is gone");
	CHECK_POLL(nic, buffer[0], -EFAULT);
	CHECK_POLL(nic, buffer[1], 5);
	CHECK_POLL(nic, buffer[2], -ENODEV);
	CHECK_IDLE(nic);
	CHECK_EQ(buffer[0][0], 0);
	CHECK_EQ(strcmp(buffer[1], "well"), 0);
	CHECK_EQ(buffer[2][0], 0);
	CHECK_EQ(pp_iommu_faults(iommu), 2);
	pp_nic_destroy(nic);
	pp_iommu_put(iommu);
}

TEST(take)
{
	struct pp_nic *nic = make_nic(NULL, 4);
	char b[6][8];
	void *cookie = b;

	CHECK(!pp_nic_take(nic, &cookie));
	CHECK_PTR(cookie, b);
	for (int i = 0; i < 4; i++)
		CHECK_OK(post(nic, b[i], 8));
	CHECK_OK(pp_nic_receive(nic, "0", 2));
	CHECK_OK(pp_nic_receive(nic, "1", 2));
	/* The next that the wire would have used; its descriptor is free at once, and those that
	 * are completed are not disturbed. */
	CHECK_TAKE(nic, b[2]);
	CHECK_OK(post(nic, b[4], 8));
	CHECK_FAILS(post(nic, b[5], 8), ENOSPC, "all 4 descriptors");
	CHECK_POLL(nic, b[0], 2);
	CHECK_OK(pp_nic_receive(nic, "3", 2));
	CHECK_POLL(nic, b[1], 2);
	CHECK_POLL(nic, b[3], 2);
	CHECK_IDLE(nic);
	CHECK_EQ(strcmp(b[3], "3"), 0);
	CHECK_TAKE(nic, b[4]);
	CHECK(!pp_nic_take(nic, &cookie));
	CHECK_IDLE(nic);
	CHECK_FAILS(pp_nic_receive(nic, "x", 2), ENOBUFS, "no buffer");
	/* All of the ring is of use as before. */
	for (int i = 0; i < 4; i++)
		CHECK_OK(post(nic, b[i], 8));
	for (int i = 0; i < 4; i++)
		CHECK_TAKE(nic, b[i]);
	CHECK(!pp_nic_take(nic, &cookie));
	pp_nic_destroy(nic);
}

TEST(bad_parameters)
{
	static const unsigned bad[] = {3, 6, 255, 65535, 65537, 131072, 1u << 31, ~0u};
	struct pp_nic_params params = PP_NIC_PARAMS_INIT;
	struct pp_nic *nic = (struct pp_nic *)&params;

	for (size_t i = 0; i < PP_ARRAY_SIZE(bad); i++) {
		params.slots = bad[i];
		CHECK_FAILS(pp_nic_create(&params, &nic), EINVAL, "must be a power of two, 65536");
	}
	params.slots = 4;
	params.size--;
	CHECK_FAILS(pp_nic_create(&params, &nic), EINVAL, "struct pp_nic_params.size is");
	CHECK_PTR(nic, &params);
}

TEST(slots)
{
	static const unsigned asked[] = {0, 1, 2, 65536};
	static const unsigned had[] = {256, 1, 2, 65536};
	char byte;

	for (size_t i = 0; i < PP_ARRAY_SIZE(asked); i++) {
		struct pp_nic *nic = make_nic(NULL, asked[i]);
		unsigned n = 0;

		while (!post(nic, &byte, 1))
			n++;
		CHECK_EQ(n, had[i]);
		pp_nic_destroy(nic); /* with what was not taken */
	}
}

/* ---- two threads ------------------------------------------------------------------------------
 */

#define FRAMES 100000u
#define BUFFERS 16u

static void *wire(void *arg)
{
	struct pp_nic *nic = arg;

	for (uint64_t frame = 0; frame < FRAMES;) {
		uint64_t words[4] = {frame, ~frame, frame * 3, frame};
		int err = pp_nic_receive(nic, words, 8 + 8 * (frame % 4));

		if (!err)
			frame++;
		else
			CHECK_EQ(err, -ENOBUFS);
		if (err)
			sched_yield();
	}
	return NULL;
}

TEST(a_wire_of_its_own)
{
	/* Plain memory: the ring alone has to order what both of them do with it. */
	static uint64_t buffer[BUFFERS][4];
	struct pp_nic *nic = make_nic(NULL, 8);
	uint64_t frame = 0, posted = 0;
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, wire, nic), 0);
	while (frame < FRAMES) {
		void *cookie;
		int64_t length;

		while (posted < frame + BUFFERS) {
			uint64_t *b = buffer[posted % BUFFERS];

			memset(b, 0xee, sizeof(buffer[0]));
			if (post(nic, b, sizeof(buffer[0])))
				break;
			posted++;
		}
		if (!pp_nic_poll(nic, &cookie, &length)) {
			sched_yield();
			continue;
		}
		uint64_t words[4] = {frame, ~frame, frame * 3, frame};

		CHECK_PTR(cookie, buffer[frame % BUFFERS]);
		CHECK_EQ(length, 8 + 8 * (frame % 4));
		CHECK_EQ(memcmp(cookie, words, (size_t)length), 0);
		if (length < 32) /* and not a byte more */
			CHECK_EQ(((uint64_t *)cookie)[3], 0xeeeeeeeeeeeeeeeeull);
		frame++;
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	while (posted > frame) {
		CHECK_TAKE(nic, buffer[frame % BUFFERS]);
		frame++;
	}
	CHECK_IDLE(nic);
	pp_nic_destroy(nic);
}
