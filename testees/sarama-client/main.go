// sarama's whole client: a Consumer with a PartitionConsumer, and a SyncProducer.
package main

import (
	"math"
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
	prepare(settings)
	hello := testee.Object{
		"produces": offered,
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
	whole, err := sarama.NewConsumer([]string{opening.Address}, &config)
	if err != nil {
		return nil, err
	}
	partition, err := whole.ConsumePartition(opening.Topic, 0, opening.Offset)
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
	timer := time.NewTimer(wait)
	defer timer.Stop()
	take := func(message *sarama.ConsumerMessage) {
		if message != nil { // nil if the library has closed the channel
			records = append(records, recordJSON(message))
		}
	}
	fail := func(failed *sarama.ConsumerError) {
		if failed != nil {
			err = failed.Err
		}
	}
	select {
	case message := <-c.partition.Messages():
		take(message)
	case failed := <-c.partition.Errors():
		fail(failed)
	case <-timer.C:
	}
	for range len(c.partition.Messages()) { // these came before any error that is waiting
		take(<-c.partition.Messages())
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
	made, err := sarama.NewSyncProducer([]string{sending.Address}, &config)
	return producer{made}, err
}

func (p producer) Begin() error { return begin(p.SyncProducer) }

func (p producer) Commit() error { return commit(p.SyncProducer) }

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
