#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The C program says what its pools are: mapped or not, checked or not, whoever asked for it.
#
#     bench_options.sh BENCH_PAGE_POOL_SIMPLE
set -eu

bench=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM
unset PAGEPOOL_CHECKED
n=0
echo "TAP version 13"

result() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}

# says LINE LINE [VARIABLE=VALUE] [OPTION...]
says() {
	dma=$1 checked=$2
	shift 2
	status=0
	env "$@" "$bench" ${options-} --loops 1000 --runs 1 >"$out/out" 2>"$out/err" || status=1
	grep -qx "# dma: $dma" "$out/out" || status=1
	grep -qx "# checked mode: $checked" "$out/out" || status=1
	[ "$(grep -c '^time_bench: Type:' "$out/out")" = 9 ] || status=1
	[ ! -s "$out/err" ] || { cat "$out/err" >&2; status=1; }
	result $status "${options-} $* says $dma, $checked"
}

on="on: these are not the pool's figures"
options='' says off off
options='--dma none' says 'mapped without an IOMMU, tracked' off
options='--dma none --no-tracking' says 'mapped without an IOMMU, not tracked' off
options='--dma iommu' says 'mapped by a software IOMMU, tracked' off
options='--dma iommu --no-tracking' says 'mapped by a software IOMMU, not tracked' off
options='--checked' says off "$on"
options='' says off "$on" PAGEPOOL_CHECKED=1
options='' says off "full: these are not the pool's figures" PAGEPOOL_CHECKED=full

for design in ring ours list list-ring list-batch list-cache list-ring-cache; do
	status=0
	"$bench" --design $design --loops 1000 >"$out/out" 2>"$out/err" || status=1
	grep -qx "# design: $design" "$out/out" || status=1
	[ "$(grep -c '^time_bench: Type:' "$out/out")" = 9 ] || { cat "$out/err" >&2; status=1; }
	result $status "--design $design takes the roads that the tests name"
done

for options in '--design rink' '--dma fast' '--no-tracking' '--dma off --no-tracking'; do
	status=0
	"$bench" $options >"$out/out" 2>"$out/err" || status=$?
	[ "$status" = 2 ] && [ ! -s "$out/out" ] && [ "$(wc -l <"$out/err")" = 1 ] && status=0 || status=1
	result $status "$options is refused in a line"
done
echo "1..$n"
