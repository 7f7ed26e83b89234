# Sourced by the scripts that run on several Pythons.

# The first of these versions that the machine has, with what makes virtual environments; also those
# of newer_pythons.sh.
find_python() {
    for version in "$@"; do
        for candidate in "python$version" "$PWD/.pythons/usr/bin/python$version" "$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python 2>/dev/null | tail -n 1)"; do
            if [ -n "$candidate" ] && "$candidate" -c "import venv, ensurepip" >/dev/null 2>&1; then
                echo "$candidate"
                return
            fi
        done
    done
    echo "no Python of $* was found" >&2
    exit 1
}
