package main

import (
	"cmp"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// The messages of sarama. Its encoders and decoders are not public, so a Broker sends each request and reads each
// response, over a pipe. layouts.txt says where Kafka's fields are in sarama's structs.

//go:embed layouts.txt
var layoutsText string

// A layout is a message: what sends it, and its fields.
type layout struct {
	newest, flexible int16 // versions; flexible is above newest if none is
	method           string
	fields           []*field
}

type field struct {
	name, place string
	low, high   int16
	nullable    bool
	fields      []*field
}

var layouts = func() map[string]*layout {
	found := map[string]*layout{}
	var open []*[]*field // the lists that the next line may belong to, by its depth
	for line := range strings.Lines(layoutsText) {
		words := strings.Fields(line)
		depth := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case words[0] == "#":
		case depth == 0:
			one := &layout{newest: number(words[1]), flexible: number(words[2]), method: words[3]}
			found[words[0]] = one
			open = []*[]*field{&one.fields}
		default:
			one := &field{name: words[0], place: words[1], high: math.MaxInt16}
			for _, word := range words[2:] {
				low, high, ranged := strings.Cut(word, "-")
				switch {
				case word == "?":
					one.nullable = true
				case ranged:
					one.low, one.high = number(low), number(high)
				default:
					one.low = number(strings.TrimSuffix(word, "+"))
				}
			}
			*open[depth-1] = append(*open[depth-1], one)
			open = append(open[:depth], &one.fields)
		}
	}
	return found
}()

// number is a version; "-" is above all.
func number(text string) int16 {
	if text == "-" {
		return math.MaxInt16
	}
	value, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		panic(err)
	}
	return int16(value)
}

func messageVersions() testee.Object {
	versions := testee.Object{}
	for name, one := range layouts {
		versions[name] = []int16{0, one.newest}
	}
	return versions
}

// Fields that sarama reads and does not keep, or of which it keeps only the records.
var hidden = testee.Object{
	"ApiVersionsResponse": []string{"zkMigrationReady"},
	"FetchResponse":       []string{"responses.partitions.snapshotId", "responses.partitions.records"},
}

// call lets a Broker send a request, and plays the broker. It returns the request's bytes and what the Broker returns.
func call(request reflect.Value, method string, answer func(frame []byte) []byte) (sent []byte, result []reflect.Value) {
	broker, server, stop := open()
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		if sent, err = testee.ReadSized(server); err != nil {
			return
		}
		if answer == nil {
			server.Close()
			return
		}
		server.Write(answer(sent))
	}()
	result = reflect.ValueOf(broker).MethodByName(method).Call([]reflect.Value{request})
	server.Close() // not earlier: the library sets deadlines, and a pipe with a closed end refuses them
	<-done
	return sent, result
}

// newRequest is a request of this version that a Broker's method takes.
func newRequest(method string, version int16) reflect.Value {
	in, _ := reflect.TypeFor[*sarama.Broker]().MethodByName(method)
	request := reflect.New(in.Type.In(1).Elem())
	// What the first versions do not have is left out.
	set := func(name string, value any) {
		if field := request.Elem().FieldByName(name); field.IsValid() {
			field.Set(reflect.ValueOf(value).Convert(field.Type()))
		}
	}
	set("Version", version) // an int16 or an int
	switch request.Elem().Type().Name() {
	case "ProduceRequest":
		set("RequiredAcks", sarama.WaitForLocal) // otherwise the Broker waits for no response
	case "ListTransactionsRequest":
		set("DurationFilter", -1) // other values are refused in version 0
	case "OffsetFetchRequest":
		if groups := request.Elem().FieldByName("Groups"); version >= 8 && groups.IsValid() {
			groups.Set(reflect.MakeSlice(groups.Type(), 1, 1)) // none is refused
		}
	}
	return request
}

// --- responses ------------------------------------------------------------------------------------------------------

func decodeMessage(request testee.Request) testee.Object {
	one := layouts[request.Message]
	if one == nil || request.Version > one.newest {
		return testee.Unsupported(fmt.Sprintf("no version %d of %s", request.Version, request.Message))
	}
	_, result := call(newRequest(one.method, request.Version), one.method, func(frame []byte) []byte {
		body := append([]byte{}, frame[4:8]...) // the correlation id
		if request.Version >= one.flexible && request.Message != "ApiVersionsResponse" {
			body = append(body, 0) // no tagged fields
		}
		body = append(body, request.Hex...)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	})
	response, err := result[0], result[1]
	if response.IsNil() { // some methods return both a response and the errors in it
		return testee.Object{"outcome": "rejected", "error": fmt.Sprint(err.Interface())}
	}
	shown := structJSON(element{value: response}, one.fields, request.Version)
	return testee.Object{"outcome": "accepted", "message": shown}
}

// An element of a list; if sarama has the list as a map, it has the key and the struct with the map.
type element struct {
	value, key reflect.Value
	owner      *element
}

