#!/usr/bin/env bash
# How many system calls `rialto serve` makes for one statement of pgbench's tpcb-like transaction (seven of them), by strace.
# Tracing makes the server several times slower, so groups are smaller and threads sleep more than without. See --help.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

usage() {
    cat <<'TEXT'
usage: bench/peers/calls.sh [options]
  -s N              pgbench's scale [default: 10]
  --transactions N  transactions counted, of all clients together [default: 3200]
  --clients LIST    numbers of clients [default: 1,32]
  --rialto PATH     the program [default: target/release/rialto of this tree, built if it is not there]
  --data DIR        where the temporary directory is made [default: $TMPDIR or /tmp]
Needs pgbench (Debian's postgresql-contrib) and strace.
TEXT
}

die() {
    echo "error: $*" >&2
    exit 2
}

scale=10 transactions=3200 clients=1,32 rialto="" data="${TMPDIR:-/tmp}"
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        -s | --transactions | --clients | --rialto | --data)
            [ $# -ge 2 ] || die "$1 needs a value"
            case "$1" in
                -s) scale="$2" ;;
                --transactions) transactions="$2" ;;
                --clients) clients="$2" ;;
                --rialto) rialto="$2" ;;
                --data) data="$2" ;;
            esac
            shift 2
            ;;
        *) usage >&2 && die "unknown option $1" ;;
    esac
done
for number in "$scale" "$transactions" ${clients//,/ }; do
    [[ "$number" =~ ^[1-9][0-9]*$ ]] || die "\"$number\": expected a whole number above zero"
done
for tool in pgbench strace; do
    command -v "$tool" >/dev/null || die "$tool is not there: install Debian's packages postgresql-contrib and strace"
done
if [ -z "$rialto" ]; then
    rialto="$here/../../target/release/rialto"
    [ -x "$rialto" ] || (cd "$here/../.." && cargo build --release --locked >&2)
fi
[ -x "$rialto" ] || die "$rialto is not there, or no program"

work="$(mktemp -d "$data/rialto-calls.XXXXXX")"
server="" tracer=""
stop() {
    local status=$?
    trap - EXIT INT TERM
    for pid in $tracer $server; do
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$work/socket"
"$rialto" serve --data "$work/data" --listen none --port 5432 --socket-dir "$work/socket" >"$work/serve.log" 2>&1 &
server=$!
for _ in $(seq 100); do
    ! grep -q '^ready' "$work/serve.log" || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
grep -q '^ready' "$work/serve.log" || { cat "$work/serve.log" >&2; die "the server did not start"; }
on() { pgbench -h "$work/socket" -p 5432 -U bench "$@" bench; }
on -i -q -s "$scale" >"$work/load.log" 2>&1 || { cat "$work/load.log" >&2; die "loading scale $scale failed"; }

echo "system calls of rialto serve for one statement of pgbench's tpcb-like transaction, -M prepared, level 3, by strace:"
for n in ${clients//,/ }; do
    each=$((transactions / n > 0 ? transactions / n : 1))
    strace -f -c -o "$work/trace" -p "$server" 2>"$work/strace.log" &
    tracer=$!
    for _ in $(seq 100); do
        ! grep -q attached "$work/strace.log" || break
        kill -0 "$tracer" 2>/dev/null || { cat "$work/strace.log" >&2; die "strace ended; may this user trace?"; }
        sleep 0.1
    done
    on -n -b tpcb-like -M prepared -c "$n" -j "$((n < 2 ? n : 2))" -t "$each" >"$work/run.log" 2>&1 \
        || { cat "$work/run.log" >&2; die "pgbench failed"; }
    kill -TERM "$tracer"
    wait "$tracer" || true
    tracer=""
    # % time, seconds, usecs/call, calls, errors or nothing, name
    sort -k 4 -n -r "$work/trace" | awk -v n="$n" -v statements="$((n * each * 7))" '
        $1 ~ /^[0-9.]+$/ && $NF != "total" {
            sum += $4
            if (++shown <= 5) names = names (shown > 1 ? ", " : "") sprintf("%s %.2f", $NF, $4 / statements)
        }
        END {
            if (sum == 0) { print "strace counted nothing" > "/dev/stderr"; exit 1 }
            printf "  %2d client%s  %.2f  (%s)\n", n, n == 1 ? " " : "s", sum / statements, names
        }'
done
