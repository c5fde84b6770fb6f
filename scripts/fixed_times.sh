#!/bin/sh
# Inside images: the shell of every RUN. Runs the command, then gives all that it made or changed a fixed time, the
# step's own, and takes away what holds a clock reading, so that the same build makes the same layer, byte for byte.
#
#   SHELL ["/usr/local/bin/fixed-times", "-c"]     also for a server's own Dockerfile, which inherits it
#
# A command may set SOURCE_DATE_EPOCH for itself. What a user other than root may not touch stays as it is.
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-1754697600}" # FIXED_TIME of gymctl/images/context.py

# The kernel's file times lag behind its clock by up to 10 ms.
began=$(date +%s.%N -d '-0.02 seconds')
/bin/sh "$@" || exit $?

# Logs, caches that hold file times, and locks of uv, named by folders that a package from sources is built in.
rm -rf /tmp/uv-*.lock /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache \
    /var/cache/apt/pkgcache.bin /var/cache/apt/srcpkgcache.bin 2>/dev/null

changed() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run/secrets \) -prune \
        -o -newerct "@$began" "$@" 2>/dev/null
}
# What uv notes of a package that it built from a folder.
changed -type f -name uv_cache.json -print | while IFS= read -r file; do
    sed -i '/\/uv_cache\.json,/d' "${file%/*}/RECORD" && rm "$file"
done

# An engine that has two equal copies of the step before may compare this one with the other copy: by size and time
# alone, and without folders in which nothing changed. So no two steps share a time, and in the folders in which the
# engine makes places for mounts before the command runs, something always changes: a dot for each step.
for place in /etc /run /tmp /var/cache; do
    [ ! -d "$place" ] || printf . >>"$place/.fixed-times"
done 2>/dev/null
number=$(printf '%s' "$(cat /etc/.fixed-times 2>/dev/null)$*" | cksum)
time="@$((SOURCE_DATE_EPOCH - ${number%% *} % 10000000))" # within four months
touch -h -c -d "$time" /etc /run /tmp /var/cache 2>/dev/null
changed -print0 | xargs -0 -r touch -h -c -d "$time" 2>/dev/null
exit 0
