#!/usr/bin/env bash
# What recovery readiness costs: each checkpointing strategy against logging and checkpoints off, on TPC-B and on the credit
# cards. See --help.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"

usage() {
    cat <<'TEXT'
usage: bench/m-cost.sh DIR [--seconds S] [--pairs N] [--load 'OPTIONS']
  DIR        where the data lies meanwhile, on the disk to measure; made, and gone at the end
  --seconds  of each window (2)
  --pairs    of each comparison, 2 or more (5, the fewest with an interval of 90%)
  --load     how the load is made ('--clients 2 --in-flight 1000': with blocking clients, runs without a log would be
             compared with the disk)
Prints the throughput that each strategy loses, the median of pairs of runs that take turns, with its interval and its target.
Sweeps go at the pace of the product's default, through all memory in 30 s; since a window is shorter, the pace is given in
bytes, and one sweep follows the other. (Unpaced ones: rialto figures m-4.1.) About eleven minutes; leave the machine alone
meanwhile. Builds the program first, if that is not up to date.
TEXT
}

dir="" seconds=2 pairs=5 load="--clients 2 --in-flight 1000"
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        --seconds) seconds="$2" && shift 2 ;;
        --pairs) pairs="$2" && shift 2 ;;
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
failed=0

# WORKLOAD NAME TARGET BASE OTHER: the base over the other, as the share that the other loses.
compare() {
    rm -rf "$dir"
    mkdir -p "$dir"
    # The options are words: shellcheck disable=SC2086
    if ! "$rialto" bench "$1" $load --seconds "$seconds" --warmup 0.5 --repeat "$pairs" --data "$dir/$1" $4 \
        --versus "$5" >"$dir/result" 2>"$dir/log"; then
        printf '%-8s %-34s failed: %s\n' "$1" "$2" "$(tail -n 1 "$dir/log")"
        failed=1
        return
    fi
    if ! line=$(grep '^  transactions/s ' "$dir/result"); then
        printf '%-8s %-34s  100.0%%  in a run, which committed nothing; the last: %s\n' "$1" "$2" "$(tail -n 1 "$dir/log")"
        return
    fi
    # The ratios are the base's: 1.25, 1.20 to 1.30 with 93.8%. Their inverses say what is left.
    printf '%s\n' "$line" | tr -d ',' | awk -v workload="$1" -v name="$2" -v target="$3" '{
        lost = (1 - 1 / $2) * 100; low = (1 - 1 / $3) * 100; high = (1 - 1 / $5) * 100
        verdict = target == "-" ? "" : (high <= target ? "met" : (lost <= target ? "met by the median" : (low <= target ? "missed by the median" : "missed")))
        printf "%-8s %-34s %6.1f%%  %6.1f%% to %5.1f%% with %-6s target %3s%%  %s\n", workload, name, lost, low, high, $7, target, verdict
    }'
}

off="--logging none --checkpoint none"
printf 'throughput lost, medians of %s pairs of %s s; %s\n' "$pairs" "$seconds" "$load"
for workload in card tpcb; do
    # Memory by 30 s: some 18 MB of cards, some 180 MB of a bank of a million accounts.
    case $workload in card) pace=600000 ;; *) pace=6000000 ;; esac
    sweep="--sweep-bytes-per-s $pace --checkpoint-interval-s 0.5"
    compare $workload "FUZZY VALUE, its sweeps alone" 5 "--checkpoint none" "--checkpoint fuzzy $sweep"
    compare $workload "FUZZY VALUE, in all" 15 "$off" "--logging value --checkpoint fuzzy $sweep"
    for strategy in accou acbw tccou; do
        upper=$(echo $strategy | tr a-z A-Z)
        compare $workload "$upper VALUE, in all" 25 "$off" "--logging value --checkpoint $strategy $sweep"
    done
    compare $workload "TCBW VALUE, with its retries" - "$off" "--logging value --checkpoint tcbw $sweep"
done
rm -rf "$dir"
exit $failed
