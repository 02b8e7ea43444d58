//go:build older

package main

import (
	"encoding/binary"
	"math"
	"net"
	"reflect"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// The first versions with record batches. The records are the same in later ones.
const fetchVersion, produceBatches = 4, 3

// connect gives the broker's end of a connection over the loopback interface: the first versions take no dialer.
func connect(config *sarama.Config) (client, server net.Conn, broker *sarama.Broker) {
	if field := reflect.ValueOf(config).Elem().FieldByName("ApiVersionsRequest"); field.IsValid() {
		field.SetBool(false)
	}
	config.Version = sarama.MaxVersion // all that it has is asked
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	broker = sarama.NewBroker(listener.Addr().String())
	if err := broker.Open(config); err != nil {
		panic(err)
	}
	if server, err = listener.Accept(); err != nil {
		panic(err)
	}
	return server, server, broker
}

// addPartition asks for the partition. The first versions have no leader epoch, the last value.
func addPartition(request *sarama.FetchRequest) {
	add := reflect.ValueOf(request).MethodByName("AddBlock")
	values := []any{topic, int32(0), int64(0), int32(math.MaxInt32), int32(-1)}
	var given []reflect.Value
	for _, value := range values[:add.Type().NumIn()] {
		given = append(given, reflect.ValueOf(value))
	}
	add.Call(given)
}

// offerMessages adds the responses of layouts.txt, from which older.sh has left out what the version does not have.
func offerMessages(hello testee.Object, answers testee.Answers) {
	hello["operations"] = append(hello["operations"].([]string), "decode-message")
	hello["side"], hello["messages"], hello["hidden"] = "client", messageVersions(), hidden
	hello["unknown_tags"] = "skipped"
	answers["decode-message"] = decodeMessage
}

// isTransactional is a field that version 1.21 does not have.
func isTransactional(batch *sarama.RecordBatch) *bool {
	if field := reflect.ValueOf(batch).Elem().FieldByName("IsTransactional"); field.IsValid() {
		return field.Addr().Interface().(*bool)
	}
	return new(bool)
}

// response appends the body of a response to b.
func response(b, data []byte, aborted []testee.Aborted) []byte {
	big := binary.BigEndian
	b = append(b, make([]byte, 4)...) // throttle time
	b = big.AppendUint32(b, 1)
	b = append(big.AppendUint16(b, uint16(len(topic))), topic...)
	b = big.AppendUint32(b, 1)
	b = append(b, make([]byte, 4+2)...) // partition, error
	b = big.AppendUint64(b, math.MaxInt64)
	b = big.AppendUint64(b, math.MaxInt64) // high watermark, last stable offset: behind everything
	b = big.AppendUint32(b, uint32(len(aborted)))
	for _, one := range aborted {
		b = big.AppendUint64(b, uint64(one.ProducerID))
		b = big.AppendUint64(b, uint64(one.FirstOffset))
	}
	b = big.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}
