#!/usr/bin/env bash
# Every measured figure of the pages, unattended, at one commit: what docs/performance.md states between its marks, the
# figures of the papers' experiments, and the tables of docs/dora.md, docs/group-commit.md and docs/system-m.md. It goes into
# a directory of text files, each ending in a JSON line where the program has one. Cheap parts come first; a part whose file
# is there already is left out, so a run that was interrupted goes on where it was. See --help.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"

usage() {
    cat <<'TEXT'
usage: bench/peers/performance.sh OUT [--quick] [--only NAME[,NAME...]]
  OUT       where the files go; data lies in OUT/data meanwhile (up to 20 GB)
  --quick   windows of a second and small banks: tries the script, measures nothing
  --only    some parts (a file OUT/NAME.txt each); --only list prints their names with their minutes
The parts take about three hours together on two cores, after builds of up to 15 minutes. Leave the machine alone
meanwhile.
TEXT
}

die() {
    echo "error: $*" >&2
    exit 2
}

out="" quick="" only=""
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        --quick) quick=yes && shift ;;
        --only) [ $# -ge 2 ] || die "--only needs a value"; only="$2" && shift 2 ;;
        -*) usage >&2 && die "unknown option $1" ;;
        *) [ -z "$out" ] || die "one directory, found \"$out\" and \"$1\""; out="$1" && shift ;;
    esac
done
[ -n "$out" ] || [ "$only" = list ] || { usage >&2 && die "expected a directory"; }

# pick FULL QUICK
pick() { if [ -n "$quick" ]; then echo "$2"; else echo "$1"; fi; }
window="$(pick 3 1)" rounds="$(pick 3 1)" accounts="$(pick 1000000 20000)" pairs="$(pick 6 2)"

failed=() names=()
# part NAME MINUTES COMMAND...: its stdout to OUT/NAME.txt when it has ended well, its stderr to OUT/NAME.log.
part() {
    local name="$1" minutes="$2"
    shift 2
    names+=("$name")
    if [ "$only" = list ]; then
        printf '%-18s %5s min  %s\n' "$name" "$minutes" "$*"
        return
    fi
    [ -z "$only" ] || [[ ",$only," = *",$name,"* ]] || return 0
    if [ -e "$out/$name.txt" ]; then
        echo "$name: there already"
        return
    fi
    echo "$name: about $minutes minutes (now $(date +%H:%M))"
    if "$@" >"$out/$name.part" 2>"$out/$name.log"; then
        mv "$out/$name.part" "$out/$name.txt"
    else
        echo "$name: failed, see $out/$name.log" >&2
        tail -n 3 "$out/$name.log" >&2
        failed+=("$name")
    fi
}

describe() {
    sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1
    echo "$(nproc) cores"
    awk '/^MemTotal/ { printf "%.0f GiB\n", $2 / 1048576 }' /proc/meminfo
    echo "$(df --output=fstype "$out" | tail -n 1) on $(df --output=source "$out" | tail -n 1)"
    uname -sr
    rustc --version | cut -d' ' -f1-2
    git -C "$root" log -1 --format='commit %h'
    date -u +%Y-%m-%d
}
bench() { "$root/target/release/rialto" bench tpcb --accounts "$accounts" --json "$@"; }
# One directory a shape; a part leaves nothing that the next one of its kind would have to recover first.
fresh() {
    rm -rf "$out/data/bank" "$out/data/bank-versus"
    bench --data "$out/data/bank" "$@"
}
row() { fresh --seconds "$window" --warmup 1 --repeat "$rounds" --limits "$@"; }
# Without checkpoints the log of all pairs has to fit; with them it has its default bound.
# versus WARMUP SECONDS OPTIONS
versus() {
    fresh --checkpoint none --log-bytes-max 16000000000 --repeat "$pairs" --warmup "$1" --seconds "$2" \
        --versus "--checkpoint fuzzy --log-bytes-max 4294967296 $3"
}
counted() { cargo run --quiet --release --locked --manifest-path "$root/Cargo.toml" -p "$@"; }
# Threads that own executors beside the same calls in place.
threads() {
    local workload load
    for workload in "tpcb --scale 100" tatp; do
        for load in "--clients 2 --in-flight 512" "--clients 64"; do
            echo "$workload $load"
            # shellcheck disable=SC2086
            "$root/target/release/rialto" bench $workload $load --engine data-oriented --executor-threads 2 \
                --durability memory --disk memory --seconds "$(pick 2 0.1)" --warmup 0.5 --repeat "$pairs" --json \
                --versus '--executor-threads 0'
        done
    done
}
# figures SECONDS ARGUMENTS...
figures() {
    local seconds="$1"
    shift
    "$root/target/release/rialto" figures --seconds "$seconds" --rounds "$(pick 5 2)" --out "$out/figures" \
        --data "$out/data/figures" "$@"
}
peers() { "$here/target/release/peers" "$@" --data "$out/data" --json; }

