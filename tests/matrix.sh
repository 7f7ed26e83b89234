#!/bin/sh
# Run the suite, without truths and browsers, on pairs of Python and dask that are supported.
# A Python that the machine does not have is replaced by the nearest that it has; the pair is shown.
set -eu

find_python() {
    for version in "$@"; do
        for candidate in "python$version" "$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python 2>/dev/null | tail -n 1)"; do
            if [ -n "$candidate" ] && "$candidate" -c "import venv, ensurepip" >/dev/null 2>&1; then
                echo "$candidate"
                return
            fi
        done
    done
    echo "no Python of $* was found" >&2
    exit 1
}

run() {
    name=$1 python=$2 dask=$3
    echo "== $name: $("$python" --version), $dask"
    [ -x ".venv-$name/bin/python" ] || "$python" -m venv ".venv-$name"
    ".venv-$name/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[test]" "$dask"
    ".venv-$name/bin/python" -m pytest -q -n 2 --dist worksteal -m "not browser and not once and not truth and not diagnosis" -p no:cacheprovider
}

run oldest "$(find_python 3.10 3.11 3.12 3.13)" "dask[array]==2025.1.0"
run pinned "$(find_python 3.12 3.13 3.11 3.10)" "dask[array]==2025.3.0"
run newest "$(find_python 3.13 3.12 3.11 3.10)" "dask[array]"
