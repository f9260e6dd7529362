#!/bin/sh
# The demo with five seeds and three times its rounds, beside a loss-proportional rule and fixed weights.
#   sh benchmarks/demo_seeds.sh OUT [options of fedhv compare]
set -eu
out=$1
shift
seeds=0,1,2,3,4
fedhv=${FEDHV:-fedhv}
$fedhv compare digits --methods fedhv,uniform,fsmgda,fedcmoo,power --seeds $seeds --rounds 210 --out "$out/adaptive" "$@"
# Fixed weights: the faint digit (the second task) with two thirds and with nine tenths of the weight.
$fedhv compare digits --methods fixed --seeds $seeds --rounds 210 --out "$out/fixed-2-3" \
    --set preferences.clear=1 --set preferences.faint=2 "$@"
$fedhv compare digits --methods fixed --seeds $seeds --rounds 210 --out "$out/fixed-9-10" \
    --set preferences.clear=1 --set preferences.faint=9 "$@"
