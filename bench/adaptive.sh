#!/usr/bin/env bash
# Adaptive against every other group commit design at its best setting, on a real disk: a table for docs/group-commit.md.
# See --help.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"

usage() {
    cat <<'TEXT'
usage: bench/adaptive.sh DIR [--seconds S] [--pairs N] [--clients 'N N ...']
  DIR        where the logs lie meanwhile, on the disk to measure
  --seconds  of each window (1)
  --pairs    of each comparison (6)
  --clients  their numbers; 2x5000 is two clients with 5,000 tickets each ('1 2 4 8 16 32 64 128 256 512 2x5000')
For each number of clients all designs are tried with several settings, a window each. The best of them then takes turns with
adaptive in pairs; the ratio has its interval. About nine minutes; leave the machine alone meanwhile.
TEXT
}

dir="" seconds=1 pairs=6 clients="1 2 4 8 16 32 64 128 256 512 2x5000"
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        --seconds) seconds="$2" && shift 2 ;;
        --pairs) pairs="$2" && shift 2 ;;
        --clients) clients="$2" && shift 2 ;;
        -*) usage >&2 && exit 2 ;;
        *) dir="$1" && shift ;;
    esac
done
[ -n "$dir" ] || { usage >&2 && exit 2; }

(cd "$root" && cargo build --quiet --release --locked -p rialto-cli)
mkdir -p "$dir"
# Every window in a directory of its own, the log written in one way: what is compared is who writes it, and when.
commit() {
    rm -rf "$dir/log" "$dir/log-versus"
    "$root/target/release/rialto" bench commit --data "$dir/log" --log-writes direct-sync --log-writes-in-flight 1 \
        --seconds "$seconds" --warmup 0.3 --json "$@" 2>>"$dir/errors" | tail -n 1
}

echo "| clients | best of the others | adaptive | the other | adaptive over it |"
echo "|---|---|---|---|---|"
for n in $clients; do
    case "$n" in
        *x*) load="--clients ${n%x*} --in-flight ${n#*x}" ;;
        *) load="--clients $n" ;;
    esac
    best="" most=0
    while read -r design; do
        # shellcheck disable=SC2086
        found="$(commit $load --group-commit $design | awk -F'"committed_per_s": ' '{ print $2 + 0 }')"
        if awk "BEGIN { exit !(${found:-0} > $most) }"; then best="$design" most="$found"; fi
    done <<'TEXT'
commit-lock
commit-lock-shared
commit-stall --stall-us 50
commit-stall --stall-us 100
commit-stall --stall-us 200
willing-to-wait --willing-to-wait-us 100
willing-to-wait --willing-to-wait-us 200
willing-to-wait --willing-to-wait-us 400
hiber
hiber --wake-delay-us 50
hiber-stall --stall-us 25
hiber-stall --stall-us 100
hiber-willing-to-wait --willing-to-wait-us 100
hiber-willing-to-wait --willing-to-wait-us 200
log-server
TEXT
    # shellcheck disable=SC2086
    line="$(commit $load --group-commit adaptive --repeat "$pairs" --versus "--group-commit $best")"
    medians="$(grep -o '"committed_per_s": [0-9.]*' <<<"$line" | cut -d' ' -f2 | tr '\n' ' ')"
    read -r ours theirs _ <<<"$medians"
    ratio="$(sed -n 's/.*"ratio": {"committed_per_s": {"median": \([0-9.]*\), "low": \([0-9.]*\), "high": \([0-9.]*\).*/\1 (\2 to \3)/p' <<<"$line")"
    printf '| %s | %s | %.0f | %.0f | %s |\n' "$n" "$best" "$ours" "$theirs" "$ratio"
done
rm -rf "$dir/log" "$dir/log-versus"
