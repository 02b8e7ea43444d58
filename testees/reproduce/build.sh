#!/bin/sh
# Builds the reproducer $1 (records or messages) of the testee in the working directory, with common.go beside its main.go.
set -e
mkdir -p "target/reproduce/$1"
cp "reproduce/$1/main.go" ../reproduce/common.go "target/reproduce/$1"
go build -o "target/reproduce-$1" "./target/reproduce/$1"
