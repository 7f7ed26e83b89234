#!/bin/sh
# Run the suite, without truths and browsers, on pairs of Python and dask that are supported:
# tests/matrix.sh prepare installs them, tests/matrix.sh run does the rest; without a word, both.
# A Python that the machine does not have is replaced by the nearest that it has; the pair is shown.
set -eu

. tests/pythons.sh

prepare() {
    name=$1 python=$2 dask=$3
    [ -x ".venv-$name/bin/python" ] || "$python" -m venv ".venv-$name"
    ".venv-$name/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[test]" "$dask"
}

# It is 1 GB: asked for with WITH_COFFEA=1. Elsewhere the test of examples/nanoaod.py is skipped.
with_coffea() {
    [ -z "${WITH_COFFEA:-}" ] ||
        .venv-pinned/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test,coffea]"
}

prepare_oldest() {
    prepare oldest "$(find_python 3.10 3.11 3.12 3.13)" "dask[array]==2025.1.0"
}

prepare_others() {
    prepare pinned "$(find_python 3.12 3.13 3.11 3.10)" "dask[array]==2025.3.0"
    with_coffea
    prepare newest "$(find_python 3.13 3.12 3.11 3.10)" "dask[array]"
}

run() {
    name=$1
    shift
    echo "== $name: $(".venv-$name/bin/python" -c 'import sys, dask; print("Python", sys.version.split()[0] + ", dask", dask.__version__)')"
    sh tests/run.sh ".venv-$name/bin/python" -n 4 --dist worksteal -m "not browser and not once and not truth and not diagnosis" "$@"
}

# Tests of clusters run with the oldest and the newest distributed, and here those of no cluster.
run_pinned() {
    run pinned --ignore-glob="*/test_cluster_*"
}

case ${1:-both} in
prepare)
    prepare_oldest
    prepare_others
    ;;
run)
    run oldest
    run_pinned
    run newest
    ;;
both)
    prepare_oldest
    # While the first is tested, the others are installed.
    prepare_others &
    installing=$!
    run oldest
    wait "$installing"
    run_pinned
    run newest
    ;;
*)
    echo "usage: tests/matrix.sh [prepare | run]" >&2
    exit 2
    ;;
esac
