package testee

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"time"
)

// Opening says what a fresh consumer reads: partition 0 of a topic, from an offset on. RequestTimeoutMs is 0 if a request
// has the library's own time limit. With a Reset, the library resets the offset and does not seek. With a Group, it
// subscribes to the topic as a member, and does not commit by itself. Protocol is "consumer" for a group of KIP-848.
type Opening struct {
	Address   string `json:"address"`
	Topic     string `json:"topic"`
	Isolation string `json:"isolation"`
	Offset    int64  `json:"offset,string"`

	Limited

	Reset    string `json:"reset"`
	Group    string `json:"group"`
	Protocol string `json:"protocol"`
}

// Limited has the time limit of requests, if one is given.
type Limited struct {
	RequestTimeoutMs int64 `json:"request_timeout_ms"`
}

// RequestTimeout is the time limit of a request, or otherwise if none is given.
func (l Limited) RequestTimeout(otherwise time.Duration) time.Duration {
	if l.RequestTimeoutMs == 0 {
		return otherwise
	}
	return time.Duration(l.RequestTimeoutMs) * time.Millisecond
}

// IsCommitted is whether the consumer shows only what has been committed.
func (o Opening) IsCommitted() bool { return o.Isolation == "read_committed" }

// Sending says what a fresh producer sends to partition 0 of a topic: in one transaction if there is an id for it. Counts
// has the number of records of each send, and Topics its topic, if they have several. With a Group, each send is a
// transaction of its own, which also commits an offset of that group. With Abort, the one transaction is aborted.
type Sending struct {
	Address         string   `json:"address"`
	Topic           string   `json:"topic"`
	Compression     string   `json:"compression"`
	Idempotent      bool     `json:"idempotent"`
	TransactionalID *string  `json:"transactional_id"`
	Records         []Given  `json:"records"`
	Counts          []int    `json:"sends"`
	Topics          []string `json:"topics"`
	AtOnce          bool     `json:"at_once"`
	Group           string   `json:"group"`
	Abort           bool     `json:"abort"`
	Limited
}

// Given is a record to send. A nil timestamp is left to the library.
type Given struct {
	Timestamp *int64        `json:"timestamp,string"`
	Key       Bytes         `json:"key"`
	Value     Bytes         `json:"value"`
	Headers   []GivenHeader `json:"headers"`
}

// Time is the timestamp as Go's libraries take it: the zero time if there is none.
func (g Given) Time() time.Time {
	if g.Timestamp == nil {
		return time.Time{}
	}
	return time.UnixMilli(*g.Timestamp)
}

// GivenHeader is a header of a record to send.
type GivenHeader struct{ Key, Value Bytes }

// UnmarshalJSON reads a pair: a key, which is text or has its bytes in hex, and a value in hex.
func (h *GivenHeader) UnmarshalJSON(text []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if err := json.Unmarshal(pair[1], &h.Value); err != nil {
		return err
	}
	if strings.HasPrefix(string(pair[0]), "{") {
		var key struct{ Hex Bytes }
		err := json.Unmarshal(pair[0], &key)
		h.Key = key.Hex
		return err
	}
	var key string
	err := json.Unmarshal(pair[0], &key)
	h.Key = Bytes(key)
	return err
}

// Consumer is one consumer of a library.
type Consumer interface {
	// Poll waits for new records, at most that long. It returns records in their JSON form, or the error that the library
	// returns to its user, or both. If wait is 0, it returns the records that have arrived already.
	Poll(wait time.Duration) ([]Object, error)
	Close()
}

// WithCommits is a Consumer that can commit what it has handed out, for its group, and waits for that.
type WithCommits interface{ Commit() error }

// WithOffsets is a Consumer whose library reports offsets after a poll: fields of the answer.
type WithOffsets interface{ Offsets() Object }

// Client is a library whose consumers and producers are driven. Open and Produce return the library's own errors.
type Client struct {
	Open    func(Opening) (Consumer, error)
	Produce func(Sending) (Producer, error)
}

// Producer is one producer of a library. Any number of goroutines may send at once.
type Producer interface {
	// Begin begins a transaction, and Commit commits it.
	Begin() error
	Commit() error
	// Send returns when all of the records are acknowledged by a topic: the offsets that the library reports, if any.
	Send(topic string, records []Given) ([]int64, error)
	Close()
}

// WithGroups is a Producer that commits an offset of partition 0 of a topic for a group, as part of its transaction.
type WithGroups interface {
	CommitOffset(group, topic string, offset int64) error
}

// WithAborts is a Producer that can abort a transaction.
type WithAborts interface{ Abort() error }

// ErrNotOffered is the error of a Client for what its library does not have.
var ErrNotOffered = errors.New("the library does not have this")

// The offset that a transaction commits for a group.
const committedOffset = 1

// ProduceTimeout is how long a producer may take, and CommitTimeout a commit of a group.
const (
	ProduceTimeout = 5 * time.Second
	CommitTimeout  = 5 * time.Second
)

// HeartbeatInterval is how often a member of a classic group sends a heartbeat.
const HeartbeatInterval = 50 * time.Millisecond

