#!/usr/bin/env bash
# Whether recoveries take as long as was asked for: kills `rialto bench` under load, again and again, and sets what the recovery
# of what it leaves takes against the target. See --help.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"

usage() {
    cat <<'TEXT'
usage: bench/recovery-within.sh DIR [--within S] [--kills N] [--run S] [--workload tpcb|card] [--load 'OPTIONS']
  DIR         where the data lies meanwhile, on the disk to measure; made, and gone at the end
  --within    the target in seconds (2)
  --kills     how many are counted; three more before them, which measure what recoveries cost here (10)
  --run       about how long the load runs before each, in seconds: 1 to 2 times this (6)
  --workload  (tpcb)
  --load      how the load is made ('--clients 2 --in-flight 1000 --durability memory --rate 30000':
              without a rate the history grows so fast that loading it alone soon takes longer)
Prints for each kill what `rialto inspect` predicts, what the recovery takes, and that as a share of the target; at the end the
median and the worst share, and how many lie within 1.25. A target that loading alone does not keep is told by the load.
Leave the machine alone meanwhile: a recovery shares it with whatever else runs, and the load that set its pace did too.
Builds the program first, if RIALTO does not name one.
TEXT
}

dir="" within=2 kills=10 run=6 workload=tpcb load="--clients 2 --in-flight 1000 --durability memory --rate 30000"
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        --within) within="$2" && shift 2 ;;
        --kills) kills="$2" && shift 2 ;;
        --run) run="$2" && shift 2 ;;
        --workload) workload="$2" && shift 2 ;;
        --load) load="$2" && shift 2 ;;
        -*) usage >&2 && exit 2 ;;
        *) dir="$1" && shift ;;
    esac
done
[ -n "$dir" ] || { usage >&2 && exit 2; }
rialto="${RIALTO:-}"
if [ -z "$rialto" ]; then
    (cd "$root" && cargo build --quiet --release --locked -p rialto-cli)
    rialto="$root/target/release/rialto"
fi
rm -rf "$dir"
mkdir -p "$dir"
data="$dir/data"

# Seconds of the first time in a line of `inspect`: "predicted: 1.2 s: load …" or "took, …: 850 ms: …".
seconds() {
    sed -nE "s/^recovery +$1[^:]*: ([0-9.]+) (s|ms|us).*/\1 \2/p" "$dir/inspect" |
        awk '{ print $2 == "s" ? $1 : $2 == "ms" ? $1 / 1e3 : $1 / 1e6 }'
}

printf '%s, %s; target %s s\n' "$workload" "$load" "$within"
shares=()
for kill in $(seq -2 "$kills"); do
    # The options are words: shellcheck disable=SC2086
    "$rialto" bench "$workload" $load --warmup 0 --seconds $((3 * run + 20)) --data "$data" \
        --recovery-within-s "$within" >/dev/null 2>"$dir/log" &
    bench=$!
    # Until it runs, and then some.
    until grep -q 'transactions/s' "$dir/log" || ! kill -0 "$bench" 2>/dev/null; do sleep 0.1; done
    sleep "$(awk -v run="$run" -v random="$RANDOM" 'BEGIN { print run * (1 + random / 32768) }')"
    kill -KILL "$bench" || { cat "$dir/log" >&2 && exit 1; }
    wait "$bench" 2>/dev/null || true
    "$rialto" inspect "$data" >"$dir/inspect"
    predicted="$(seconds predicted)" took="$(seconds took)"
    share="$(awk -v took="$took" -v within="$within" 'BEGIN { printf "%.2f", took / within }')"
    if [ "$kill" -gt 0 ]; then shares+=("$share"); fi
    printf '%-9s predicted %6.2f s  took %6.2f s  of the target %s\n' \
        "$([ "$kill" -gt 0 ] && echo "kill $kill" || echo measures)" "$predicted" "$took" "$share"
done
printf '%s\n' "${shares[@]}" | sort -n | awk '
    { share[NR] = $1; kept += $1 <= 1.25 }
    END { printf "of the target: median %.2f, worst %.2f; %d of %d within 1.25\n", share[int((NR + 1) / 2)], share[NR], kept, NR }'
rm -rf "$dir"
