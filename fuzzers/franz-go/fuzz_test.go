// Package fuzz reads any bytes as the records of a fetch response, as a consumer of franz-go does.
package fuzz

import (
	"bytes"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	// Go stops at the first panic. A campaign that only measures coverage continues.
	keepGoing = os.Getenv("KEEP_GOING") == "1"
	repairs   = os.Getenv("REPAIR") != "0"
	// A bug to find, so that a test sees whether the fuzzer gets that far.
	isPlanted = os.Getenv("KFUZZ_PLANTED") == "1"
)

func FuzzProcessFetchPartition(f *testing.F) {
	// A client's decompressor limits its output; kgo.DefaultDecompressor does not.
	client, err := kgo.NewClient()
	if err != nil {
		f.Fatal(err)
	}
	client.Close()
	decompressor := client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	f.Fuzz(func(t *testing.T, data []byte) {
		read(data, decompressor)
		if repaired := repair(data); repairs && !bytes.Equal(repaired, data) {
			read(repaired, decompressor)
		}
	})
}

func read(data []byte, decompressor kgo.Decompressor) {
	if keepGoing {
		defer func() { _ = recover() }()
	}
	response := kmsg.NewFetchResponseTopicPartition()
	response.RecordBatches = data
	partition, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &response, decompressor, nil)
	for _, record := range partition.Records {
		if isPlanted && record.Timestamp.UnixMilli() < 0 && len(record.Headers) > 0 {
			panic("planted")
		}
	}
}
