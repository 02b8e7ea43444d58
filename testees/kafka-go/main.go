// kafka-go as a testee: its package protocol, which its Client uses. It reads records with RecordSet.ReadFrom.
//
// ../kafka-go-reader is the same module's Reader, which parses records with other code.
package main

import (
	testee "kfuzz_testee"
)

const library = "github.com/segmentio/kafka-go"

func main() {
	hello := testee.Object{
		"name": "kafka-go", "version": testee.Version(library),
		"operations": []string{"decode-records", "decode-message", "encode-message"},
		"roles":      []string{"consumer"},
		"magic":      []int{0, 1, 2},
		"codecs":     []string{"none", "gzip", "snappy", "lz4", "zstd"},
		"outcomes":   []string{"nothing", "stalled", "panic"},
		"messages":   messageVersions(),
		// Its reader passes over them.
		"unknown_tags": "skipped",
	}
	testee.Serve(hello, library, testee.Answers{
		"decode-records": decodeRecords,
		"decode-message": decodeMessage,
		"encode-message": encodeMessage,
	})
}
