#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Checks the models, exhaustively, and that each planted bug is found: run.sh [model.pml ...]
# A model names its planted bugs in its head comment, each a macro at the start of a line; and
# before them the sizes that it is checked in, if several, each a line of macros. A bug has to be
# found in the size in brackets at the end of its line; without, in one of these, tried in their order.
#
# As many models side by side as there are CPUs (PP_MODEL_JOBS): each prints what it finds when all of
# it is known. Prints TAP.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if ! command -v spin >/dev/null || ! command -v "${CC:-cc}" >/dev/null; then
	echo "1..0 # SKIP needs spin and a C compiler"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# check -O model [-DMACRO[=VALUE] ...]: the number of errors that the exhaustive search found.
check() {
	rm -f "$work"/pan*
	(
		cd "$work"
		optimize=$1
		model=$2
		shift 2
		spin -a "$@" "$model" >spin.log 2>&1
		# -DSAFETY: assertions and dead ends are what is looked for.
		"${CC:-cc}" "$optimize" -w -DSAFETY -DVECTORSZ=2048 -o pan pan.c
		./pan -m1000000 >pan.log 2>&1
	) || {
		cat "$work/spin.log" "$work/pan.log" >&2 2>/dev/null || true
		return 1
	}
	if grep -q 'max search depth too small\|Search not completed.*memory' "$work/pan.log"; then
		echo "the search was cut short" >&2
		return 1
	fi
	sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$work/pan.log"
}

# differs model size -DBUG: the bug is in what is checked in this size at all.
differs() {
	"${CC:-cc}" -E -P -x c $2 "$1" >"$work/right.i"
	"${CC:-cc}" -E -P -x c $2 "$3" "$1" >"$work/bug.i"
	! cmp -s "$work/right.i" "$work/bug.i"
}

# macros SIZE=2 ...: as arguments.
macros() {
	for macro in "$@"; do
		printf -- '-D%s ' "$macro"
	done
}

say() {
	[ "$1" = 1 ] && echo "good $2" || echo "bad $2"
}

# model
step_model() {
	model=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
	name=$(basename "$model" .pml)
	sed -n '/^ \* Sizes/,/^ \*$/s/^ \*   \([A-Z].*\)/\1/p' "$model" >"$work/sizes"
	[ -s "$work/sizes" ] || echo >"$work/sizes"
	: >"$work/large"
	while read -r size; do
		errors=$(check -O1 "$model" $(macros $size))
		# A step that no run takes proves nothing.
		if grep '\.pml:[0-9]*, state' "$work/pan.log" | grep -v -e -end- >"$work/unreached"; then
			sed 's/^/# unreached: /' "$work/unreached"
			errors=unreached
		fi
		states=$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' "$work/pan.log")
		[ "${states:-0}" -lt 1000000 ] || echo "$size" >>"$work/large"
		say "$([ "$errors" = 0 ] && echo 1)" "$name: right in all $states states${size:+, $size}"
	done <"$work/sizes"
	for bug in $(sed -n '/Planted bugs/,/\*\//s/^ \*   \([A-Z_]*\) .*/\1/p' "$model"); do
		found=
		sed -n "/^ \*   $bug .*(.*=.*)\$/s/.*(\(.*\))/\1/p" "$model" >"$work/sizes_of_bug"
		[ -s "$work/sizes_of_bug" ] || cp "$work/sizes" "$work/sizes_of_bug"
		while [ -z "$found" ] && read -r size; do
			differs "$model" "$(macros $size)" "-D$bug" || continue
			# In a small search most of the time goes into compiling.
			optimize=-O0
			! grep -qxF -e "$size" "$work/large" || optimize=-O1
			errors=$(check $optimize "$model" $(macros $size) "-D$bug")
			[ "$errors" -eq 0 ] || found=1
		done <"$work/sizes_of_bug"
		say "$found" "$name: $bug is found${size:+, $size}"
	done
}

if [ "${1:-}" = --model ]; then
	# Those of a model stay together. One that cannot be checked ends all of it.
	step_model "$2" >"$work/said"
	cat "$work/said"
	exit
fi

[ $# -gt 0 ] || set -- "$here"/*.pml
echo "TAP version 13"
printf '%s\0' "$@" | xargs -0 -P "${PP_MODEL_JOBS:-$(nproc)}" -n 1 sh "$0" --model >"$work/all"
awk '
	/^good / { print "ok " ++n " - " substr($0, 6); next }
	/^bad / { print "not ok " ++n " - " substr($0, 5); failed = 1; next }
	{ print }
	END { print "1.." n + 0; exit failed }
' "$work/all"
