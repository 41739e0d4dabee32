#!/bin/bash
# A Ceph cluster as somebody else built it: by hand, from Debian's packages, with nothing of this project's code.
#
#   cluster.sh up DIR PORT      one monitor, one manager, three OSDs on files; an operator's settings; a customer
#   cluster.sh down DIR         end its processes; DIR itself stays
#   cluster.sh client DIR CMD…  run a command on a "client machine": DIR/etc is its /etc/ceph, DIR/hosts its /etc/hosts
#
# Everything lies in DIR, whose path must be short (sockets). The ports PORT and PORT+1 of 127.0.0.1 must be free.
set -euo pipefail

up() {
    local dir=$1 port=$2
    local etc=$dir/etc fsid
    fsid=$(cat /proc/sys/kernel/random/uuid)
    export CEPH_CONF=$etc/ceph.conf
    mkdir -p "$dir"/{etc,run,log,mon,mgr,osd.0,osd.1,osd.2}
    printf '127.0.0.1 localhost\n127.0.0.1 %s\n127.0.0.2 client1\n127.0.0.3 client2\n' "$(hostname)" > "$dir/hosts"
    cat > "$CEPH_CONF" <<CONF
# Written by hand in 2021.
[global]
fsid = $fsid
mon initial members = alpha
mon host = [v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]
ms bind ipv6 = false
keyring = $etc/\$cluster.\$name.keyring
run dir = $dir/run
log file = $dir/log/\$name.log
pid file = $dir/run/\$name.pid
admin socket = $dir/run/\$name.asok
crash dir = $dir/log
osd pool default size = 3
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0

[client]
admin socket = $dir/run/\$name.\$pid.asok
log file =
pid file =

[mon]
mon data = $dir/mon
mon cluster log file = $dir/log/cluster.log
# Nobody deletes a pool here by accident.
mon allow pool delete = false
mon data avail warn = 2
mon data avail crit = 1

[mgr]
mgr data = $dir/mgr

[osd]
osd data = $dir/osd.\$id
osd objectstore = bluestore
bluestore block size = 12884901888
bluestore block create = true
osd memory target = 939524096
CONF
    # The monitor.
    ceph-authtool --create-keyring "$etc/ceph.mon.alpha.keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool --create-keyring "$etc/ceph.client.admin.keyring" --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *' --cap mds 'allow *'
    ceph-authtool "$etc/ceph.mon.alpha.keyring" --import-keyring "$etc/ceph.client.admin.keyring"
    ceph-mon --mkfs -i alpha --keyring "$etc/ceph.mon.alpha.keyring" --fsid "$fsid"
    ceph-mon -i alpha
    ceph --connect-timeout 60 config set mon auth_allow_insecure_global_id_reclaim false
    # SMART values of files: there are none, and the pool for them is not wanted.
    ceph config set mgr mgr/devicehealth/enable_monitoring false --force
    # The manager.
    ceph auth get-or-create mgr.beta mon 'allow profile mgr' osd 'allow *' mds 'allow *' \
        -o "$etc/ceph.mgr.beta.keyring"
    ceph-mgr -i beta
    # The OSDs.
    local id uuid
    for id in 0 1 2; do
        uuid=$(cat /proc/sys/kernel/random/uuid)
        ceph osd new "$uuid" > /dev/null
        ceph auth get-or-create "osd.$id" mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' \
            -o "$etc/ceph.osd.$id.keyring"
        ceph-osd -i "$id" --mkfs --osd-uuid "$uuid" 2> "$dir/log/mkfs.$id"
        ceph-osd -i "$id"
    done
    settings
    customer "$dir"
}

# What this operator has chosen; no visitor may change it.
settings() {
    ceph osd set noscrub
    ceph osd set nodeep-scrub
    ceph config set osd osd_op_history_size 50
    ceph config set osd.2 osd_op_history_duration 300
    ceph config set osd osd_max_backfills 2
    ceph config set mgr mgr/balancer/upmap_max_deviation 3 --force
    local id
    for id in 0 1 2; do
        until ceph tell "osd.$id" version > /dev/null 2>&1; do sleep 0.5; done
    done
    ceph tell osd.1 config set osd_op_history_size 77
    ceph tell osd.0 config set osd_op_complaint_time 25
}

# A customer who writes and reads 50 times a second, day and night.
customer() {
    local dir=$1
    ceph osd crush rule create-replicated theirs default osd
    ceph osd pool create customers 16 16 replicated theirs
    ceph osd pool set customers nodelete true
    rbd pool init customers
    ceph osd pool set-quota customers max_bytes 4294967296
    ceph auth get-or-create client.customer mon 'profile rbd' osd 'profile rbd pool=customers' \
        -o "$dir/etc/ceph.client.customer.keyring"
    rbd create --size 256M customers/vm1
    rbd snap create customers/vm1@monday
    fio --name=fill --thread --ioengine=rbd --clientname=customer --pool=customers --rbdname=vm1 --rw=write --bs=4M \
        --iodepth=4 > /dev/null
    until ceph pg stat | grep -q '^17 pgs: 17 active+clean\|^16 pgs: 16 active+clean'; do sleep 0.5; done
    (
        cd "$dir"
        fio --name=customer --thread --ioengine=rbd --clientname=customer --pool=customers --rbdname=vm1 --rw=randrw \
            --bs=4k --iodepth=4 --rate_iops=25,25 --time_based --runtime=86400 --randrepeat=0 \
            --output-format=json --output="$dir/log/customer.json" > /dev/null 2>&1 &
        echo $! > "$dir/run/fio.customer.pid"
    )
}

down() {
    local dir=$1 file pid
    # The customer first, so that it can close its image; the monitor last.
    for file in "$dir"/run/{fio.customer,osd.0,osd.1,osd.2,mgr.beta,mon.alpha}.pid; do
        [ -s "$file" ] || continue
        pid=$(tr -cd 0-9 < "$file")
        # Only a process that was started here: its command line or its environment names this cluster.
        if tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null | grep -qx "CEPH_CONF=$dir/etc/ceph.conf"; then
            kill "$pid"
            for _ in $(seq 100); do
                [ -d "/proc/$pid" ] || break
                sleep 0.1
            done
            kill -9 "$pid" 2> /dev/null || true
        fi
        rm -f "$file"
    done
}

client() {
    local dir=$1
    shift
    # shellcheck disable=SC2016 # expanded by the inner shell
    exec unshare --mount --propagation private sh -c \
        'mount --bind "$0/etc" /etc/ceph && mount --bind "$0/hosts" /etc/hosts && exec "$@"' "$dir" "$@"
}

verb=${1:?up, down or client}
: "${2:?give a directory}"
shift
case $verb in up | down | client) "$verb" "$@" ;; *) exit 2 ;; esac