// Drive lets the standard input drive a client, until it ends: a line for each step, and a line as its answer. library
// is a module path. hello has what the handshake says besides the library's version.
func Drive(library string, hello Object, client Client) {
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr // stdout is for the answers only; a library may print
	driver := driver{library: library, client: client, meter: newMeter(library)}
	say := func(answer Object) {
		if err := out.Encode(answer); err != nil {
			panic(err) // a fault of this program, so it must not look like an answer
		}
	}
	hello["version"] = Version(library)
	say(hello)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			say(driver.answer(line))
		}
		if err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
	}
}

type driver struct {
	library  string
	client   Client
	consumer Consumer
	pending  error // came with the last records
	meter    *meter
	grown    uint64 // the most bytes that were allocated between two looks at the heap's profile
	grownAt  string // where
}

func (d *driver) answer(line []byte) (result Object) {
	defer func() {
		if trouble := recover(); trouble != nil {
			result = Panicked(trouble, d.library)
		}
	}()
	var step struct {
		Do        string `json:"do"`
		TimeoutMs int64  `json:"timeout_ms"`
	}
	must(json.Unmarshal(line, &step))
	switch step.Do {
	case "open":
		var opening Opening
		must(json.Unmarshal(line, &opening))
		return d.open(opening)
	case "poll":
		return d.poll(time.Duration(step.TimeoutMs) * time.Millisecond)
	case "commit":
		if err := d.consumer.(WithCommits).Commit(); err != nil {
			return refused(err)
		}
		return Object{}
	case "close":
		if d.consumer != nil {
			d.consumer.Close()
		}
		d.consumer = nil
		return Object{}
	case "produce":
		var sending Sending
		must(json.Unmarshal(line, &sending))
		return d.produce(sending)
	}
	return Unsupported("step " + step.Do)
}

func (d *driver) produce(sending Sending) Object {
	producer, err := d.client.Produce(sending)
	if err != nil {
		return refused(err)
	}
	defer producer.Close()
	isOne := sending.TransactionalID != nil && sending.Group == ""
	if isOne {
		if err := producer.Begin(); err != nil {
			return refused(err)
		}
	}
	sends := d.sendAll(producer, sending)
	answer := Object{"sends": sends}
	if sending.Counts == nil {
		answer = sends[0]
	}
	if isOne && answer["outcome"] == nil {
		end := producer.Commit
		if sending.Abort {
			end = producer.(WithAborts).Abort
		}
		if err := end(); err != nil {
			return refused(err)
		}
	}
	return answer
}

// sendAll returns the result of each send.
func (d *driver) sendAll(producer Producer, sending Sending) []Object {
	counts := sending.Counts
	if counts == nil {
		counts = []int{len(sending.Records)}
	}
	results := make([]Object, len(counts))
	var group sync.WaitGroup
	defer group.Wait()
	for i, count := range counts {
		records, topic := sending.Records[:count], sending.Topic
		if sending.Topics != nil {
			topic = sending.Topics[i]
		}
		sending.Records = sending.Records[count:]
		if sending.AtOnce {
			group.Go(func() { results[i] = d.send(producer, sending.Group, topic, records) })
		} else {
			results[i] = d.send(producer, sending.Group, topic, records)
		}
	}
	return results
}

func (d *driver) send(producer Producer, group, topic string, records []Given) (result Object) {
	defer func() {
		if trouble := recover(); trouble != nil {
			result = Panicked(trouble, d.library)
		}
	}()
	if group != "" {
		if err := producer.Begin(); err != nil {
			return refused(err)
		}
	}
	offsets, err := producer.Send(topic, records)
	if err == nil && group != "" {
		err = producer.(WithGroups).CommitOffset(group, topic, committedOffset)
		if err == nil {
			err = producer.Commit()
		}
	}
	if err != nil {
		return refused(err)
	}
	texts := []string{} // [], not null
	for _, offset := range offsets {
		texts = append(texts, Long(offset))
	}
	return Object{"offsets": texts}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (d *driver) open(opening Opening) Object {
	d.consumer, d.pending, d.grown, d.grownAt = nil, nil, 0, ""
	d.meter.start()
	consumer, err := d.client.Open(opening)
	if err != nil {
		return refused(err)
	}
	d.consumer = consumer
	return Object{}
}

func (d *driver) poll(wait time.Duration) (result Object) {
	defer func() { d.measure(result) }()
	if err := d.pending; err != nil {
		d.pending = nil
		return refused(err)
	}
	records, err := d.consumer.Poll(wait)
	if err != nil && len(records) == 0 {
		return refused(err)
	}
	d.pending = err
	result = Object{"records": append([]Object{}, records...)} // [], not null
	if consumer, ok := d.consumer.(WithOffsets); ok {
		maps.Copy(result, consumer.Offsets())
	}
	return result
}

// measure tells what has been allocated since the consumer was opened: a library works when it wants to.
func (d *driver) measure(result Object) {
	taken, grown := allocated()-d.meter.before, allocated()-d.meter.looked
	if grown > large && grown > d.grown {
		d.grown, d.grownAt = grown, d.meter.heaviest()
	}
	result["allocated_bytes"] = taken
	if taken > large && d.grownAt != "" {
		result["allocated_at"] = d.grownAt
	}
}

func refused(err error) Object {
	if errors.Is(err, ErrNotOffered) {
		return Unsupported(err.Error())
	}
	return Object{"outcome": "rejected", "error": err.Error()}
}
