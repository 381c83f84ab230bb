#!/bin/sh
# Builds the targets and runs one: fuzz/run.sh TARGET [libFuzzer's options and further corpora]. See README.md.
set -eu
cd "$(dirname "$0")"
target=$1
shift
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
passes="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
counters="-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
export RUSTFLAGS="--cfg fuzzing $passes $counters -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address"
cargo +nightly build --release --target "$host" --bin "$target"
mkdir -p "corpus/$target" "artifacts/$target"
exec "target/$host/release/$target" -artifact_prefix="artifacts/$target/" "$@" "corpus/$target"
