// sarama's whole client: a Consumer with a PartitionConsumer, and a SyncProducer.
package main

import (
	"math"
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

const library = "github.com/IBM/sarama"

// All clients have the same metrics, as in a program: the library keeps those of each configuration for ever.
var settings = sarama.NewConfig()

func main() {
	settings.Version = sarama.MaxVersion
	settings.Consumer.Return.Errors = true
	settings.Consumer.MaxWaitTime = 10 * time.Millisecond
	settings.Consumer.Retry.Backoff = time.Millisecond
	settings.Metadata.Retry.Backoff = time.Millisecond
	settings.Producer.Retry.Backoff = time.Millisecond
	settings.Consumer.Group.Heartbeat.Interval = testee.HeartbeatInterval
	settings.Consumer.Group.Rebalance.Retry.Backoff = time.Millisecond
	settings.Consumer.Offsets.AutoCommit.Enable = false
	prepare(settings)
	hello := testee.Object{
		"produces":  offered,
		"converses": converses,
		// Every timestamp below 0 becomes Go's zero time.
		"timestamps": testee.Object{"low": "0", "high": testee.Long(math.MaxInt64), "resolution_ms": 1},
	}
	testee.Drive(library, hello, testee.Client{Open: open, Produce: produce})
}

type consumer struct {
	sarama.Consumer
	partition sarama.PartitionConsumer
}

func open(opening testee.Opening) (testee.Consumer, error) {
	config := *settings
	if opening.IsCommitted() {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	config.Net.ReadTimeout = opening.RequestTimeout(config.Net.ReadTimeout)
	from := opening.Offset
	switch opening.Reset {
	case "earliest":
		from = sarama.OffsetOldest
	case "latest":
		from = sarama.OffsetNewest
	}
	if opening.Group != "" {
		config.Consumer.Offsets.Initial = from
		return join(opening, &config)
	}
	whole, err := sarama.NewConsumer(strings.Split(opening.Address, ","), &config)
	if err != nil {
		return nil, err
	}
	partition, err := whole.ConsumePartition(opening.Topic, 0, from)
	if err != nil {
		whole.Close()
		return nil, err
	}
	return consumer{whole, partition}, nil
}

func (c consumer) Close() {
	c.partition.Close()
	c.Consumer.Close()
}

func (c consumer) Poll(wait time.Duration) (records []testee.Object, err error) {
	return poll(wait, c.partition.Messages(), c.partition.Errors(), func(*sarama.ConsumerMessage) {})
}

// poll takes what is in the channels of a consumer: a message or an error, and the messages that are there as well.
func poll[E error](
	wait time.Duration, messages <-chan *sarama.ConsumerMessage, errs <-chan E, taken func(*sarama.ConsumerMessage),
) (records []testee.Object, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	take := func(message *sarama.ConsumerMessage) {
		if message != nil { // nil if the library has closed the channel
			records = append(records, recordJSON(message))
			taken(message)
		}
	}
	select {
	case message := <-messages:
		take(message)
	case failed, isOpen := <-errs:
		if isOpen {
			err = failed
			if one, ok := err.(*sarama.ConsumerError); ok {
				err = one.Err
			}
		}
	case <-timer.C:
	}
	for range len(messages) { // these came before any error that is waiting
		take(<-messages)
	}
	return records, err
}

func recordJSON(message *sarama.ConsumerMessage) testee.Object {
	var timestamp *int64
	if !message.Timestamp.IsZero() { // the library's word for "no timestamp": none at all in magic 0, or one below 0
		milliseconds := message.Timestamp.UnixMilli()
		timestamp = &milliseconds
	}
	headers := []testee.Header{}
	for _, header := range message.Headers {
		headers = append(headers, testee.NewHeader(string(header.Key), header.Value))
	}
	return testee.Record(message.Offset, timestamp, message.Key, message.Value, headers)
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

type producer struct{ sarama.SyncProducer }

func produce(sending testee.Sending) (testee.Producer, error) {
	config := *settings
	config.Producer.Compression = codecs[sending.Compression]
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	if sending.Idempotent || sending.TransactionalID != nil {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1 // the library refuses more
	}
	if sending.TransactionalID != nil {
		nameTransactions(&config, *sending.TransactionalID)
	}
	config.Net.ReadTimeout = sending.RequestTimeout(config.Net.ReadTimeout)
	made, err := sarama.NewSyncProducer(strings.Split(sending.Address, ","), &config)
	return producer{made}, err
}

func (p producer) Begin() error { return begin(p.SyncProducer) }

func (p producer) Commit() error { return commit(p.SyncProducer) }

func (p producer) Abort() error { return abort(p.SyncProducer) }

func (p producer) Close() { p.SyncProducer.Close() }

func (p producer) Send(topic string, all []testee.Given) (offsets []int64, _ error) {
	messages := messagesOf(topic, all)
	err := p.SendMessages(messages)
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return offsets, err
}

func messagesOf(topic string, all []testee.Given) (messages []*sarama.ProducerMessage) {
	for _, given := range all {
		message := &sarama.ProducerMessage{
			Topic: topic, Timestamp: given.Time(), Key: encoderOf(given.Key), Value: encoderOf(given.Value),
		}
		for _, header := range given.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: header.Key, Value: header.Value})
		}
		messages = append(messages, message)
	}
	return messages
}

// encoderOf is nil for null. A ByteEncoder that holds nil would be another thing for the library.
func encoderOf(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}
