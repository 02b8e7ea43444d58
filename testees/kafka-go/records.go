package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go/protocol"
)

func decodeRecords(request testee.Request) testee.Object {
	data := request.Hex
	frames, whole := testee.Frames(data)
	batches, ends, err := readBatches(data, frames)
	answer := func(outcome, reason string) testee.Object {
		return testee.Object{"outcome": outcome, "error": reason, "batches": batches}
	}
	if err != nil {
		return answer("rejected", err.Error())
	}
	for i, batch := range batches[:min(len(batches), len(frames))] {
		got := len(batch["records"].([]testee.Object))
		if want := frames[i].Count; int32(got) < want {
			reason := fmt.Sprintf("batch %d has %d records of %d", i, got, want)
			// The next fetch asks for the offset after the last record. The broker sends the same batch again if it
			// still holds that offset.
			if i == len(batches)-1 && ends[i] < frames[i].LastOffset {
				return answer("stalled", reason)
			}
			return answer("nothing", reason)
		}
	}
	if len(batches) < len(frames) || !whole {
		// ReadFrom hides an error behind good batches. The next fetch shows it, because it begins with the bad batch.
		at := 0
		if len(batches) > 0 && len(frames) > 0 {
			at = frames[min(len(batches), len(frames))-1].End
		}
		more, _, err := readBatches(data[at:], nil)
		if err != nil {
			return answer("rejected", err.Error())
		}
		if len(more) == 0 || at == 0 {
			return answer("stalled", fmt.Sprintf("the bytes from %d on give neither records nor an error", at))
		}
		return answer("nothing", fmt.Sprintf("batch %d is left out", len(batches)))
	}
	return answer("accepted", "")
}

// readBatches reads the records of a fetch response, and gives the last offset in each batch. The size comes from the
// fields before the records.
func readBatches(data []byte, frames []testee.Frame) (batches []testee.Object, ends []int64, err error) {
	var set protocol.RecordSet
	size := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	// The library's connection reads through a bufio.Reader too; other readers take another path.
	_, err = set.ReadFrom(bufio.NewReader(io.MultiReader(bytes.NewReader(size), bytes.NewReader(data))))
	batches = []testee.Object{}
	stream, _ := set.Records.(*protocol.RecordStream)
	if stream == nil {
		return batches, ends, err
	}
	for i, records := range stream.Records {
		// The library gives messages of magic 0 the time 0: it has no other way to say that there is none.
		timeless := i < len(frames) && frames[i].Magic == 0
		list, end, readErr := readRecords(records, timeless)
		if readErr != nil {
			return batches, ends, readErr
		}
		batch := testee.Object{"records": list}
		switch b := records.(type) {
		case *protocol.RecordBatch:
			describe(batch, b.Attributes, b.BaseOffset, b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.PartitionLeaderEpoch)
		case *protocol.ControlBatch:
			describe(batch, b.Attributes, b.BaseOffset, b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.PartitionLeaderEpoch)
		}
		batches = append(batches, batch)
		ends = append(ends, end)
	}
	return batches, ends, err
}

func describe(
	batch testee.Object, attributes protocol.Attributes, baseOffset, producerID int64, epoch int16, sequence, leader int32,
) {
	batch["compression"] = testee.CodecName(int(attributes.Compression()))
	batch["transactional"] = attributes.Transactional()
	batch["control"] = attributes.Control()
	batch["base_offset"] = testee.Long(baseOffset)
	batch["producer_id"] = testee.Long(producerID)
	batch["producer_epoch"] = epoch
	batch["base_sequence"] = sequence
	batch["partition_leader_epoch"] = leader
}

func readRecords(records protocol.RecordReader, timeless bool) (result []testee.Object, last int64, err error) {
	result = []testee.Object{}
	last = math.MinInt64
	for {
		record, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return result, last, nil
		} else if err != nil {
			return result, last, err
		}
		key, err := protocol.ReadAll(record.Key)
		if err != nil {
			return result, last, err
		}
		value, err := protocol.ReadAll(record.Value)
		if err != nil {
			return result, last, err
		}
		timestamp := new(int64)
		if *timestamp = record.Time.UnixMilli(); timeless && *timestamp == 0 {
			timestamp = nil
		}
		headers := []testee.Header{}
		for _, header := range record.Headers {
			headers = append(headers, testee.NewHeader(header.Key, header.Value))
		}
		last = record.Offset
		result = append(result, testee.Record(record.Offset, timestamp, key, value, headers))
	}
}
