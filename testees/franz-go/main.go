// franz-go as a testee: reads a fetch with kgo.ProcessFetchPartition, as its consumer does, and messages with kmsg.
//
// kgo has no public way to build a batch of given contents (only a client that produces to a broker), so this testee
// does not write records.
package main

import (
	"maps"
	"math"
	"slices"

	testee "kfuzz_testee"
)

const library = "github.com/twmb/franz-go"

func main() {
	answers := testee.Answers{"decode-message": decodeMessage, "encode-message": encodeMessage}
	maps.Copy(answers, recordAnswers)
	hello := testee.Object{
		"name": "franz-go", "version": testee.Version(library),
		"operations": slices.Sorted(maps.Keys(answers)),
		"roles":      []string{"consumer"},
		"magic":      []int{0, 1, 2},
		"codecs":     []string{"none", "gzip", "snappy", "lz4", "zstd"},
		"outcomes":   []string{"nothing", "stalled", "panic"},
		// A time.Time is made from nanoseconds in 64 bits, so other milliseconds do not survive.
		"timestamps": testee.Object{
			"low": testee.Long(math.MinInt64 / 1_000_000), "high": testee.Long(math.MaxInt64 / 1_000_000),
			"resolution_ms": 1,
		},
		"messages": messageVersions(),
	}
	testee.Serve(hello, library, answers)
}
