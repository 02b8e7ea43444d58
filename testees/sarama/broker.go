package main

import (
	"encoding/binary"
	"math"
	"net"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

const topic = "kfuzz"

// The version of Fetch that a consumer with default settings uses.
const fetchVersion = 12

// pipe connects a sarama.Broker to this program, which plays the broker. Config.Net.Proxy takes any dialer.
type pipe struct{ net.Conn }

func (p pipe) Dial(string, string) (net.Conn, error) { return p.Conn, nil }

// open starts a Broker on this connection. Each request has a fresh one, because the library closes one after an error.
func open(client net.Conn) (broker *sarama.Broker, stop func()) {
	config := sarama.NewConfig()
	config.ApiVersionsRequest = false
	config.Version = sarama.MaxVersion
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, pipe{client}
	broker = sarama.NewBroker("kfuzz:9092")
	if err := broker.Open(config); err != nil {
		panic(err)
	}
	return broker, func() {
		client.Close()
		broker.Close()
		config.MetricRegistry.UnregisterAll() // otherwise each connection's meters are kept forever
	}
}

// fetch lets the library fetch these bytes.
func fetch(data []byte, aborted []testee.Aborted) (*sarama.FetchResponseBlock, error) {
	client, server := net.Pipe()
	broker, stop := open(client)
	defer stop()
	go answer(server, data, aborted)
	request := &sarama.FetchRequest{Version: fetchVersion, MinBytes: 1, MaxBytes: math.MaxInt32}
	request.AddBlock(topic, 0, 0, math.MaxInt32, -1)
	response, err := broker.Fetch(request)
	if err != nil {
		return nil, err
	}
	return response.GetBlock(topic, 0), nil
}

// answer reads one Fetch request and writes its response. Both end early if the library closes the connection.
func answer(conn net.Conn, data []byte, aborted []testee.Aborted) {
	request, err := testee.ReadSized(conn)
	if err != nil {
		return
	}
	big := binary.BigEndian
	b := append(make([]byte, 4), request[4:8]...) // room for the size, then the correlation id
	b = append(b, 0)                              // tagged fields of the header
	b = append(b, make([]byte, 4+2+4)...)         // throttle time, error, session
	b = append(b, 1+1, 1+byte(len(topic)))
	b = append(b, topic...)
	b = append(b, 1+1)
	b = append(b, make([]byte, 4+2)...) // partition, error
	b = big.AppendUint64(b, math.MaxInt64)
	b = big.AppendUint64(b, math.MaxInt64) // high watermark, last stable offset: behind everything
	b = big.AppendUint64(b, 0)
	b = binary.AppendUvarint(b, uint64(len(aborted)+1))
	for _, one := range aborted {
		b = big.AppendUint64(b, uint64(one.ProducerID))
		b = append(big.AppendUint64(b, uint64(one.FirstOffset)), 0)
	}
	b = big.AppendUint32(b, math.MaxUint32) // preferred read replica: none
	b = binary.AppendUvarint(b, uint64(len(data)+1))
	b = append(append(b, data...), 0, 0, 0) // tagged fields of partition, topic and response
	big.PutUint32(b, uint32(len(b)-4))
	conn.Write(b)
}