func structJSON(one element, fields []*field, version int16) testee.Object {
	shown := testee.Object{}
	for _, part := range fields {
		if version >= part.low && version <= part.high {
			shown[part.name] = fieldJSON(one, part, version)
		}
	}
	return shown
}

func fieldJSON(one element, part *field, version int16) any {
	value := one.at(part.place)
	if broker, ok := brokerIn(value); ok {
		return broker
	}
	if !value.IsValid() { // in a struct that is not there: sarama uses nil for Kafka's default
		return missing(part)
	}
	for value.Kind() == reflect.Pointer {
		if value.IsNil() && part.fields == nil {
			return nil
		}
		if value.IsNil() {
			value = reflect.Value{}
			break
		}
		value = value.Elem()
	}
	if part.fields == nil {
		return valueJSON(value, part.nullable)
	}
	switch value.Kind() {
	case reflect.Map:
		if value.IsNil() && part.nullable {
			return nil
		}
		list := []testee.Object{}
		for _, key := range slices.SortedFunc(slices.Values(value.MapKeys()), compareKeys) {
			inner := element{value.MapIndex(key), key, &one}
			list = append(list, structJSON(inner, part.fields, version))
		}
		return list
	case reflect.Slice:
		if value.IsNil() && part.nullable {
			return nil
		}
		list := []testee.Object{}
		for i := range value.Len() {
			list = append(list, structJSON(element{value: value.Index(i)}, part.fields, version))
		}
		return list
	}
	return structJSON(element{value: value}, part.fields, version)
}

func compareKeys(a, b reflect.Value) int {
	if a.Kind() == reflect.String {
		return strings.Compare(a.String(), b.String())
	}
	return cmp.Compare(a.Int(), b.Int())
}

// missing is Kafka's default of a field in the structs that sarama may leave out: all of them have -1.
func missing(part *field) any {
	if part.name == "endOffset" {
		return "-1"
	}
	return -1
}

// at is the value at a place; not valid if a pointer on the way is nil.
func (one element) at(place string) reflect.Value {
	value := one.value
	if name, above := strings.CutPrefix(place, ".."); above {
		name, rest, _ := strings.Cut(name, ".")
		value, place = one.owner.at(name).MapIndex(one.key), rest
	}
	for _, name := range strings.Split(place, ".") {
		switch name {
		case "", "@":
			continue
		case "@key":
			return one.key
		}
		for value.Kind() == reflect.Pointer && value.Type() != reflect.TypeFor[*sarama.Broker]() {
			value = value.Elem()
		}
		switch {
		case !value.IsValid():
			return value
		case value.Kind() == reflect.Pointer:
			return reflect.ValueOf(brokerField{value.Interface().(*sarama.Broker), name})
		}
		value = value.FieldByName(name)
	}
	return value
}

// A brokerField is a field of a broker in a response. sarama makes a Broker of it, whose fields have methods.
type brokerField struct {
	broker *sarama.Broker
	name   string
}

func brokerIn(value reflect.Value) (any, bool) {
	if !value.IsValid() || value.Type() != reflect.TypeFor[brokerField]() {
		return nil, false
	}
	one := value.Interface().(brokerField)
	host, port := "", "0"
	if one.broker == nil { // sarama leaves out a coordinator without an address
		one.broker = sarama.NewBroker("")
	} else {
		host, port, _ = net.SplitHostPort(one.broker.Addr())
	}
	switch one.name {
	case "id":
		return one.broker.ID(), true
	case "host":
		return testee.Shown(host), true
	case "port":
		number, err := strconv.Atoi(port)
		if err != nil {
			panic(err)
		}
		return number, true
	default:
		racked, ok := any(one.broker).(interface{ Rack() string }) // not in the first versions
		if !ok || racked.Rack() == "" {
			return nil, true
		}
		return testee.Shown(racked.Rack()), true
	}
}

func valueJSON(value reflect.Value, nullable bool) any {
	switch value.Kind() {
	case reflect.String:
		if nullable && value.Len() == 0 { // sarama has no null for some texts
			return nil
		}
		return testee.Shown(value.String())
	case reflect.Int64:
		if value.Type() == reflect.TypeFor[time.Duration]() {
			return value.Int() / int64(time.Millisecond)
		}
		return testee.Long(value.Int())
	case reflect.Float64:
		return testee.Float(value.Float())
	case reflect.Bool:
		return value.Bool()
	case reflect.Struct: // a time
		if at := value.Interface().(time.Time); !at.IsZero() {
			return testee.Long(at.UnixMilli())
		}
		return "-1"
	case reflect.Array: // a uuid
		uuid := make([]byte, value.Len())
		reflect.Copy(reflect.ValueOf(uuid), value)
		return base64.RawURLEncoding.EncodeToString(uuid)
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return hex.EncodeToString(value.Bytes())
		}
		list := []any{} // not null
		for i := range value.Len() {
			list = append(list, valueJSON(value.Index(i), false))
		}
		return list
	default:
		return value.Int()
	}
}
