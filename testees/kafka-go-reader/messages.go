package main

import (
	"net"
	"time"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go"
)

// What ReadPartitions does not show, or only for a broker that the response describes.
var hidden = testee.Object{"MetadataResponse": []string{
	"brokers", "controllerId", "topics.errorCode", "topics.isInternal",
	"topics.partitions.errorCode", "topics.partitions.leaderId",
}}

// decodeMessage shows the partitions that a Conn makes of a MetadataResponse.
func decodeMessage(request testee.Request) testee.Object {
	client, server := net.Pipe()
	defer client.Close()
	go serve(server, request.Hex, 0, nil)
	conn := kafka.NewConnWith(client, kafka.ConnConfig{Topic: topic})
	conn.SetReadDeadline(time.Now().Add(patience))
	partitions, err := conn.ReadPartitions()
	if err != nil {
		return testee.Object{"outcome": "rejected", "error": err.Error()}
	}
	topics := []testee.Object{}
	for i, one := range partitions {
		if i == 0 || one.Topic != partitions[i-1].Topic {
			topics = append(topics, testee.Object{"name": one.Topic, "partitions": []testee.Object{}})
		}
		shown := testee.Object{"partitionIndex": one.ID, "replicaNodes": ids(one.Replicas), "isrNodes": ids(one.Isr)}
		if one.Leader.Host != "" {
			shown["leaderId"] = one.Leader.ID
		}
		last := topics[len(topics)-1]
		last["partitions"] = append(last["partitions"].([]testee.Object), shown)
	}
	return testee.Object{"outcome": "accepted", "message": testee.Object{"topics": topics}}
}

func ids(brokers []kafka.Broker) []int {
	found := []int{}
	for _, one := range brokers {
		found = append(found, one.ID)
	}
	return found
}
