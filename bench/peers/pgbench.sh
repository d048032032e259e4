#!/usr/bin/env bash
# pgbench against a private PostgreSQL and against `rialto serve`, in alternating runs; prints medians and ratios.
# Both are durable (synchronous_commit on; level 3), both on Unix sockets only, both in one temporary directory. What it
# starts it stops, and the directory goes. See --help.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

usage() {
    cat <<'TEXT'
usage: bench/peers/pgbench.sh [options]
  -s N              pgbench's scale: N branches, N times 100,000 accounts [default: 10]
  --seconds N       length of one run [default: 5]
  --rounds N        runs of each server, script and number of clients [default: 5]
  --clients LIST    numbers of clients [default: 1,32]
  --threads N       pgbench's threads, at most one a client [default: 2]
  --rialto PATH     the program [default: target/release/rialto of this tree, built if it is not there]
  --data DIR        where the temporary directory is made [default: $TMPDIR or /tmp]
TEXT
}

die() {
    echo "error: $*" >&2
    exit 2
}

scale=10 seconds=5 rounds=5 clients=1,32 threads=2 rialto="" data="${TMPDIR:-/tmp}"
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        -s | --seconds | --rounds | --clients | --threads | --rialto | --data)
            [ $# -ge 2 ] || die "$1 needs a value"
            case "$1" in
                -s) scale="$2" ;;
                --seconds) seconds="$2" ;;
                --rounds) rounds="$2" ;;
                --clients) clients="$2" ;;
                --threads) threads="$2" ;;
                --rialto) rialto="$2" ;;
                --data) data="$2" ;;
            esac
            shift 2
            ;;
        *) usage >&2 && die "unknown option $1" ;;
    esac
done
for number in "$scale" "$seconds" "$rounds" "$threads" ${clients//,/ }; do
    [[ "$number" =~ ^[1-9][0-9]*$ ]] || die "\"$number\": expected a whole number above zero"
done

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}
# PostgreSQL refuses to run as root.
as_postgres() {
    if [ "$(id -u)" -eq 0 ]; then (cd / && exec runuser -u postgres -- "$@"); else "$@"; fi
}
# Debian keeps the server's programs out of the path, one directory for each version; the newest.
postgres_bin() {
    local initdb
    initdb="$({ ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null || command -v initdb || true; } | sort -V | tail -n 1)"
    [ -n "$initdb" ] && dirname "$(readlink -f "$initdb")"
}
if ! postgres_bin >/dev/null || ! command -v pgbench >/dev/null || ! command -v psql >/dev/null; then
    echo "installing postgresql" >&2
    as_root apt-get update -q >&2
    # No cluster of Debian's own is made, nor started.
    as_root mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] \
        || echo "create_main_cluster = false" | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends postgresql postgresql-contrib postgresql-client >&2
fi
bin="$(postgres_bin)" || die "initdb is not there after installing postgresql"
if [ -z "$rialto" ]; then
    rialto="$here/../../target/release/rialto"
    [ -x "$rialto" ] || (cd "$here/../.." && cargo build --release --locked >&2)
fi
[ -x "$rialto" ] || die "$rialto is not there, or no program"

