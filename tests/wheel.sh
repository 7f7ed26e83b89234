#!/bin/sh
# Install the wheel in environments that have nothing else, and run the demo from it, elsewhere.
set -eu

. tests/pythons.sh

# What is imported is compiled once: pip does not compile, which is near half of its CPU time.
export PYTHONDONTWRITEBYTECODE=

wheel=$(ls -t "$PWD"/dist/*.whl | head -n 1)
example=$PWD/examples/qr.py
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

try() {
    name=$1 python=$2
    "$python" -m venv "$place/$name"
    "$place/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "dask_diag[demo] @ file://$wheel"
    # Away from the checkout, whose package would be found first.
    cd "$place"
    "$name/bin/dask-diag" run --waits --output "$name.diag" "$example" 2>&1 | tail -n 3
    "$name/bin/dask-diag" report "$name.diag" --output "$name.html"
    test -s "$name.html"
    echo "== the demo from $(basename "$wheel"): $("$name/bin/python" --version)"
}

oldest=$(find_python 3.10 3.11 3.12 3.13)
newest=$(find_python 3.13 3.12 3.11 3.10)
(try oldest "$oldest")
(try newest "$newest")
