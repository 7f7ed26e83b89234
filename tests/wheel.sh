#!/bin/sh
# Install the wheel in environments that have nothing else, alone and with what the demo needs, and
# run it from there, elsewhere; with the oldest Python and the newest. One that the machine does not
# have is said to be SKIPPED.
set -eu

. tests/pythons.sh

# What is imported is compiled once: pip does not compile, which is near half of its CPU time.
export PYTHONDONTWRITEBYTECODE=

wheel=$(ls -t "$PWD"/dist/*.whl | head -n 1)
example=$PWD/examples/qr.py
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# It needs nothing of dask but its core.
cat >"$place/squares.py" <<'END'
import dask

squares = [dask.delayed(pow)(n, 2) for n in range(10)]
print("the sum is", dask.delayed(sum)(squares).compute(scheduler="threads"))
END

install() {
    "$place/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$2 @ file://$wheel"
}

# Run a program, and make a page of its recording; the output is in a file.
record() {
    name=$1 label=$2 program=$3
    "$name/bin/dask-diag" run --waits --output "$name-$label.diag" "$program" >"$name-$label.txt" 2>&1 ||
        { cat "$name-$label.txt"; exit 1; }
    "$name/bin/dask-diag" report "$name-$label.diag" --html "$name-$label.html"
    test -s "$name-$label.html"
}

try() {
    name=$1 python=$2
    "$python" -m venv "$place/$name"
    # Away from the checkout, whose package would be found first.
    cd "$place"
    install "$name" dask_diag
    "$name/bin/dask-diag" --help >help.txt
    record "$name" bare "$place/squares.py"
    grep "the sum is 285" "$name-bare.txt"
    echo "== $(basename "$wheel") alone: $("$name/bin/python" --version)"
    install "$name" "dask_diag[demo]"
    record "$name" demo "$example"
    tail -n 3 "$name-demo.txt"
    echo "== $(basename "$wheel") with the demo: $("$name/bin/python" --version)"
}

tried=0
for version in 3.10 3.13; do
    if python=$(find_python "$version" 2>/dev/null); then
        (try "$version" "$python")
        tried=$((tried + 1))
    else
        echo "== SKIPPED Python $version: this machine does not have it"
    fi
done
if [ "$tried" -eq 0 ]; then
    echo "the wheel was not tried with any Python" >&2
    exit 1
fi
