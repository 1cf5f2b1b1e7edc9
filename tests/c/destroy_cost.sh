#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Destroying a pool with pages out is linear, and so is giving these back: twice the pages are at
# most 2.2 times the instructions, counted by valgrind. Time would depend on the machine's mood.
#
#     destroy_cost.sh DESTROY_COST
set -eu

program=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM

# The compiler may append to the name of a function.
# count function pages device
count() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "--toggle-collect=timed_$1*" \
		"$program" "$2" "$3" 2>"$out/err" >"$out/out" || {
		cat "$out/err" >&2
		exit 1
	}
	sed -n 's/.*Collected : //p' "$out/err"
}

n=0
echo "TAP version 13"
for device in off untracked tracked iommu; do
	for function in destroy give_back; do
		n=$((n + 1))
		half=$(count "$function" 100000 "$device")
		all=$(count "$function" 200000 "$device")
		text="$device: $function of 100000 pages $half instructions, of 200000 $all"
		# Nothing counted is nothing shown.
		if [ "$half" -gt 100 ] && [ "$all" -gt 0 ] && [ $((all * 10)) -le $((half * 22)) ]; then
			echo "ok $n - $text"
		else
			echo "not ok $n - $text"
		fi
	done
done
echo "1..$n"
