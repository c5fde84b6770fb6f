#!/bin/sh
# Inside images: runs a command with the CA bundle, package index and proxies that the build was given as secrets.
#
#   RUN --mount=type=secret,id=ca --mount=type=secret,id=network with-network uv pip install ...
#
# Both secrets are optional. They exist during that RUN only and end up in no layer.
set -eu

if [ -s /run/secrets/ca ]; then
    for name in SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE CURL_CA_BUNDLE; do
        export "$name=/run/secrets/ca"
    done
fi
if [ -s /run/secrets/network ]; then
    set -a
    # shellcheck source=/dev/null
    . /run/secrets/network
    set +a
fi
[ -z "${UV_DEFAULT_INDEX:-}" ] || export PIP_INDEX_URL="$UV_DEFAULT_INDEX"
exec "$@"
