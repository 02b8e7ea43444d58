// sarama as a testee: a Broker fetches the bytes over a pipe, and the records are handed out as its consumer does.
//
// A real sarama.Consumer waits 100 ms for each new partition, which is too slow for a suite. So handOut follows
// parseResponse of its consumer; everything before that is the library. Batches are written by Broker.Produce. The
// messages are those that a Broker sends and receives; a map of several elements is not written, because it has no order.
package main

import (
	"math"

	testee "kfuzz_testee"
)

const library = "github.com/IBM/sarama"

func main() {
	hello := testee.Object{
		"name": "sarama", "version": testee.Version(library),
		"operations": []string{"decode-records", "encode-records", "decode-stream"},
		"roles":      []string{"consumer"},
		"magic":      []int{0, 1, 2},
		"codecs":     []string{"none", "gzip", "snappy", "lz4", "zstd"},
		"outcomes":   []string{"nothing", "stalled", "panic"},
		// sarama has one value for "no timestamp", Go's zero time. Every negative timestamp becomes that.
		"timestamps": testee.Object{"low": "-1", "high": testee.Long(math.MaxInt64), "resolution_ms": 1},
	}
	answers := testee.Answers{
		"decode-records": decodeRecords,
		"encode-records": encodeRecords,
		"decode-stream":  decodeStream,
	}
	offerMessages(hello, answers)
	testee.Serve(hello, library, answers)
}
