#!/usr/bin/env bash
# Writes server_images/base.lock (what every container holds: the `servers` extra) and server_images/uv.lock.
#
#   scripts/lock_base.sh [--upgrade]     without it, versions already locked stay as they are
#
# One lock for all platforms and for Python 3.11 and later, with hashes; no index address and no path in it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(command -v .venv/bin/uv || command -v uv) || { echo "lock: uv is missing; run scripts/setup.sh dev" >&2; exit 3; }
python=$(command -v .venv/bin/python || command -v python3)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

lock() {
    local name=$1 target=server_images/$1.lock header=$2
    shift 2
    [ ! -e "$target" ] || cp "$target" "$scratch/$name.lock"  # its versions are preferred: an unchanged input stays unchanged
    (cd "$scratch" && "$uv" pip compile "$name.in" --output-file "$name.lock" --quiet --no-config --no-header \
        --no-annotate --generate-hashes --universal --python-version 3.11 "$@")
    { printf '# %s Written by scripts/lock_base.sh.\n' "$header"; grep -v '^#' "$scratch/$name.lock"; } >"$scratch/$name.out"
    cat "$scratch/$name.out" >"$target"
    echo "lock: $target holds $(grep -c '^[a-z0-9].*==' "$target") packages" >&2
}

uv=$(realpath "$uv")
"$python" - >"$scratch/base.in" <<'PY'
import tomllib

with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"]["servers"], sep="\n")
PY
echo "uv>=0.8" >"$scratch/uv.in"
lock base "The packages of every server container." "$@"
lock uv "The installer inside the images." "$@"
