package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// A reader follows partitionConsumer of sarama.
type reader struct {
	offset    int64 // of the next fetch
	control   bool  // show control records, which the consumer drops
	committed bool
	batches   []testee.Object
	read      int // how many batches the library has returned, with their records
}

func decodeRecords(request testee.Request) testee.Object {
	r := reader{offset: math.MinInt64, control: true, batches: []testee.Object{}}
	answer := r.consume(request.Hex, nil)
	frames, _ := testee.Frames(request.Hex)
	for _, frame := range frames {
		if frame.Count == 0 { // the library leaves out batches without records, so batches cannot be compared
			answer["records"] = r.records()
			return answer
		}
	}
	answer["batches"] = r.batches
	return answer
}

func decodeStream(request testee.Request) testee.Object {
	r := reader{offset: request.FetchOffset, committed: request.Isolation == "read_committed"}
	var data []byte
	for _, step := range request.Steps {
		data = append(data, step...)
	}
	answer := r.consume(data, request.Aborted)
	answer["records"] = r.records()
	answer["next_offset"] = testee.Long(r.offset)
	return answer
}

func (r *reader) records() []testee.Object {
	records := []testee.Object{}
	for _, batch := range r.batches {
		records = append(records, batch["records"].([]testee.Object)...)
	}
	return records
}

// consume fetches the bytes, and fetches again from the first batch that the library has not read, as a consumer would.
func (r *reader) consume(data []byte, aborted []testee.Aborted) testee.Object {
	frames, whole := testee.Frames(data)
	full := []testee.Frame{}
	for _, frame := range frames {
		if frame.Count != 0 { // the library returns only batches with records
			full = append(full, frame)
		}
	}
	for start := 0; ; {
		read := r.read
		block, err := fetch(data[start:], aborted)
		if err == nil {
			err = r.handOut(block)
		}
		switch {
		case err != nil:
			return testee.Object{"outcome": "rejected", "error": err.Error()}
		case r.read >= len(full) && whole:
			return testee.Object{"outcome": "accepted"}
		case r.read > read || start == 0 && len(r.batches) > 0:
		case len(block.RecordsSet) == 0 && !block.Partial:
			// The library found only batches without records, and goes on behind them.
			reason := fmt.Sprintf("goes on behind the bytes from %d on", start)
			return testee.Object{"outcome": "nothing", "error": reason}
		default:
			reason := fmt.Sprintf("the bytes from %d on give neither records nor an error", start)
			return testee.Object{"outcome": "stalled", "error": reason}
		}
		next := len(data)
		if r.read < len(full) {
			next = full[r.read].Start
		} else if len(frames) > 0 {
			next = frames[len(frames)-1].End
		}
		if next == start {
			return testee.Object{"outcome": "stalled", "error": fmt.Sprintf("fetches the bytes from %d on again", start)}
		}
		start = next
	}
}

// handOut follows parseResponse.
func (r *reader) handOut(block *sarama.FetchResponseBlock) error {
	pending := block.AbortedTransactions
	slices.SortFunc(pending, func(a, b *sarama.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	aborted := map[int64]bool{}
	for _, set := range block.RecordsSet {
		if set.MsgSet != nil {
			for _, message := range set.MsgSet.Messages {
				r.batches = append(r.batches, r.messages(message))
				r.read++
			}
			continue
		}
		batch := set.RecordBatch
		if batch == nil || len(batch.Records) == 0 {
			continue
		}
		r.read++
		for len(pending) > 0 && pending[0].FirstOffset <= lastOffset(batch) {
			aborted[pending[0].ProducerID] = true
			pending = pending[1:]
		}
		handed := r.batch(batch)
		if batch.Control && !r.control {
			kind, err := controlType(batch.Records[0])
			if err != nil && r.committed {
				return err
			}
			if err == nil && kind == 0 {
				delete(aborted, batch.ProducerID)
			}
			continue
		}
		if r.committed && *isTransactional(batch) && aborted[batch.ProducerID] {
			continue
		}
		r.batches = append(r.batches, handed)
	}
	return nil
}

// controlType follows ControlRecord.decode, which is not public: the version of key and value is ignored.
func controlType(record *sarama.Record) (int16, error) {
	if len(record.Key) < 4 {
		return 0, errors.New("the key of a control record is too short")
	}
	kind := int16(binary.BigEndian.Uint16(record.Key[2:]))
	if (kind == 0 || kind == 1) && len(record.Value) < 6 {
		return kind, errors.New("the value of a control record is too short")
	}
	return kind, nil
}

// lastOffset is a method that version 1.21 does not have.
func lastOffset(b *sarama.RecordBatch) int64 { return b.FirstOffset + int64(b.LastOffsetDelta) }

func (r *reader) batch(b *sarama.RecordBatch) testee.Object {
	records := []testee.Object{}
	for _, record := range b.Records {
		offset := b.FirstOffset + record.OffsetDelta
		if offset < r.offset {
			continue
		}
		r.offset = offset + 1
		timestamp := b.FirstTimestamp.Add(record.TimestampDelta)
		if b.LogAppendTime {
			timestamp = b.MaxTimestamp
		}
		milliseconds := timestamp.UnixMilli()
		if timestamp.IsZero() {
			milliseconds = -1
		}
		headers := []testee.Header{}
		for _, header := range record.Headers {
			headers = append(headers, testee.NewHeader(string(header.Key), header.Value))
		}
		records = append(records, testee.Record(offset, &milliseconds, record.Key, record.Value, headers))
	}
	if len(records) == 0 {
		r.offset++
	}
	kind := "create"
	if b.LogAppendTime {
		kind = "log-append"
	}
	return testee.Object{
		"records": records, "magic": b.Version, "compression": testee.CodecName(int(b.Codec)), "timestamp_type": kind,
		"base_offset": testee.Long(b.FirstOffset), "last_offset": testee.Long(lastOffset(b)),
		"transactional": *isTransactional(b), "control": b.Control,
		"producer_id": testee.Long(b.ProducerID), "producer_epoch": b.ProducerEpoch, "base_sequence": b.FirstSequence,
		"partition_leader_epoch": b.PartitionLeaderEpoch,
	}
}

func (r *reader) messages(block *sarama.MessageBlock) testee.Object {
	records := []testee.Object{}
	inner := block.Messages()
	for _, one := range inner {
		offset, timestamp := one.Offset, one.Msg.Timestamp
		if one.Msg.Version >= 1 {
			offset += block.Offset - inner[len(inner)-1].Offset
			if one.Msg.LogAppendTime {
				timestamp = block.Msg.Timestamp
			}
		}
		if offset < r.offset {
			continue
		}
		r.offset = offset + 1
		milliseconds := timestamp.UnixMilli()
		if timestamp.IsZero() {
			milliseconds = -1
		}
		shown := &milliseconds
		if one.Msg.Version == 0 {
			shown = nil
		}
		records = append(records, testee.Record(offset, shown, one.Msg.Key, one.Msg.Value, nil))
	}
	if len(records) == 0 {
		r.offset++
	}
	return testee.Object{
		"records": records, "magic": block.Msg.Version, "compression": testee.CodecName(int(block.Msg.Codec)),
	}
}
