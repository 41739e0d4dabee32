#!/bin/busybox sh
# What runs in the guest of peers_in_guest.py. /job sets SYSTEM, BOOT (first or again), PASSES, IDLE_S, OPTIONS and END.
# Lines for the host begin with "@ ". /dev/vda is the SSD, /dev/vdb the HDD, /dev/vdc holds what bathyd keeps beside them.
/bin/busybox mkdir -p /dev /proc /sys /run /state /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
exec >/dev/ttyS0 2>&1
for module in $(cat /modules/order); do insmod "/modules/$module"; done
. /job

fail() {
    echo "@ failed $*"
    dmesg | tail -n 20
    poweroff -f
}

sectors() { cat "/sys/block/$1/size"; }

# Stop waiting for a condition after 60 s: nothing here takes longer, even in an emulated processor.
await() {
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    fail "waited 60 s for: $*"
}

attach_bcache() {
    [ "$BOOT" = again ] || make-bcache $OPTIONS -C /dev/vda -B /dev/vdb >/dev/null || fail make-bcache
    echo /dev/vda >/sys/fs/bcache/register
    echo /dev/vdb >/sys/fs/bcache/register
    await test -b /dev/bcache0
    await test -e /sys/block/bcache0/bcache/cache
    # Above these latencies bcache goes past the SSD; the latencies of an emulated machine mean nothing.
    for direction in read write; do echo 0 >"/sys/block/bcache0/bcache/cache/congested_${direction}_threshold_us"; done
    [ -z "$CUTOFF" ] || echo "$CUTOFF" >/sys/block/bcache0/bcache/sequential_cutoff
    TARGET=/dev/bcache0
}
counters_bcache() {
    cd /sys/block/bcache0/bcache/stats_total
    cat cache_hits cache_misses cache_bypass_hits cache_bypass_misses
    cd /
}
capacity_bcache() {
    cd /sys/block/bcache0/bcache/cache/cache0
    cat nbuckets bucket_size
    cd /
}

META_SECTORS=8192
attach_dm_cache() {
    # No udev runs here that would make the nodes below /dev/mapper.
    export DM_DISABLE_UDEV=1
    dmsetup create meta --table "0 $META_SECTORS linear /dev/vda 0" &&
        dmsetup create ssd --table "0 $(($(sectors vda) - META_SECTORS)) linear /dev/vda $META_SECTORS" &&
        dmsetup create cached --table "0 $(sectors vdb) cache /dev/mapper/meta /dev/mapper/ssd /dev/vdb $OPTIONS" ||
        fail dmsetup
    TARGET=/dev/mapper/cached
}
counters_dm_cache() { dmsetup status cached; }
capacity_dm_cache() { dmsetup table cached; }

SOCKET=/run/bathyd
ask_bathyd() { replay ask $SOCKET '{"query":"status"}'; }
start_bathyd() {
    rm -f $SOCKET
    bathyd /config.json &
    DAEMON=$!
    await ask_bathyd
}
attach_bathyd() {
    mount -t ext4 /dev/vdc /state || fail mount
    [ "$BOOT" != first ] || bathyd create /config.json || fail create
    start_bathyd
    TARGET=/state/osd/block
}
counters_bathyd() { ask_bathyd; }
capacity_bathyd() { :; }

# The counts of both disks (Documentation/block/stat.rst) and of the cache. Begins a new line, whatever was printed before.
mark() {
    echo
    for disk in vda vdb; do echo "@ disk $1 $disk $(cat /sys/block/$disk/stat)"; done
    echo "@ counters $1" $(counters_$SYSTEM)
}

attach_$SYSTEM
echo
echo "@ capacity" $(capacity_$SYSTEM)
for pass in $PASSES; do
    if [ "$pass" = after-kill ]; then
        kill -9 $DAEMON
        wait $DAEMON 2>/dev/null
        start_bathyd
    fi
    mark "before-$pass"
    replay run /trace $TARGET || fail replay
    # bcache publishes its counters only now and then, and dm-cache moves blocks after the requests that asked for them.
    sleep $IDLE_S
    mark "$pass"
done
echo "@ done"
[ "$END" = cut ] && sleep 600
poweroff -f
