package main

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"strconv"
	"strings"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go/protocol"
)

// messages has the type of each of Kafka's names.
var messages = func() map[string]reflect.Type {
	found := map[string]reflect.Type{}
	for _, m := range apis {
		in := reflect.TypeOf(m).Elem()
		found[m.ApiKey().String()+in.Name()] = in // "Fetch" and "Request"
	}
	return found
}()

func messageVersions() testee.Object {
	versions := testee.Object{}
	for name, in := range messages {
		key := reflect.New(in).Interface().(protocol.Message).ApiKey()
		versions[name] = []int16{key.MinVersion(), key.MaxVersion()}
	}
	return versions
}

func newMessage(request testee.Request) (protocol.Message, testee.Layout) {
	in := messages[request.Message]
	return reflect.New(in).Interface().(protocol.Message), layoutOf(in, request.Version)
}

func decodeMessage(request testee.Request) testee.Object {
	if messages[request.Message] == nil {
		return testee.Unsupported("message " + request.Message)
	}
	empty, layout := newMessage(request)
	header, err := headerOf(empty, request)
	if err != nil {
		panic(err) // a fault of the testee
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(header)+len(request.Hex)))
	frame = append(append(frame, header...), request.Hex...)
	var m protocol.Message
	if isRequest(empty) {
		_, _, _, m, err = protocol.ReadRequest(bytes.NewReader(frame))
	} else {
		_, m, err = protocol.ReadResponse(bytes.NewReader(frame), empty.ApiKey(), request.Version)
	}
	if err != nil {
		return testee.Object{"outcome": "rejected", "error": err.Error()}
	}
	shown := structs
	shown.LongestList = len(request.Hex) // every element of a real list has a byte; this bounds the answer
	return testee.Object{"outcome": "accepted", "message": shown.JSON(reflect.ValueOf(m).Elem(), layout)}
}

func encodeMessage(request testee.Request) testee.Object {
	if messages[request.Message] == nil {
		return testee.Unsupported("message " + request.Message)
	}
	m, _ := newMessage(request)
	header, err := headerOf(m, request)
	if err != nil {
		panic(err) // a fault of the testee
	}
	if err := structs.Fill(reflect.ValueOf(m).Elem(), request.Body); errors.Is(err, errNoTags) {
		return testee.Unsupported(err.Error())
	} else if err != nil {
		return testee.Object{"outcome": "rejected", "error": err.Error()}
	}
	frame, err := write(m, request.Version)
	if err != nil {
		return testee.Object{"outcome": "rejected", "error": err.Error()}
	}
	return testee.Object{"outcome": "accepted", "hex": hex.EncodeToString(frame[4+len(header):])}
}

func isRequest(m protocol.Message) bool { return reflect.TypeOf(m).Elem().Name() == "Request" }

func write(m protocol.Message, version int16) ([]byte, error) {
	var frame bytes.Buffer
	var err error
	if isRequest(m) {
		err = protocol.WriteRequest(&frame, version, 0, "", m)
	} else {
		err = protocol.WriteResponse(&frame, version, 0, m)
	}
	return frame.Bytes(), err
}

// headerOf is the header that the library writes before a message. It has no function for a message alone.
func headerOf(m protocol.Message, request testee.Request) ([]byte, error) {
	frame, err := write(m, request.Version)
	size := 4 // the correlation id
	if isRequest(m) {
		size = 2 + 2 + 4 + 2 // key, version, correlation id, client id
	}
	if isFlexible(reflect.TypeOf(m).Elem(), request.Version) {
		size++ // no tagged fields
	}
	if err != nil || len(frame) < 4+size {
		return nil, errors.Join(err, errors.New("no header"))
	}
	return frame[4 : 4+size], nil
}

// --- which fields a version has -------------------------------------------------------------------------------------

// A variant is one alternative in the library's struct tags: `kafka:"min=v0,max=v1|min=v2,max=v4,nullable"`.
type variant struct {
	first, last      int16
	nullable, tagged bool
}

func variants(field reflect.StructField) (list []variant) {
	for _, text := range strings.Split(field.Tag.Get("kafka"), "|") {
		one := variant{first: -1, last: -1}
		for _, option := range strings.Split(text, ",") {
			name, value, _ := strings.Cut(option, "=")
			version, _ := strconv.ParseInt(strings.TrimPrefix(value, "v"), 10, 16)
			switch name {
			case "min":
				one.first = int16(version)
			case "max":
				one.last = int16(version)
			case "nullable":
				one.nullable = true
			case "tag":
				one.tagged = true
			}
		}
		list = append(list, one)
	}
	return list
}

// isFlexible follows makeTypes: a message is flexible from the first version of a field whose struct tag has "tag".
func isFlexible(in reflect.Type, version int16) bool {
	for i := range in.NumField() {
		for _, one := range variants(in.Field(i)) {
			if one.tagged && one.first <= version {
				return true
			}
		}
	}
	return false
}

func layoutOf(in reflect.Type, version int16) testee.Layout {
	var fields testee.Layout
	for i := range in.NumField() {
		part := in.Field(i)
		name := kafkaField(in, part.Name)
		for _, one := range variants(part) {
			if name == "" || version < one.first || version > one.last {
				continue
			}
			field := testee.Field{Index: i, Name: name, Nullable: one.nullable}
			inner := part.Type
			if inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				field.Fields = layoutOf(inner, version)
			}
			fields = append(fields, field)
			break // the library takes the first that fits
		}
	}
	return fields
}

// --- Kafka's names --------------------------------------------------------------------------------------------------

var errNoTags = errors.New("the library does not keep unknown tagged fields")

var structs = testee.Messages{
	Name:        kafkaField,
	SetDefaults: func(reflect.Value) {}, // the library has none
	EachTag:     func(reflect.Value, func(uint32, []byte)) {},
	SetTag:      func(reflect.Value, uint32, []byte) error { return errNoTags },
}

//go:embed names.txt
var namesText string

// names has Kafka's name for "package.Struct.Field" where the rule of kafkaField does not give it.
var names = testee.NamesIn(namesText)

// kafkaField is Kafka's name of a field: ThrottleTimeMs is throttleTimeMs, RackID is rackId.
func kafkaField(in reflect.Type, name string) string {
	if special, ok := names[in.String()+"."+name]; ok {
		return special
	}
	if name == "_" {
		return ""
	}
	return testee.KafkaName(name)
}
