// kafka-go's whole client: a Reader of one partition, and a Writer.
package main

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go"
)

const library = "github.com/segmentio/kafka-go"

// How long it may take to read what is in the Reader's queue already.
const patience = time.Second

// How long a Reader waits after an error. With less, one that connects again and again would use too much of the processor.
const backoff = 50 * time.Millisecond

// The most records of one poll: a Reader may have new ones without an end.
const most = 100

func main() {
	hello := testee.Object{
		"produces":   offered,
		"converses":  []string{"reset", "group", "timeout"},
		"checks_crc": false,
		"control":    "shown",
		// Every timestamp up to 0 becomes Go's zero time.
		"timestamps": testee.Object{"low": "1", "high": testee.Long(math.MaxInt64), "resolution_ms": 1},
	}
	testee.Drive(library, hello, testee.Client{Open: open, Produce: produce})
}

type consumer struct {
	*kafka.Reader
	uncommitted []kafka.Message
}

var resets = map[string]int64{"earliest": kafka.FirstOffset, "latest": kafka.LastOffset}

// open leaves the waits for records as they are if no time limit is given: after one that is over, the Reader forgets what
// it has skipped.
func open(opening testee.Opening) (testee.Consumer, error) {
	config := kafka.ReaderConfig{
		Brokers: strings.Split(opening.Address, ","), Topic: opening.Topic, Partition: 0, ReadLagInterval: -1,
		GroupID: opening.Group,
	}
	if opening.Group != "" {
		config.HeartbeatInterval = testee.HeartbeatInterval
	}
	set(&config, "StartOffset", resets[opening.Reset])
	for _, name := range []string{"ReadBackoffMin", "ReadBackoffMax", "JoinGroupBackoff"} {
		set(&config, name, int64(backoff))
	}
	if opening.RequestTimeoutMs > 0 {
		config.MaxWait = opening.RequestTimeout(0)
	}
	if opening.IsCommitted() {
		config.IsolationLevel = kafka.ReadCommitted
	}
	reader := kafka.NewReader(config)
	if opening.Group != "" {
		return &consumer{Reader: reader}, nil
	}
	offset := opening.Offset
	if reset, ok := resets[opening.Reset]; ok {
		offset = reset
	}
	return &consumer{Reader: reader}, reader.SetOffset(offset)
}

// set gives a field a number, if the version has this field: 0.2.5 is the first with the backoffs and StartOffset.
func set(config *kafka.ReaderConfig, name string, number int64) {
	if field := reflect.ValueOf(config).Elem().FieldByName(name); field.IsValid() {
		field.SetInt(number)
	}
}

func (c *consumer) Close() { c.Reader.Close() }

func (c *consumer) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), testee.CommitTimeout)
	defer cancel()
	err := c.CommitMessages(ctx, c.uncommitted...)
	if err == nil {
		c.uncommitted = nil
	}
	return err
}

func (c *consumer) Poll(wait time.Duration) (records []testee.Object, _ error) {
	for len(records) < most {
		if c.Stats().QueueLength > 0 {
			wait = patience
		} else if len(records) > 0 || wait == 0 {
			break // without any time, a Reader chooses at random between its queue and the end of the time
		}
		message, err := c.read(wait)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		} else if err != nil {
			return records, err
		}
		records = append(records, recordJSON(message))
		c.uncommitted = append(c.uncommitted, message)
	}
	return records, nil
}

func (c *consumer) read(wait time.Duration) (kafka.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return c.FetchMessage(ctx) // unlike ReadMessage, it does not commit
}

func recordJSON(message kafka.Message) testee.Object {
	var timestamp *int64
	if !message.Time.IsZero() { // the library's word for "no timestamp": none at all in magic 0, or one that is not above 0
		milliseconds := message.Time.UnixMilli()
		timestamp = &milliseconds
	}
	headers := []testee.Header{}
	for _, header := range message.Headers {
		headers = append(headers, testee.NewHeader(header.Key, header.Value))
	}
	return testee.Record(message.Offset, timestamp, message.Key, message.Value, headers)
}

// firstPartition is where everything is sent.
var firstPartition = kafka.BalancerFunc(func(kafka.Message, ...int) int { return 0 })

type producer struct {
	*kafka.Writer
	ctx     context.Context
	end     func()
	offsets *[]int64 // what the library has reported, or nil
}

// producerOf leaves what else is to be closed to close.
func producerOf(writer *kafka.Writer, offsets *[]int64, close func()) testee.Producer {
	ctx, end := context.WithTimeout(context.Background(), testee.ProduceTimeout)
	return producer{writer, ctx, func() { end(); writer.Close(); close() }, offsets}
}

func (producer) Begin() error { return testee.ErrNotOffered }

func (producer) Commit() error { return testee.ErrNotOffered }

func (p producer) Close() { p.end() }

func (p producer) Send(topic string, all []testee.Given) ([]int64, error) {
	if p.offsets == nil {
		return nil, p.WriteMessages(p.ctx, messagesOf(topic, all)...)
	}
	*p.offsets = nil
	err := p.WriteMessages(p.ctx, messagesOf(topic, all)...)
	return *p.offsets, err
}

func messagesOf(topic string, all []testee.Given) (messages []kafka.Message) {
	for _, given := range all {
		message := kafka.Message{Key: given.Key, Value: given.Value, Time: given.Time()}
		if hasTopics {
			message.Topic = topic
		}
		for _, header := range given.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: string(header.Key), Value: header.Value})
		}
		messages = append(messages, message)
	}
	return messages
}
