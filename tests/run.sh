#!/bin/sh
# Run pytest: tests/run.sh PYTHON ARGUMENT ... Where the variable ALONE is a number, so many tests at
# most may fail beside others, if they pass alone, once. The gate sets it: it must not refuse a
# change for what a busy machine did to one of thousands of tests. It prints which ones they were.
# Where BESIDE names a file, several of these run at the same time, each with a lock on it: what failed
# in one waits until it is alone.
# Where tests run in several processes, one that stands still for four minutes is ended, so that
# the others go on: it prints what its threads did, and its test counts as failed.
# It names the slowest tests: the suite is to stay quick.
set -u

python=$1
shift
cache=$PWD/$(dirname "$(dirname "$python")")/tested

still=
case " $* " in
*" -n "*) still="-o faulthandler_timeout=240 -o faulthandler_exit_on_timeout=true" ;;
esac

# In a new checkout each of several processes that start together would compile the package, and in
# a new environment what it imports: pip does not compile, which is near half of its CPU time.
export PYTHONDONTWRITEBYTECODE=
"$python" -m compileall -q -j 0 dask_diag
"$python" -c "import bokeh.embed, bokeh.plotting, dask.array, distributed, hypothesis, pandas, pyarrow"

# Not python -m pytest: that has the checkout on its path, whose metadata make pytest rewrite the
# assertions of the whole package, again in each process.
pytest=$(dirname "$python")/pytest
[ -z "${BESIDE:-}" ] || { exec 9>>"$BESIDE"; flock --shared 9; }
# shellcheck disable=SC2086
"$pytest" -q -o cache_dir="$cache" --cache-clear --durations=15 $still "$@" 9>&-
status=$?
[ -z "${BESIDE:-}" ] || flock --unlock 9
[ $status -eq 1 ] && [ -n "${ALONE:-}" ] || exit $status

failed=$("$python" - "$cache/v/cache/lastfailed" <<'END'
import json, sys
print("\n".join(json.load(open(sys.argv[1]))))
END
) || exit 1
[ "$(echo "$failed" | wc -l)" -le "$ALONE" ] || exit 1
echo "== failed beside others, run alone now:"
echo "$failed"
[ -z "${BESIDE:-}" ] || flock 9
"$pytest" -q -o cache_dir="$cache" --last-failed -n 0 "$@" 9>&-
