// franz-go's whole client: a kgo.Client that consumes, and one that produces.
package main

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/twmb/franz-go/pkg/kgo"
)

const library = "github.com/twmb/franz-go"

// The library's own time limit of a request, besides what the broker may take.
const ownTimeout = 10 * time.Second

func main() {
	hello := testee.Object{
		"produces":  []string{"idempotent", "transactions", "sends", "topics"},
		"converses": append([]string{"reset", "group", "abort", "timeout"}, newest...),
		// A time.Time is made from nanoseconds in 64 bits, so other milliseconds do not survive.
		"timestamps": testee.Object{
			"low": testee.Long(math.MinInt64 / 1_000_000), "high": testee.Long(math.MaxInt64 / 1_000_000),
			"resolution_ms": 1,
		},
	}
	testee.Drive(library, hello, testee.Client{Open: open, Produce: produce})
}

// Nothing of this changes what the client does, only how long it waits before it does it.
func hurry(address string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(address, ",")...),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }),
	}
}

type consumer struct {
	*kgo.Client
	isCommitted bool
	offsets     testee.Object
}

func open(opening testee.Opening) (testee.Consumer, error) {
	isolation := kgo.ReadUncommitted()
	if opening.IsCommitted() {
		isolation = kgo.ReadCommitted()
	}
	options := append(hurry(opening.Address),
		kgo.FetchIsolationLevel(isolation),
		kgo.RequestTimeoutOverhead(opening.RequestTimeout(ownTimeout)),
		kgo.FetchMaxWait(10*time.Millisecond), // the least that the library takes
	)
	reset := kgo.NoResetOffset()
	from := kgo.NewOffset().At(opening.Offset)
	switch opening.Reset {
	case "earliest":
		reset, from = kgo.NewOffset().AtStart(), kgo.NewOffset().AtStart()
	case "latest":
		reset, from = kgo.NewOffset().AtEnd(), kgo.NewOffset().AtEnd()
	}
	options = append(options, kgo.ConsumeResetOffset(reset))
	if opening.Group == "" {
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{opening.Topic: {0: from}}))
	} else {
		options = append(options, kgo.ConsumerGroup(opening.Group), kgo.ConsumeTopics(opening.Topic),
			kgo.DisableAutoCommit(), kgo.HeartbeatInterval(testee.HeartbeatInterval))
		if opening.Protocol == "consumer" {
			options = append(options, ofNewGroup()...)
		}
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return consumer{client, opening.IsCommitted(), testee.Object{}}, nil
}

func (c consumer) Poll(wait time.Duration) (records []testee.Object, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if wait == 0 {
		ctx = nil // the library's way not to wait
	}
	fetches := c.PollFetches(ctx)
	fetches.EachRecord(func(record *kgo.Record) { records = append(records, recordJSON(record)) })
	fetches.EachPartition(func(partition kgo.FetchTopicPartition) {
		if partition.Err != nil {
			return
		}
		c.offsets["high_watermark"] = testee.Long(partition.HighWatermark)
		if c.isCommitted {
			c.offsets["last_stable_offset"] = testee.Long(partition.LastStableOffset)
		}
	})
	fetches.EachError(func(_ string, _ int32, each error) {
		if !errors.Is(each, context.DeadlineExceeded) {
			err = errors.Join(err, each)
		}
	})
	return records, err
}

func (c consumer) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), testee.CommitTimeout)
	defer cancel()
	return c.CommitUncommittedOffsets(ctx)
}

func (c consumer) Offsets() testee.Object { return c.offsets }

func recordJSON(record *kgo.Record) testee.Object {
	var timestamp *int64
	if record.Attrs.TimestampType() >= 0 {
		milliseconds := record.Timestamp.UnixMilli()
		timestamp = &milliseconds
	}
	headers := []testee.Header{}
	for _, header := range record.Headers {
		headers = append(headers, testee.NewHeader(header.Key, header.Value))
	}
	result := testee.Record(record.Offset, timestamp, record.Key, record.Value, headers)
	result["timestamp_type"] = timestampType(record.Attrs.TimestampType())
	return result
}

func timestampType(number int8) string {
	switch number {
	case -1:
		return "none"
	case 0:
		return "create"
	case 1:
		return "log-append"
	}
	return strconv.Itoa(int(number))
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

type producer struct {
	*kgo.Client
	ctx context.Context
	end context.CancelFunc
}

func produce(sending testee.Sending) (testee.Producer, error) {
	options := append(hurry(sending.Address), // idempotent, as it always is if nobody says otherwise
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[sending.Compression]),
		kgo.ProduceRequestTimeout(sending.RequestTimeout(ownTimeout)),
		kgo.RequestTimeoutOverhead(sending.RequestTimeout(ownTimeout)),
	)
	if sending.TransactionalID != nil {
		options = append(options, kgo.TransactionalID(*sending.TransactionalID))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeout(context.Background(), testee.ProduceTimeout)
	return producer{client, ctx, end}, nil
}

func (p producer) Begin() error { return p.BeginTransaction() }

func (p producer) Commit() error { return p.EndTransaction(p.ctx, kgo.TryCommit) }

func (p producer) Abort() error { return p.EndTransaction(p.ctx, kgo.TryAbort) }

func (p producer) Close() {
	p.end()
	p.Client.Close()
}

func (p producer) Send(topic string, all []testee.Given) (offsets []int64, _ error) {
	records := recordsOf(topic, all)
	err := p.ProduceSync(p.ctx, records...).FirstErr()
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	return offsets, err
}

func recordsOf(topic string, all []testee.Given) (records []*kgo.Record) {
	for _, given := range all {
		record := &kgo.Record{Topic: topic, Timestamp: given.Time(), Key: given.Key, Value: given.Value}
		for _, header := range given.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: string(header.Key), Value: header.Value})
		}
		records = append(records, record)
	}
	return records
}
