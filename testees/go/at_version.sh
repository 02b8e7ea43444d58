# at_version.sh MODULE VERSION: lets go.mod ask for this version of the library, and the library for its own packages.
set -e
grep -E '^(module|go|replace) ' go.mod > go.new
mv go.new go.mod
go mod edit -require=kfuzz_testee@v0.0.0 "-require=$1@v$2"
