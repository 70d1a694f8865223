#!/usr/bin/env bash
# One process that publishes and two that work, over the PostgreSQL database of LOAM_DATABASE_URL. With -once it ends when
# all is delivered, without it at Ctrl-C. What else is given goes to every process: run.sh -once -orders 500
set -euo pipefail
cd "$(dirname "$0")"
: "${LOAM_DATABASE_URL:?is not set: export LOAM_DATABASE_URL=postgres://USER@HOST:PORT/DATABASE}"

bin="$(mktemp -d)"
pids=()
cleanup() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf "$bin"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

go build -o "$bin/shop" .
"$bin/shop" -migrate
run="run-$(date +%s)-$$"
for worker in worker-1 worker-2; do
	"$bin/shop" -role work -name "$worker" -run "$run" "$@" &
	pids+=($!)
done
"$bin/shop" -role publish -name publisher -run "$run" "$@" &
pids+=($!)

status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
pids=()
exit "$status"
