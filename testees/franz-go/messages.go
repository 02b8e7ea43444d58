package main

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"

	testee "kfuzz_testee"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var tagsType = reflect.TypeFor[kmsg.Tags]()

// message is what kmsg's requests and responses have in common.
type message interface {
	SetVersion(int16)
	MaxVersion() int16
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
	Default()
}

// messages has a constructor for each of Kafka's names.
var messages = func() map[string]func() message {
	found := map[string]func() message{}
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if request := kmsg.RequestForKey(key); request != nil {
			found[kafkaMessage(request)] = func() message { return kmsg.RequestForKey(key).(message) }
			found[kafkaMessage(kmsg.ResponseForKey(key))] = func() message { return kmsg.ResponseForKey(key).(message) }
		}
	}
	return found
}()

// kafkaMessage is Kafka's name of a message: kmsg writes ACLs, IDs and the like with capital letters.
func kafkaMessage(m any) string {
	name := reflect.TypeOf(m).Elem().Name()
	return strings.NewReplacer("ACLs", "Acls", "IDs", "Ids", "ID", "Id", "ISR", "Isr", "SASL", "Sasl", "SCRAM", "Scram",
		"PartitionAssignments", "PartitionReassignments").Replace(name)
}

func messageVersions() testee.Object {
	versions := testee.Object{}
	for name, make := range messages {
		versions[name] = []int16{0, make().MaxVersion()}
	}
	// Before that, one field of kmsg stands for several of Kafka.
	versions["StopReplicaRequest"] = []int16{3, messages["StopReplicaRequest"]().MaxVersion()}
	return versions
}

func newMessage(request testee.Request) message {
	m := messages[request.Message]()
	m.Default()
	m.SetVersion(request.Version)
	return m
}

func decodeMessage(request testee.Request) testee.Object {
	if messages[request.Message] == nil {
		return testee.Unsupported("message " + request.Message)
	}
	m := newMessage(request)
	if err := m.ReadFrom(request.Hex); err != nil {
		return testee.Object{"outcome": "rejected", "error": err.Error()}
	}
	shown := structs.JSON(reflect.ValueOf(m).Elem(), layoutOf(request))
	return testee.Object{"outcome": "accepted", "message": shown}
}

func encodeMessage(request testee.Request) testee.Object {
	if messages[request.Message] == nil {
		return testee.Unsupported("message " + request.Message)
	}
	m := newMessage(request)
	if err := structs.Fill(reflect.ValueOf(m).Elem(), request.Body); err != nil {
		return testee.Object{"outcome": "rejected", "error": err.Error()}
	}
	return testee.Object{"outcome": "accepted", "hex": hex.EncodeToString(m.AppendTo(nil))}
}

var structs = testee.Messages{
	Name: kafkaField,
	SetDefaults: func(pointer reflect.Value) {
		if fresh, ok := pointer.Interface().(interface{ Default() }); ok {
			fresh.Default() // keeps the version of a message
		}
	},
	EachTag: func(value reflect.Value, do func(uint32, []byte)) {
		if tags := tagsOf(value); tags != nil {
			tags.Each(do)
		}
	},
	SetTag: func(value reflect.Value, tag uint32, data []byte) error {
		tags := tagsOf(value)
		if tags == nil {
			return fmt.Errorf("%s has no unknown tagged fields", value.Type())
		}
		tags.Set(tag, data)
		return nil
	},
}

func tagsOf(value reflect.Value) *kmsg.Tags {
	tags := value.FieldByName("UnknownTags")
	if !tags.IsValid() {
		return nil
	}
	return tags.Addr().Interface().(*kmsg.Tags)
}
