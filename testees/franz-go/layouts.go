package main

import (
	"bytes"
	_ "embed"
	"reflect"
	"strings"

	testee "kfuzz_testee"
)

type versioned struct {
	message string
	version int16
}

var layouts = map[versioned]testee.Layout{}

// layoutOf finds the fields that a version of a message has. kmsg's structs have the fields of all versions and do not
// tell which version has which. So we ask its encoder: a field belongs to a version if changing it changes the bytes,
// and it is nullable if an empty list and no list give different bytes.
func layoutOf(request testee.Request) testee.Layout {
	key := versioned{request.Message, request.Version}
	known, ok := layouts[key]
	if !ok {
		m := newMessage(request)
		root := reflect.ValueOf(m).Elem()
		populate(root)
		known = probe(root, request.Version, func() []byte { return m.AppendTo(nil) })
		layouts[key] = known
	}
	return known
}

func isField(f reflect.StructField) bool { return f.Name != "Version" && f.Type != tagsType }

// populate gives each list one element and each pointer a value, so that every field is reached.
func populate(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		populate(value.Elem())
	case reflect.Struct:
		structs.SetDefaults(value.Addr())
		for i := range value.NumField() {
			if isField(value.Type().Field(i)) {
				populate(value.Field(i))
			}
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		populate(value.Index(0))
	}
}

func probe(value reflect.Value, version int16, encode func() []byte) testee.Layout {
	var fields testee.Layout
	for i := range value.NumField() {
		if !isField(value.Type().Field(i)) {
			continue
		}
		goName := value.Type().Field(i).Name
		one := testee.Field{Index: i, Name: kafkaField(value.Type(), goName)}
		one.Optional = version < tagsSince[value.Type().Name()+"."+goName]
		part := value.Field(i)
		there := false
		switch inner := structIn(part); {
		case part.Kind() == reflect.Struct:
			one.Fields = probe(part, version, encode)
			there = len(one.Fields) > 0
		case inner.IsValid():
			if there = changes(part, reflect.Zero(part.Type()), encode); there {
				one.Fields = probe(inner, version, encode)
			}
		default:
			there = changes(part, other(part), encode)
		}
		if there && part.Kind() == reflect.Slice {
			kept := reflect.ValueOf(part.Interface())
			part.Set(reflect.MakeSlice(part.Type(), 0, 0))
			one.Nullable = changes(part, reflect.Zero(part.Type()), encode)
			part.Set(kept)
		}
		if there {
			fields = append(fields, one)
		}
	}
	return fields
}

// tagsSince has the first version of tagged fields that kmsg reads and writes in every version with tags. In an earlier
// version such a field is shown only if it was read.
var tagsSince = map[string]int16{
	"ProduceResponse.Brokers":                               10,
	"ProduceResponseTopicPartition.CurrentLeader":           10,
	"FetchRequest.ReplicaState":                             15,
	"FetchRequestTopicPartition.ReplicaDirectoryID":         17,
	"FetchRequestTopicPartition.HighWatermark":              18,
	"FetchResponse.Brokers":                                 16,
	"VoteResponse.NodeEndpoints":                            1,
	"FetchSnapshotRequestTopicPartition.ReplicaDirectoryID": 1,
	"FetchSnapshotResponse.NodeEndpoints":                   1,
	"BrokerHeartbeatRequest.OfflineLogDirs":                 1,
	"BrokerHeartbeatRequest.CordonedLogDirs":                2,
}

// structIn is the struct that a pointer or a list holds; not valid if it holds something else.
func structIn(value reflect.Value) reflect.Value {
	if value.Kind() == reflect.Pointer && value.Elem().Kind() == reflect.Struct {
		return value.Elem()
	}
	if value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct {
		return value.Index(0)
	}
	return reflect.Value{}
}

// changes tells whether the encoder writes other bytes if the value is another one.
func changes(value, another reflect.Value, encode func() []byte) bool {
	before := encode()
	kept := reflect.New(value.Type()).Elem()
	kept.Set(value)
	value.Set(another)
	after := encode()
	value.Set(kept)
	return !bytes.Equal(before, after)
}

// other is a value that differs from this one, which is a default or the only element of a list.
func other(value reflect.Value) reflect.Value {
	made := reflect.New(value.Type()).Elem()
	switch value.Kind() {
	case reflect.Bool:
		made.SetBool(!value.Bool())
	case reflect.String:
		made.SetString(value.String() + "x")
	case reflect.Float64:
		made.SetFloat(value.Float() + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		made.SetUint(value.Uint() ^ 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		made.SetInt(value.Int() ^ 1)
	case reflect.Pointer:
		made.Set(reflect.New(value.Type().Elem()))
		made.Elem().Set(other(made.Elem()))
	case reflect.Array:
		made.Set(value)
		made.Index(0).SetUint(value.Index(0).Uint() ^ 1)
	case reflect.Slice:
		made.Set(reflect.MakeSlice(value.Type(), 3, 3))
	}
	return made
}

// --- Kafka's names -------------------------------------------------------------------------------------------------

//go:embed names.txt
var namesText string

// names has Kafka's name for "Struct.Field" where the rule of kafkaField does not give it.
var names = testee.NamesIn(namesText)

// kafkaField is Kafka's name of a field: TimeoutMillis is timeoutMs, TopicIDs is topicIds, ISRNodes is isrNodes.
func kafkaField(in reflect.Type, name string) string {
	if field, _ := in.FieldByName(name); !isField(field) {
		return ""
	}
	for _, key := range []string{in.Name() + "." + name, "*." + name} {
		if special, ok := names[key]; ok {
			return special
		}
	}
	if cut, ok := strings.CutSuffix(name, "Millis"); ok {
		name = cut + "Ms"
	}
	return testee.KafkaName(name)
}