if [ "$only" != list ]; then
    mkdir -p "$out/data"
    out="$(cd "$out" && pwd)"
    (cd "$root" && cargo build --release --locked)
    (cd "$here" && cargo build --release --locked ${PEERS_FEATURES:+--features "$PEERS_FEATURES"})
fi

many="$(pick 1000 100)"
part machine 0 describe
part instructions 2 counted rialto-figures --example steady -- "$root/.ci/gates"
part session 1 counted rialto-server --example steady_session -- "$root/.ci/gates.session"
part clients-1 1 row --clients 1
part clients-8 1 row --clients 8
part clients-32 1 row --clients 32
part clients-32-many 1 row --clients 32 --scale "$many"
part tickets 1 row --clients 2 --in-flight 512
part tickets-many 1 row --clients 2 --in-flight 512 --scale "$many"
part level-1 1 row --clients 1 --durability memory
part sweeps-always 4 versus 2 "$(pick 15 1)" "--checkpoint-interval-s $(pick 5 0)"
part recovery 5 peers recovery --accounts "$accounts" --transactions "$accounts" --rounds "$rounds"
part recovery-large 3 peers recovery --engines rialto --accounts "$(pick 10000000 100000)" \
    --transactions "$(pick 5000000 50000)" --rounds "$rounds"
part peers-many 3 peers --branches "$many" --accounts "$accounts" --clients 32 --seconds "$window" \
    --rounds "$rounds" --durable-only
part peers 6 peers --accounts "$accounts" --clients 1,8,32 --seconds "$window" --rounds "$rounds"
# The first sweep begins half a minute after the opening and takes as long.
part sweeps-default 14 versus "$(pick 28 1)" "$(pick 35 1)" ''
part curve 8 peers curve --accounts "$accounts" --seconds "$(pick 3 0.3)" --rounds "$rounds" --svg "$out/latency.svg"
part pgbench 6 "$here/pgbench.sh" -s "$(pick 100 1)" --seconds "$(pick 5 1)" --rounds "$rounds" --data "$out/data"
part calls 1 "$here/calls.sh" -s "$(pick 10 1)" --data "$out/data"
part threads 6 threads
part adaptive 6 "$root/bench/adaptive.sh" "$out/data/log" --pairs "$pairs" --seconds "$(pick 1 0.1)" \
    --clients "$(pick '1 2 8 32 64 128 512 2x5000' '1 2x500')"
part m-cost 11 "$root/bench/m-cost.sh" "$out/data/m-cost" --seconds "$(pick 2 0.2)" --pairs "$(pick 5 2)"
part figures-koda 14 figures "$(pick 1 0)" --commits "$(pick 10000 100)" \
    koda-6 koda-7 koda-8 koda-t1 koda-t2 koda-formulas koda-designs koda-patience koda-adaptive
part figures-koda-disk 2 figures "$(pick 3 0.05)" koda-1 koda-2 koda-3
part figures-m 16 figures "$(pick 0.5 0.01)" m-4.1 m-4.2 m-4.3 m-4.4
part figures-dora 35 figures "$(pick 0.5 0.04)" \
    dora-1 dora-2 dora-3 dora-5 dora-6 dora-7 dora-8 dora-10 dora-11
part ten-minutes-tickets 11 fresh --rate 60000 --clients 2 --in-flight 64 --seconds "$(pick 600 3)"
part ten-minutes 11 fresh --rate 50% --seconds "$(pick 600 3)"

[ "$only" != list ] || exit 0
rm -rf "$out/data"
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
cat <<TEXT
all is in $out. Into docs/performance.md:
  cp $out/latency.svg $root/docs/latency.svg
  cp $out/figures/* $root/docs/figures/
  $here/target/release/peers performance $out --into $root/docs/performance.md
TEXT
