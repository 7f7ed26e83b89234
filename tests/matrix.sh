#!/bin/sh
# Run the suite, without truths and browsers, on pairs of Python and dask that are supported:
# tests/matrix.sh prepare installs them, tests/matrix.sh run does the rest; without a word, both.
# Where the variable LEGS names some of oldest, pinned, contexts and newest, only these run.
# A Python that the machine does not have is replaced by the nearest that it has; the pair is shown.
set -eu

. tests/pythons.sh

prepare() {
    name=$1 python=$2 dask=$3
    [ -x ".venv-$name/bin/python" ] || "$python" -m venv ".venv-$name"
    ".venv-$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[test]" "$dask"
}

# It is 1 GB each: asked for with WITH_COFFEA=1. Elsewhere the tests that need coffea are skipped.
# coffea has today's dask, dask-awkward what it takes: that of this leg.
with_coffea() {
    [ -z "${WITH_COFFEA:-}" ] ||
        ".venv-$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[test,$2]" "$3"
}

prepare_all() {
    prepare oldest "$(find_python 3.10 3.11 3.12 3.13)" "dask[array]==2025.1.0"
    prepare pinned "$(find_python 3.13 3.12 3.11 3.10)" "dask[array]==2025.3.1"
    with_coffea pinned dask-awkward "dask[array]==2025.3.1"
    prepare contexts "$(find_python 3.14 3.13)" "dask[array]"
    prepare newest "$(find_python 3.15 3.14 3.13 3.12 3.11 3.10)" "dask[array]"
    # The oldest Python has no coffea, nor has the newest.
    [ -z "${WITH_COFFEA:-}" ] || prepare awkward "$(find_python 3.12 3.13 3.11)" "dask[array]==2025.1.0"
    [ -z "${WITH_COFFEA:-}" ] || with_coffea awkward dask-awkward "dask[array]==2025.1.0"
    [ -z "${WITH_COFFEA:-}" ] || prepare coffea "$(find_python 3.12 3.13 3.11)" "dask[array]"
    [ -z "${WITH_COFFEA:-}" ] || with_coffea coffea coffea "dask[array]"
}

legs=${LEGS:-oldest pinned contexts newest${WITH_COFFEA:+ awkward coffea}}

# Processes of a leg beside the others, and of one after the other.
beside=2 alone=4

run() {
    name=$1 processes=$2
    shift 2
    echo "== $name: $(".venv-$name/bin/python" -c 'import sys, dask; print("Python", sys.version.split()[0] + ", dask", dask.__version__)')"
    sh tests/run.sh ".venv-$name/bin/python" -n "$processes" --dist worksteal -m "not browser and not once and not truth and not diagnosis" "$@"
}

# Tests of clusters run with the oldest distributed here, and with the newest in make test; with
# every Python those of test_cluster.py do, the first of them.
leg() {
    case $1 in
    oldest) run oldest "$2" ;;
    # Threads that start in the context of the thread that starts them, as in free-threaded builds:
    # what has to do with threads. Programs that do not listen are attached to with this Python.
    contexts)
        PYTHON_THREAD_INHERIT_CONTEXT=1 run contexts "$2" tests/test_span.py tests/test_sampling.py \
            tests/test_waits.py tests/test_threads.py tests/test_record.py tests/test_redaction.py \
            tests/test_interrupts.py tests/test_free_threading.py tests/test_tracebacks.py \
            tests/test_attach.py
        ;;
    awkward | coffea) run "$1" "$2" tests/test_nanoaod.py tests/test_coffea.py tests/test_chunks.py ;;
    *) run "$1" "$2" --ignore-glob="*/test_cluster_*" ;;
    esac
}

# At the same time: while one imports, or waits for its last tests, the others have work for the
# processors. What they print is shown leg by leg.
run_beside() {
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    # Ctrl-C is ignored by what runs in the background of a script.
    trap 'trap - TERM; kill 0' INT TERM
    for name in $legs; do
        (
            status=0
            BESIDE="$place/lock" leg "$name" "$beside" >"$place/$name.log" 2>&1 || status=$?
            echo "$status" >"$place/$name.status"
        ) &
    done
    wait
    for name in $legs; do cat "$place/$name.log"; done
    for name in $legs; do
        [ "$(cat "$place/$name.status")" = 0 ] || { echo "== failed: $name"; exit 1; }
    done
}

run_all() {
    if command -v flock >/dev/null; then
        run_beside
    else
        for name in $legs; do leg "$name" "$alone"; done
    fi
}

case ${1:-both} in
prepare)
    prepare_all
    ;;
run)
    run_all
    ;;
both)
    prepare_all
    run_all
    ;;
*)
    echo "usage: tests/matrix.sh [prepare | run]" >&2
    exit 2
    ;;
esac
