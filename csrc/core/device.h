/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices: what kinds of them share. */
#ifndef PP_CORE_DEVICE_H
#define PP_CORE_DEVICE_H

#include "internal.h"

/* The rest of it is zero; name may be NULL, and is cut to what fits. */
void pp_device_init(struct pp_device *device, const struct pp_device_ops *ops, const char *name);

#endif
