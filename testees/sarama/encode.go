package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// The version of Produce for messages of magic 0 and 1. Batches have a later one.
const produceLegacy = 2

var errCannotHold = errors.New("sarama's types cannot hold this")

type batchForm struct {
	BaseOffset           int64  `json:"base_offset,string"`
	LastOffset           int64  `json:"last_offset,string"`
	Magic                int8   `json:"magic"`
	Compression          string `json:"compression"`
	TimestampType        string `json:"timestamp_type"`
	Transactional        bool   `json:"transactional"`
	Control              bool   `json:"control"`
	ProducerID           int64  `json:"producer_id,string"`
	ProducerEpoch        int16  `json:"producer_epoch"`
	BaseSequence         int32  `json:"base_sequence"`
	PartitionLeaderEpoch int32  `json:"partition_leader_epoch"`
	DeleteHorizon        any    `json:"delete_horizon"`
	Records              []struct {
		Offset    int64                `json:"offset,string"`
		Timestamp *json.Number         `json:"timestamp"`
		Key       *testee.Bytes        `json:"key"`
		Value     *testee.Bytes        `json:"value"`
		Headers   [][2]json.RawMessage `json:"headers"`
	} `json:"records"`
}

func encodeRecords(request testee.Request) testee.Object {
	var forms []batchForm
	if err := json.Unmarshal(request.Batches, &forms); err != nil {
		return testee.Object{"outcome": "fault", "error": "BadRequest: " + err.Error()}
	}
	var written []byte
	for _, form := range forms {
		data, err := encodeBatch(form)
		if errors.Is(err, errCannotHold) {
			return testee.Unsupported(err.Error())
		} else if err != nil {
			return testee.Object{"outcome": "rejected", "error": err.Error()}
		}
		written = append(written, data...)
	}
	return testee.Object{"outcome": "accepted", "hex": hex.EncodeToString(written)}
}

func encodeBatch(form batchForm) ([]byte, error) {
	request := &sarama.ProduceRequest{Version: produceBatches, RequiredAcks: sarama.NoResponse}
	var err error
	if form.Magic == 2 {
		var batch *sarama.RecordBatch
		batch, err = batchOf(form)
		request.AddBatch(topic, 0, batch)
	} else {
		var set *sarama.MessageSet
		set, err = messageOf(form)
		request.AddSet(topic, 0, set)
		request.Version = produceLegacy
	}
	if err != nil {
		return nil, err
	}
	return produced(request)
}

func batchOf(form batchForm) (*sarama.RecordBatch, error) {
	if form.DeleteHorizon != nil {
		return nil, errCannotHold
	}
	batch := &sarama.RecordBatch{
		FirstOffset: form.BaseOffset, LastOffsetDelta: int32(form.LastOffset - form.BaseOffset), Version: form.Magic,
		CompressionLevel: sarama.CompressionLevelDefault, PartitionLeaderEpoch: form.PartitionLeaderEpoch,
		LogAppendTime: form.TimestampType == "log-append", Control: form.Control,
		ProducerID: form.ProducerID, ProducerEpoch: form.ProducerEpoch, FirstSequence: form.BaseSequence,
	}
	*isTransactional(batch) = form.Transactional
	for testee.CodecName(int(batch.Codec)) != form.Compression {
		batch.Codec++
	}
	first, largest := int64(-1), int64(-1)
	for i, given := range form.Records {
		timestamp, err := given.Timestamp.Int64()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first, largest = timestamp, timestamp
		}
		largest = max(largest, timestamp)
		delta := timestamp - first
		if delta > math.MaxInt64/int64(time.Millisecond) || delta < math.MinInt64/int64(time.Millisecond) {
			return nil, errCannotHold // a time.Duration counts nanoseconds
		}
		record := &sarama.Record{
			TimestampDelta: time.Duration(delta) * time.Millisecond, OffsetDelta: given.Offset - form.BaseOffset,
			Key: bytesOf(given.Key), Value: bytesOf(given.Value),
		}
		for _, pair := range given.Headers {
			header := &sarama.RecordHeader{}
			if header.Key, err = headerKey(pair[0]); err != nil {
				return nil, err
			}
			var value *testee.Bytes
			if err := json.Unmarshal(pair[1], &value); err != nil {
				return nil, err
			}
			header.Value = bytesOf(value)
			record.Headers = append(record.Headers, header)
		}
		batch.Records = append(batch.Records, record)
	}
	batch.FirstTimestamp, batch.MaxTimestamp = timeOf(first), timeOf(largest)
	return batch, nil
}

// messageOf is a legacy batch that is one message. Only the library's producer can write a wrapper.
func messageOf(form batchForm) (*sarama.MessageSet, error) {
	if form.Compression != "none" || len(form.Records) != 1 {
		return nil, errCannotHold
	}
	given := form.Records[0]
	message := &sarama.Message{
		Version: form.Magic, LogAppendTime: form.TimestampType == "log-append",
		Key: bytesOf(given.Key), Value: bytesOf(given.Value),
	}
	if given.Timestamp != nil {
		timestamp, err := given.Timestamp.Int64()
		if err != nil {
			return nil, err
		}
		message.Timestamp = timeOf(timestamp)
	}
	return &sarama.MessageSet{Messages: []*sarama.MessageBlock{{Offset: given.Offset, Msg: message}}}, nil
}

func bytesOf(data *testee.Bytes) []byte {
	if data == nil {
		return nil
	}
	return append([]byte{}, *data...) // not nil
}

func headerKey(text json.RawMessage) ([]byte, error) {
	if strings.HasPrefix(string(text), "{") {
		var key struct{ Hex testee.Bytes }
		err := json.Unmarshal(text, &key)
		return key.Hex, err
	}
	var key string
	err := json.Unmarshal(text, &key)
	return []byte(key), err
}

// timeOf is Go's zero time for -1, the library's word for "no timestamp".
func timeOf(milliseconds int64) time.Time {
	if milliseconds == -1 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

// produced is the records of the request, as the library sends them.
func produced(request *sarama.ProduceRequest) ([]byte, error) {
	broker, server, stop := open()
	defer stop()
	sent := make(chan []byte, 1)
	go func() {
		frame, _ := testee.ReadSized(server)
		sent <- frame
	}()
	if _, err := broker.Produce(request); err != nil {
		server.Close()
		return nil, err
	}
	frame := <-sent
	clientID := int(binary.BigEndian.Uint16(frame[8:]))
	// Key, version, correlation id and client id; acks and timeout; one topic with one partition.
	at := 2 + 2 + 4 + 2 + clientID + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
	if request.Version == produceBatches {
		at += 2 // transactional id
	}
	size := int(binary.BigEndian.Uint32(frame[at:]))
	return frame[at+4 : at+4+size], nil
}
