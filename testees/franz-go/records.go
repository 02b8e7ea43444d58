//go:build !older

package main

import (
	"fmt"
	"math"

	testee "kfuzz_testee"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var recordAnswers = testee.Answers{"decode-records": decodeRecords, "decode-stream": decodeStream}

// The decompressor of a client with default settings: it has the client's limit, which kgo.DefaultDecompressor lacks.
var decompressor = func() kgo.Decompressor {
	client, err := kgo.NewClient() // connects to no broker before it is used
	if err != nil {
		panic(err)
	}
	defer client.Close()
	return client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
}()

func decodeRecords(request testee.Request) testee.Object {
	// The lowest offset, so that the library skips no record.
	got := fetch(request.Hex, kgo.ProcessFetchPartitionOpts{Offset: math.MinInt64, KeepControlRecords: true}, nil)
	if batches := got.batches(); batches != nil {
		return testee.Object{"outcome": got.outcome, "error": got.error, "batches": batches}
	}
	return testee.Object{"outcome": got.outcome, "error": got.error, "records": recordsJSON(got.records)}
}

// fetched is what a consumer gets from one fetch.
type fetched struct {
	outcome, error string
	records        []*kgo.Record
	counts         []int // how many records each batch had, as the library's hook tells
	nextOffset     int64
}

func process(data []byte, opts kgo.ProcessFetchPartitionOpts, aborted []testee.Aborted) (fetched, error) {
	response := kmsg.NewFetchResponseTopicPartition()
	response.RecordBatches = data
	for _, one := range aborted {
		transaction := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		transaction.ProducerID, transaction.FirstOffset = one.ProducerID, one.FirstOffset
		response.AbortedTransactions = append(response.AbortedTransactions, transaction)
	}
	var got fetched
	partition, next := kgo.ProcessFetchPartition(opts, &response, decompressor, func(m kgo.FetchBatchMetrics) {
		got.counts = append(got.counts, m.NumRecords)
	})
	got.records, got.nextOffset = partition.Records, next
	return got, partition.Err
}

// fetch reads the bytes once. If the library stops before the last whole batch without an error, it asks again as the
// consumer would: the broker then begins with the batch that holds the next offset.
func fetch(data []byte, opts kgo.ProcessFetchPartitionOpts, aborted []testee.Aborted) fetched {
	got, err := process(data, opts, aborted)
	if err != nil {
		got.outcome, got.error = "rejected", err.Error()
		return got
	}
	got.outcome = "accepted"
	frames, whole := testee.Frames(data)
	read := len(got.counts)
	for i, f := range frames[:min(read, len(frames))] {
		if int32(got.counts[i]) == f.Count || f.Count < 0 && got.counts[i] > 0 {
			continue
		}
		if f.LastOffset < opts.Offset { // the reader did not ask for this batch
			continue
		}
		if again, err := again(data[f.Start:], opts, got.nextOffset); err != nil {
			got.outcome, got.error = "rejected", err.Error()
		} else if f.Count >= 0 && again.nextOffset <= f.LastOffset || again.nextOffset == opts.Offset {
			got.outcome, got.error = "stalled", fmt.Sprintf("the next fetch is at %d again", again.nextOffset)
		} else {
			got.outcome, got.error = "nothing", fmt.Sprintf("batch %d has %d records of %d", i, got.counts[i], f.Count)
		}
		return got
	}
	if at := end(frames, read); read < len(frames) || !whole {
		if _, err := again(data[at:], opts, got.nextOffset); err != nil {
			got.outcome, got.error = "rejected", err.Error()
		} else {
			got.outcome, got.error = "stalled", fmt.Sprintf("the bytes from %d on give neither records nor an error", at)
		}
	}
	return got
}

func again(data []byte, opts kgo.ProcessFetchPartitionOpts, offset int64) (fetched, error) {
	opts.Offset = offset
	return process(data, opts, nil)
}

func end(frames []testee.Frame, count int) int {
	if count = min(count, len(frames)); count == 0 {
		return 0
	}
	return frames[count-1].End
}

// batches splits the records by the hook's counts. It is nil if the library left some records out.
func (f fetched) batches() []testee.Object {
	batches, left := []testee.Object{}, f.records
	for _, count := range f.counts {
		if count > len(left) {
			return nil
		}
		batches = append(batches, batchJSON(left[:count]))
		left = left[count:]
	}
	if len(left) > 0 {
		return nil
	}
	return batches
}

// The fields of a batch that the library shows, on each of its records.
func batchJSON(records []*kgo.Record) testee.Object {
	batch := testee.Object{"records": recordsJSON(records)}
	if len(records) == 0 {
		return batch
	}
	first := records[0]
	batch["compression"] = testee.CodecName(int(first.Attrs.CompressionType()))
	batch["timestamp_type"] = map[int8]string{-1: "none", 0: "create", 1: "log-append"}[first.Attrs.TimestampType()]
	batch["transactional"] = first.Attrs.IsTransactional()
	batch["control"] = first.Attrs.IsControl()
	batch["producer_id"] = testee.Long(first.ProducerID)
	batch["producer_epoch"] = first.ProducerEpoch
	batch["partition_leader_epoch"] = first.LeaderEpoch
	return batch
}

func recordsJSON(records []*kgo.Record) []testee.Object {
	result := []testee.Object{}
	for _, r := range records {
		var timestamp *int64
		if r.Attrs.TimestampType() >= 0 {
			milliseconds := r.Timestamp.UnixMilli()
			timestamp = &milliseconds
		}
		headers := []testee.Header{}
		for _, header := range r.Headers {
			headers = append(headers, testee.NewHeader(header.Key, header.Value))
		}
		result = append(result, testee.Record(r.Offset, timestamp, r.Key, r.Value, headers))
	}
	return result
}

func decodeStream(request testee.Request) testee.Object {
	opts := kgo.ProcessFetchPartitionOpts{Offset: request.FetchOffset}
	if request.Isolation == "read_committed" {
		opts.IsolationLevel = kgo.ReadCommitted()
	}
	var data []byte
	for _, step := range request.Steps {
		data = append(data, step...)
	}
	got := fetch(data, opts, request.Aborted)
	return testee.Object{
		"outcome": got.outcome, "error": got.error, "records": recordsJSON(got.records),
		"next_offset": testee.Long(got.nextOffset),
	}
}
