#!/usr/bin/env bash
# FedHV on the embedded benchmark with one hyper-parameter varied at a time, three seeds each.
set -euo pipefail
out=${1:-runs/ablations}
reference=${2:-runs/digits/reference.toml} # of `fedhv compare digits`
run() { fedhv run digits --rounds 40 --reference "$reference" --seed "$seed" --quiet --out "$out/$@"; }
for seed in 0 42 2026; do
  run "default-$seed"
  for k in 1 5 20; do run "K$k-$seed" --set "training.local_steps=$k"; done
  for m in 3 12 20; do run "M$m-$seed" --set "federation.participants=$m"; done
  for b in 1 2 5; do run "B$b-$seed" --set "methods.fedhv.report=$b"; done
done
