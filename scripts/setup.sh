#!/usr/bin/env bash
# Make .venv with gymctl in it. Usage: scripts/setup.sh run|dev. Does nothing when it is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 3; }

flavour=${1:-run}
case $flavour in
    run) target='.' ;;
    dev) target='.[dev]' ;;
    *) die "usage: scripts/setup.sh run|dev" ;;
esac

# A working environment holds the stamp of the files that decided what is in it.
stamp=.venv/.gymctl-$flavour
inputs=$(cat pyproject.toml scripts/constraints.txt scripts/setup.sh | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/gymctl ] && [ "$(cat "$stamp" 2>/dev/null)" = "$inputs $PWD" ]; then
    exit 0
fi

find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.14; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

python=$(find_python) || {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Python"
        DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2 || true
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3 python3-venv >/dev/null || die "apt-get install python3 failed"
        python=$(find_python) || die "Python 3.11 or newer is needed; this system's python3 is older"
    else
        die "Python 3.11 or newer is needed"
    fi
}

# Debian ships venv without pip in a package of its own.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing python3-venv"
        DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2 || true
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3-venv >/dev/null || die "apt-get install python3-venv failed"
    else
        die "Python's venv module is missing: sudo apt install python3-venv"
    fi
fi

say "installing gymctl into .venv ($("$python" -V))"
# A moved or broken environment is made anew: its scripts hold absolute paths.
if ! .venv/bin/python -c 'import sys' 2>/dev/null || ! grep -qs "$PWD/.venv" .venv/bin/activate; then
    rm -rf .venv
    "$python" -m venv .venv
fi
[ -x .venv/bin/uv ] || .venv/bin/python -m pip install -q --disable-pip-version-check uv
.venv/bin/uv pip install -q --python .venv/bin/python --constraint scripts/constraints.txt -e "$target"
printf '%s %s\n' "$inputs" "$PWD" >"$stamp"
