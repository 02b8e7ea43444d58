package main

import (
	"encoding/binary"
	"math"
	"net"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

const topic = "kfuzz"

// open starts a Broker on a connection to this program, which plays the broker. Each request has a fresh one, because the
// library closes one after an error.
func open() (broker *sarama.Broker, server net.Conn, stop func()) {
	config := sarama.NewConfig()
	client, server, broker := connect(config)
	if err := broker.Open(config); err != nil && err != sarama.ErrAlreadyConnected {
		panic(err)
	}
	return broker, server, func() {
		client.Close()
		broker.Close()
		config.MetricRegistry.UnregisterAll() // otherwise each connection's meters are kept forever
	}
}

// fetch lets the library fetch these bytes.
func fetch(data []byte, aborted []testee.Aborted) (*sarama.FetchResponseBlock, error) {
	broker, server, stop := open()
	defer stop()
	go answer(server, data, aborted)
	request := &sarama.FetchRequest{Version: fetchVersion, MinBytes: 1, MaxBytes: math.MaxInt32}
	addPartition(request)
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
	b := append(make([]byte, 4), request[4:8]...) // room for the size, then the correlation id
	b = response(b, data, aborted)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	conn.Write(b)
}
