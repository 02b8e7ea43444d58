// records reads a file of record batches with kgo.ProcessFetchPartition, as a consumer of franz-go does: records FILE
package main

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	data := input()
	client, err := kgo.NewClient() // connects to no broker before it is used
	if err != nil {
		panic(err)
	}
	decompressor := client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	defer printAllocated()
	count, opts := 0, kgo.ProcessFetchPartitionOpts{Offset: math.MinInt64, KeepControlRecords: true}
	for data, _ = from(opts.Offset, data, 0, 0); len(data) > 0; data, _ = from(opts.Offset, data, 0, 0) {
		response := kmsg.NewFetchResponseTopicPartition()
		response.RecordBatches = data
		partition, next := kgo.ProcessFetchPartition(opts, &response, decompressor, nil)
		for _, r := range partition.Records {
			printRecord(r.Offset, r.Timestamp.UnixMilli(), length(r.Key), length(r.Value), len(r.Headers))
			count++
		}
		if partition.Err != nil {
			fmt.Println("error:", partition.Err)
			return
		}
		if next <= opts.Offset {
			fmt.Println("stalled: a whole batch, no error, and the next fetch is at", next, "again")
			return
		}
		opts.Offset = next
	}
	fmt.Println("records:", count)
}
