#!/bin/sh
# Builds the Rust program $1 of the testee in the working directory, as target/release/$1; $2 and $3 are options of cargo.
# What several testees need is compiled once, in the kit's folder.
set -e
program=$1
shift
cargo build --release -q -j 2 --target-dir ../rust/target "$@"
mkdir -p "target/release/$(dirname "$program")"
# A program that runs cannot be written, but it can be replaced.
cp --remove-destination "../rust/target/release/$program" "target/release/$program"
