/* SPDX-License-Identifier: BSD-2-Clause */
/* What all devices have in common, the device without an IOMMU, and a caller's own. */
#include <stdlib.h>
#include <string.h>

#include "device.h"

void pp_device_init(struct pp_device *device, const struct pp_device_ops *ops, const char *name)
{
	device->ops = ops;
	device->refs = 1;
	strncpy(device->name, name ? name : "device", sizeof(device->name) - 1);
}

void pp_device_get(struct pp_device *device)
{
	if (device->ops->retire)
		/* relaxed: the caller has a reference already. */
		pp_fetch_add_relaxed(&device->refs, 1);
}

void pp_device_put(struct pp_device *device)
{
	/* acq_rel: what the others did with it happened before it is retired. */
	if (device->ops->retire && pp_fetch_sub_acq_rel(&device->refs, 1) == 1)
		device->ops->retire(device);
}

const char *pp_device_name(const struct pp_device *device)
{
	return device->name;
}

int pp_device_map(struct pp_device *device, void *memory, size_t length, enum pp_dma_direction dir,
		  uint64_t *dma)
{
	return device->ops->map(device, memory, length, dir, dma);
}

void pp_device_unmap(struct pp_device *device, uint64_t dma, size_t length,
		     enum pp_dma_direction dir)
{
	device->ops->unmap(device, dma, length, dir);
}

void pp_device_sync_for_device(struct pp_device *device, uint64_t dma, size_t offset, size_t length,
			       enum pp_dma_direction dir)
{
	if (device->syncs_device)
		device->ops->sync(device, dma, offset, length, dir, false);
}

void pp_device_sync_for_cpu(struct pp_device *device, uint64_t dma, size_t offset, size_t length,
			    enum pp_dma_direction dir)
{
	if (device->syncs_cpu)
		device->ops->sync(device, dma, offset, length, dir, true);
}

int pp_device_write(struct pp_device *device, uint64_t dma, const void *data, size_t length)
{
	return device->ops->write(device, dma, data, length);
}

int pp_device_read(struct pp_device *device, uint64_t dma, void *data, size_t length)
{
	return device->ops->read(device, dma, data, length);
}

int64_t pp_device_unbind(struct pp_device *device)
{
	if (!device->ops->unbind)
		return pp_fail(-EINVAL, "device %s is not behind an IOMMU: it cannot be unbound",
			       device->name);
	return device->ops->unbind(device);
}

size_t pp_iommu_mappings(struct pp_device *device, uint64_t dma, size_t n,
			 struct pp_iommu_mapping *ret)
{
	return device->ops->mappings ? device->ops->mappings(device, dma, n, ret) : 0;
}

/* ---- none: addresses are what they are --------------------------------------------------------
 */

static int none_map(struct pp_device *d, void *memory, size_t length, enum pp_dma_direction dir,
		    uint64_t *dma)
{
	*dma = (uintptr_t)memory;
	return 0;
}

static void none_unmap(struct pp_device *d, uint64_t dma, size_t length, enum pp_dma_direction dir)
{
}

static void none_sync(struct pp_device *d, uint64_t dma, size_t offset, size_t length,
		      enum pp_dma_direction dir, bool for_cpu)
{
}

static int none_write(struct pp_device *d, uint64_t dma, const void *data, size_t length)
{
	memmove((void *)(uintptr_t)dma, data, length);
	return 0;
}

static int none_read(struct pp_device *d, uint64_t dma, void *data, size_t length)
{
	memmove(data, (const void *)(uintptr_t)dma, length);
	return 0;
}

static const struct pp_device_ops none_ops = {
	.map = none_map,
	.unmap = none_unmap,
	.sync = none_sync,
	.write = none_write,
	.read = none_read,
};

struct pp_device *pp_device_none(void)
{
	static struct pp_device none = {.ops = &none_ops, .refs = 1, .name = "none"};

	return &none;
}

/* ---- a caller's own ---------------------------------------------------------------------------
 */

struct user_device {
	struct pp_device base;
	struct pp_device_params params; /* constant */
};

static const struct pp_device_params *params_of(struct pp_device *d)
{
	return &((struct user_device *)d)->params;
}

static int user_map(struct pp_device *d, void *memory, size_t length, enum pp_dma_direction dir,
		    uint64_t *dma)
{
	const struct pp_device_params *p = params_of(d);
	int err = p->map(p->ctx, memory, length, dir, dma);

	return err ? pp_fail(err, "device %s: a mapping of %zu bytes was refused: error %d",
			     d->name, length, err)
		   : 0;
}

static void user_unmap(struct pp_device *d, uint64_t dma, size_t length, enum pp_dma_direction dir)
{
	const struct pp_device_params *p = params_of(d);

	p->unmap(p->ctx, dma, length, dir);
}

static void user_sync(struct pp_device *d, uint64_t dma, size_t offset, size_t length,
		      enum pp_dma_direction dir, bool for_cpu)
{
	const struct pp_device_params *p = params_of(d);

	(for_cpu ? p->sync_for_cpu : p->sync_for_device)(p->ctx, dma, offset, length, dir);
}

static int user_write(struct pp_device *d, uint64_t dma, const void *data, size_t length)
{
	const struct pp_device_params *p = params_of(d);

	if (!p->write)
		return pp_fail(-EOPNOTSUPP, "device %s was made without write", d->name);
	return p->write(p->ctx, dma, data, length);
}

static int user_read(struct pp_device *d, uint64_t dma, void *data, size_t length)
{
	const struct pp_device_params *p = params_of(d);

	if (!p->read)
		return pp_fail(-EOPNOTSUPP, "device %s was made without read", d->name);
	return p->read(p->ctx, dma, data, length);
}

static void user_retire(struct pp_device *d)
{
	struct pp_device_params p = *params_of(d);

	free(d);
	if (p.release)
		p.release(p.ctx);
}

static const struct pp_device_ops user_ops = {
	.map = user_map,
	.unmap = user_unmap,
	.sync = user_sync,
	.write = user_write,
	.read = user_read,
	.retire = user_retire,
};

int pp_device_create(const struct pp_device_params *params, struct pp_device **ret)
{
	struct user_device *device;
	int err = pp_check_size("struct pp_device_params", params, params->size, sizeof(*params),
				sizeof(*params));

	if (err)
		return err;
	if (!params->map || !params->unmap)
		return pp_fail(-EINVAL, "a device needs map and unmap");
	device = pp_sys_calloc(1, sizeof(*device));
	if (!device)
		return pp_fail(-ENOMEM, "no memory for a device");
	pp_device_init(&device->base, &user_ops, params->name);
	device->base.syncs_device = params->sync_for_device;
	device->base.syncs_cpu = params->sync_for_cpu;
	device->params = *params;
	*ret = &device->base;
	return 0;
}
