package example

import (
	"kfuzz"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func decode(data []byte) ([]kfuzz.Record, error) {
	response := kmsg.NewFetchResponseTopicPartition()
	response.RecordBatches = data
	fetched, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &response, kgo.DefaultDecompressor(), nil)
	records := []kfuzz.Record{}
	for _, one := range fetched.Records {
		made := kfuzz.Record{Offset: one.Offset, Timestamp: one.Timestamp.UnixMilli(), Key: one.Key, Value: one.Value}
		for _, header := range one.Headers {
			made.Headers = append(made.Headers, kfuzz.Header{Key: header.Key, Value: header.Value})
		}
		records = append(records, made)
	}
	return records, fetched.Err
}

func TestFranzGo(t *testing.T) {
	kfuzz.Run(t, decode, kfuzz.Options{
		Match: []string{
			"records/v2/codec/gzip", "records/v2/codec/snappy", "records/v2/codec/lz4", "records/v2/codec/zstd",
			"records/v2/header/minimal", "records/v2/header/base-offset-beyond-32-bits", "records/v2/count/negative-one",
		},
	})
}
