// kafka-go's Reader as a testee: a Conn fetches the bytes over a pipe, and a Batch hands out the messages.
//
// It makes the calls that Reader.read makes. The Reader itself needs a cluster, and writes errors to its log only. The
// same Conn reads the metadata of partitions.
package main

import (
	"math"

	testee "kfuzz_testee"
)

const library = "github.com/segmentio/kafka-go"

func main() {
	hello := testee.Object{
		"name": "kafka-go-reader", "version": testee.Version(library),
		"operations": []string{"decode-records", "decode-stream", "decode-message"},
		"roles":      []string{"consumer"},
		"magic":      []int{0, 1, 2},
		"codecs":     []string{"none", "gzip", "snappy", "lz4", "zstd"},
		"checks_crc": false,
		// Every timestamp up to 0 becomes Go's zero time.
		"timestamps": testee.Object{"low": "1", "high": testee.Long(math.MaxInt64), "resolution_ms": 1},
		"outcomes":   []string{"nothing", "stalled", "panic"},
		"side":       "client",
		"messages":   testee.Object{"MetadataResponse": []int{metadataVersion, metadataVersion}},
		"hidden":     hidden,
	}
	testee.Serve(hello, library, testee.Answers{
		"decode-records": decodeRecords, "decode-stream": decodeStream, "decode-message": decodeMessage,
	})
}
