// records reads a file of record batches with kgo.ProcessFetchPartition, as a consumer of franz-go does: records FILE
package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	debug.SetTraceback("all") // a decoder that hangs shows where
	time.AfterFunc(30*time.Second, func() { panic("no end after 30 s") })
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	client, err := kgo.NewClient() // connects to no broker before it is used
	if err != nil {
		panic(err)
	}
	decompressor := client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	defer func() {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		fmt.Fprintf(os.Stderr, "allocated: %d MiB\n", memory.TotalAlloc>>20)
	}()
	count, opts := 0, kgo.ProcessFetchPartitionOpts{Offset: math.MinInt64, KeepControlRecords: true}
	for data = from(opts.Offset, data); len(data) > 0; data = from(opts.Offset, data) {
		response := kmsg.NewFetchResponseTopicPartition()
		response.RecordBatches = data
		partition, next := kgo.ProcessFetchPartition(opts, &response, decompressor, nil)
		for _, r := range partition.Records {
			fmt.Printf("offset %d timestamp %d key %s value %s headers %d\n",
				r.Offset, r.Timestamp.UnixMilli(), length(r.Key), length(r.Value), len(r.Headers))
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

func length(data []byte) string {
	if data == nil {
		return "null"
	}
	return fmt.Sprint(len(data))
}

// from is what a broker sends: the batch that holds the offset and all behind it, or nothing if no whole batch is left.
func from(offset int64, data []byte) []byte {
	for len(data) >= 17 {
		last, end := int64(binary.BigEndian.Uint64(data)), 12+int64(int32(binary.BigEndian.Uint32(data[8:])))
		if data[16] == 2 && len(data) >= 27 {
			last += int64(int32(binary.BigEndian.Uint32(data[23:])))
		}
		if end > int64(len(data)) {
			break
		}
		if last >= offset || end < 12 {
			return data
		}
		data = data[end:]
	}
	return nil
}
