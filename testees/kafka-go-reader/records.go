package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"time"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go"
)

// How long the library may wait for bytes. The Reader waits 10 s, but here no more bytes arrive.
const patience = time.Second

var errNoProgress = errors.New("the library waits for bytes that do not come")

func decodeRecords(request testee.Request) testee.Object {
	answer, _ := consume(request.Hex, math.MinInt64, kafka.ReadUncommitted, nil)
	return answer
}

func decodeStream(request testee.Request) testee.Object {
	isolation := kafka.ReadUncommitted
	if request.Isolation == "read_committed" {
		isolation = kafka.ReadCommitted
	}
	var data []byte
	for _, step := range request.Steps {
		data = append(data, step...)
	}
	answer, next := consume(data, request.FetchOffset, isolation, request.Aborted)
	answer["next_offset"] = testee.Long(next)
	return answer
}

// consume fetches like the Reader, until it has read what the headers promise. Where it stops before, it fetches again
// as the Reader would: the broker then begins with the batch that holds the next offset.
func consume(data []byte, offset int64, isolation kafka.IsolationLevel, aborted []testee.Aborted) (testee.Object, int64) {
	records := []testee.Object{}
	answer := func(outcome, reason string) testee.Object {
		return testee.Object{"outcome": outcome, "error": reason, "records": records}
	}
	frames, whole := testee.Frames(data)
	promised := 0
	for _, frame := range frames {
		if frame.LastOffset >= offset {
			promised += max(1, int(frame.Count)) // a batch without records is no fault, but asks for a second look
		}
	}
	for left, from := data, frames; ; {
		got, next, err := fetch(left, from, offset, isolation, aborted)
		records = append(records, got...)
		switch {
		case err == errNoProgress:
			return answer("stalled", err.Error()), next
		case err != nil:
			return answer("rejected", err.Error()), next
		case len(records) >= promised && whole:
			return answer("accepted", ""), next
		}
		first := 0
		for first < len(frames) && frames[first].LastOffset < next {
			first++
		}
		switch {
		case first == len(frames) && whole:
			for _, frame := range frames {
				if frame.Count == 0 {
					promised--
				}
			}
			if len(records) < promised {
				return answer("nothing", fmt.Sprintf("hands out %d records of %d", len(records), promised)), next
			}
			return answer("accepted", ""), next
		case next < offset:
			return answer("stalled", fmt.Sprintf("the next fetch goes back to %d, so the same records come again", next)), next
		case next == offset && len(got) == 0:
			return answer("stalled", fmt.Sprintf("the next fetch is at %d again", next)), next
		case first == len(frames):
			left, from = data[end(frames):], nil
		default:
			left, from = data[frames[first].Start:], frames[first:]
		}
		offset = next
	}
}

func end(frames []testee.Frame) int {
	if len(frames) == 0 {
		return 0
	}
	return frames[len(frames)-1].End
}

// fetch makes the calls of Reader.read. The connection is fresh, because the Reader closes one after an error.
func fetch(
	data []byte, frames []testee.Frame, offset int64, isolation kafka.IsolationLevel, aborted []testee.Aborted,
) (records []testee.Object, next int64, err error) {
	client, server := net.Pipe()
	highWatermark := int64(math.MaxInt64)
	if len(data) == 0 {
		highWatermark = offset
	}
	go serve(server, data, highWatermark, aborted)
	conn := kafka.NewConnWith(client, kafka.ConnConfig{Topic: topic})
	if _, err := conn.Seek(offset, kafka.SeekAbsolute|kafka.SeekDontCheck); err != nil {
		panic(err)
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	batch := conn.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: 1e6, IsolationLevel: isolation})
	defer client.Close()
	for err == nil {
		conn.SetReadDeadline(time.Now().Add(patience))
		var message kafka.Message
		if message, err = batch.ReadMessage(); err == nil {
			records = append(records, recordJSON(message, frames))
		}
	}
	next = batch.Offset()
	client.Close() // first, so that batch.Close does not wait for more bytes
	batch.Close()  // gives buffers back; not in a defer, because it must not run after a panic
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, kafka.RequestTimedOut):
		err = nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errNoProgress
	}
	return records, next, err
}

func recordJSON(message kafka.Message, frames []testee.Frame) testee.Object {
	milliseconds := message.Time.UnixMilli()
	timestamp := &milliseconds
	if message.Time.IsZero() { // the library's word for "no timestamp": -1, or none at all in magic 0
		milliseconds = -1
		for _, frame := range frames {
			if message.Offset <= frame.LastOffset {
				if frame.Magic == 0 {
					timestamp = nil
				}
				break
			}
		}
	}
	headers := []testee.Header{}
	for _, header := range message.Headers {
		headers = append(headers, testee.NewHeader(header.Key, header.Value))
	}
	return testee.Record(message.Offset, timestamp, message.Key, message.Value, headers)
}
