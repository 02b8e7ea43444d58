// franz-go as a testee: reads a fetch with kgo.ProcessFetchPartition, as its consumer does, and messages with kmsg.
//
// kgo has no public way to build a batch of given contents (only a client that produces to a broker), so this testee
// does not write records.
package main

import (
	"math"

	testee "kfuzz_testee"

	"github.com/twmb/franz-go/pkg/kgo"
)

const library = "github.com/twmb/franz-go"

func main() {
	hello := testee.Object{
		"name": "franz-go", "version": testee.Version(library),
		"operations": []string{"decode-records", "decode-stream", "decode-message", "encode-message"},
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
	testee.Serve(hello, library, testee.Answers{
		"decode-records": decodeRecords,
		"decode-stream":  decodeStream,
		"decode-message": decodeMessage,
		"encode-message": encodeMessage,
	})
}

func decodeRecords(request testee.Request) testee.Object {
	// The lowest offset, so that the library skips no record.
	got := fetch(request.Hex, kgo.ProcessFetchPartitionOpts{Offset: math.MinInt64, KeepControlRecords: true}, nil)
	if batches := got.batches(); batches != nil {
		return testee.Object{"outcome": got.outcome, "error": got.error, "batches": batches}
	}
	return testee.Object{"outcome": got.outcome, "error": got.error, "records": recordsJSON(got.records)}
}