work="$(mktemp -d "$data/rialto-pgbench.XXXXXX")"
chmod 755 "$work"
rialto_pid="" postgres_pid=""
stop() {
    local status=$?
    trap - EXIT INT TERM
    # Both are children of this script, so that waiting for them leaves nothing of them.
    if [ -n "$rialto_pid" ]; then
        kill -TERM "$rialto_pid" 2>/dev/null || true
        wait "$rialto_pid" 2>/dev/null || true
    fi
    if [ -n "$postgres_pid" ]; then
        as_postgres "$bin/pg_ctl" -D "$work/postgres" -m fast -w stop >/dev/null 2>&1 \
            || as_postgres "$bin/pg_ctl" -D "$work/postgres" -m immediate -w stop >/dev/null 2>&1 || true
        wait "$postgres_pid" 2>/dev/null || true
    fi
    rm -rf "$work"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

connections=0
for n in ${clients//,/ }; do connections=$((n > connections ? n : connections)); done
connections=$((connections + 16))

# PostgreSQL: everything in memory, rare checkpoints, no replication; full page writes and fsync stay on, as durability
# needs them.
mkdir "$work/postgres" "$work/postgres-socket" "$work/rialto-socket"
[ "$(id -u)" -ne 0 ] || chown postgres "$work/postgres" "$work/postgres-socket"
as_postgres "$bin/initdb" -D "$work/postgres" -U bench -A trust -E UTF8 --locale=C >"$work/initdb.log" 2>&1 \
    || { cat "$work/initdb.log" >&2; die "initdb failed"; }
buffers_mb=$((128 + scale * 32))
cat >>"$work/postgres/postgresql.conf" <<TEXT
listen_addresses = ''
unix_socket_directories = '$work/postgres-socket'
port = 5432
max_connections = $connections
shared_buffers = ${buffers_mb}MB
synchronous_commit = on
fsync = on
full_page_writes = on
wal_level = minimal
max_wal_senders = 0
wal_buffers = 64MB
max_wal_size = 8GB
checkpoint_timeout = 30min
jit = off
TEXT
as_postgres "$bin/postgres" -D "$work/postgres" >"$work/postgres.log" 2>&1 &
postgres_pid=$!
"$rialto" serve --data "$work/rialto" --listen none --port 5432 --socket-dir "$work/rialto-socket" \
    --max-connections "$connections" >"$work/rialto.log" 2>&1 &
rialto_pid=$!

on() { # NAME PROGRAM ARGUMENTS: with the server's socket
    local name="$1" program="$2"
    shift 2
    "$program" -h "$work/$name-socket" -p 5432 -U bench "$@"
}
answers() { # NAME PID
    for _ in $(seq 100); do
        on "$1" psql -At -d postgres -c "select 1" >/dev/null 2>&1 && return
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/$1.log" >&2
    die "$1 did not start"
}
answers postgres "$postgres_pid"
answers rialto "$rialto_pid"
on postgres psql -q -d postgres -c "create database bench"
for name in postgres rialto; do
    echo "loading scale $scale into $name" >&2
    on "$name" pgbench -i -q -s "$scale" bench >"$work/load.log" 2>&1 \
        || { cat "$work/load.log" >&2; die "loading into $name failed"; }
done
on postgres psql -q -d bench -c checkpoint

# One line for each run: script, clients, round, server, transactions/s, p50 and p99 of one client in us or "-".
results="$work/results"
run() { # SCRIPT CLIENTS ROUND SERVER
    local script="$1" n="$2" round="$3" name="$4" per_s percentiles="- -"
    local log=() out="$work/run.log"
    # Each transaction's latency, for one client only: writing them takes pgbench's time.
    [ "$n" -ne 1 ] || log=(-l "--log-prefix=$work/latencies")
    on "$name" pgbench -n -b "$script" -M prepared -c "$n" -j $((threads < n ? threads : n)) -T "$seconds" "${log[@]}" bench >"$out" 2>&1 \
        || { cat "$out" >&2; die "pgbench against $name failed"; }
    per_s="$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$out")"
    [ -n "$per_s" ] || { cat "$out" >&2; die "pgbench against $name printed no tps"; }
    if [ "$n" -eq 1 ]; then
        percentiles="$(cat "$work"/latencies.* | awk '{ print $3 }' | sort -n \
            | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)], at[int(NR * 0.99) + (NR < 100)] }')"
        rm -f "$work"/latencies.*
    fi
    echo "$script $n $round $name $per_s $percentiles" >>"$results"
    echo "  $script, $n clients, round $round of $rounds, $name: ${per_s%.*} transactions/s" >&2
}
for script in tpcb-like select-only; do
    for n in ${clients//,/ }; do
        for round in $(seq "$rounds"); do
            order="postgres rialto"
            [ $((round % 2)) -eq 1 ] || order="rialto postgres"
            for name in $order; do run "$script" "$n" "$round" "$name"; done
        done
    done
done

# Rialto's SQL has no sum(): the rows are added up here, a part of the accounts at a time, as psql keeps what it reads.
sum() { # SERVER COLUMN TABLE
    on "$1" psql -At -d bench -c "select $2 from pgbench_$3" | awk '{ sum += $1 } END { printf "%.0f", sum }'
}
sum_accounts() { # SERVER
    local step=$((1000 * 1000)) from
    for from in $(seq 1 "$step" $((scale * 100000))); do
        on "$1" psql -At -d bench -c \
            "select abalance from pgbench_accounts where aid >= $from and aid < $((from + step))"
    done | awk '{ sum += $1 } END { printf "%.0f", sum }'
}
consistent=yes
books=""
for name in postgres rialto; do
    accounts="$(sum_accounts "$name")" tellers="$(sum "$name" tbalance tellers)"
    branches="$(sum "$name" bbalance branches)" history="$(sum "$name" delta history)"
    if [ "$accounts" = "$history" ] && [ "$tellers" = "$history" ] && [ "$branches" = "$history" ]; then
        books="$books  $name: balances and history add up to $history"$'\n'
    else
        consistent=no
        books="$books  $name: INCONSISTENT: accounts $accounts, tellers $tellers, branches $branches, history $history"$'\n'
    fi
done

cpu="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
echo "pgbench -M prepared -j $threads -s $scale, Unix sockets, both durable; $("$bin/postgres" --version)"
echo "$cpu, $(nproc) cores, $(uname -sr); $rounds rounds of $seconds s, alternating; medians (least to most)"
echo
awk '
    function sorted(list, n,    i, j, swap) {
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && list[j - 1] > list[j]; j--) { swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap }
    }
    function middle(list, n) { return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2 }
    # The spread of column `field` of the runs of `key`: of one server, or of the quotients of both.
    function spread(key, field, how, format,    round, n, list, own, peer) {
        n = 0
        for (round = 1; round <= rounds; round++) {
            own = value[key, "rialto", round, field]; peer = value[key, "postgres", round, field]
            list[++n] = how == "ratio" ? (peer > 0 ? own / peer : 0) : value[key, how, round, field]
        }
        sorted(list, n)
        return sprintf(format " (" format " to " format ")", middle(list, n), list[1], list[n])
    }
    {
        key = $1 SUBSEP $2
        if (!(key in seen)) { seen[key] = 1; keys[++count] = key }
        for (field = 5; field <= 7; field++) value[key, $4, $3, field] = $field
        if ($3 > rounds) rounds = $3
    }
    END {
        printf "  %-24s  %28s  %28s  %24s\n", "", "rialto", "postgres", "rialto : postgres"
        for (k = 1; k <= count; k++) {
            split(keys[k], part, SUBSEP)
            name = part[1] ", " part[2] (part[2] == 1 ? " client" : " clients")
            row = "  %-24s  %28s  %28s  %24s\n"
            printf row, name, spread(keys[k], 5, "rialto", "%.0f"), spread(keys[k], 5, "postgres", "%.0f"), \
                spread(keys[k], 5, "ratio", "%.2f")
            if (part[2] != 1) continue
            for (field = 6; field <= 7; field++)
                printf row, field == 6 ? "  p50, us" : "  p99, us", spread(keys[k], field, "rialto", "%.0f"), \
                    spread(keys[k], field, "postgres", "%.0f"), spread(keys[k], field, "ratio", "%.2f")
        }
    }' "$results"
echo
printf '%s' "$books"
[ "$consistent" = yes ] || exit 1
