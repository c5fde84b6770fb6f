#!/usr/bin/env bash
# Writes server_images/base.lock (what every container holds: the `servers` extra), server_images/uv.lock, and
# server_images/nemo-gym-VERSION.lock (what NeMo Gym's own servers stand on).
#
#   scripts/lock_base.sh [--upgrade]     without it, versions already locked stay as they are
#
# One lock for all platforms and for Python 3.11 and later (NeMo Gym: 3.13.14), with hashes; no index address and
# no path in it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(command -v .venv/bin/uv || command -v uv) || { echo "lock: uv is missing; run scripts/setup.sh dev" >&2; exit 3; }
python=$(command -v .venv/bin/python || command -v python3)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

lock() {
    local name=$1 target=server_images/$1.lock header=$2 python_version=$3
    shift 3
    [ ! -e "$target" ] || cp "$target" "$scratch/$name.lock"  # its versions are preferred: an unchanged input stays unchanged
    (cd "$scratch" && "$uv" pip compile "$name.in" --output-file "$name.lock" --quiet --no-config --no-header \
        --no-annotate --generate-hashes --universal --python-version "$python_version" "$@")
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
read -r version along < <("$python" -c 'from gymctl.images.nemo_gym import ALONG, VERSION; print(VERSION, ALONG)')
printf '%s\n' "nemo-gym==$version" "$along" >"$scratch/nemo-gym-$version.in"
lock base "The packages of every server container." 3.11 "$@"
lock uv "The installer inside the images." 3.11 "$@"
lock "nemo-gym-$version" "What NeMo Gym's own servers stand on." 3.13.14 "$@"
