//go:build !older

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

func encodeMessage(request testee.Request) testee.Object {
	one := layouts[request.Message]
	if one == nil || request.Version > one.newest {
		return testee.Unsupported(fmt.Sprintf("no version %d of %s", request.Version, request.Message))
	}
	made := newRequest(one.method, request.Version)
	if err := fill(made.Elem(), request.Body, one.fields); errors.As(err, new(cannotHold)) {
		return testee.Unsupported(err.Error())
	} else if err != nil {
		return testee.Object{"outcome": "rejected", "error": err.Error()}
	}
	sent, result := call(made, one.method, nil)
	if sent == nil {
		return testee.Object{"outcome": "rejected", "error": fmt.Sprint(result[1].Interface())}
	}
	header := 2 + 2 + 4 + 2 + len(sarama.NewConfig().ClientID) // key, version, correlation id, client id
	if request.Version >= one.flexible {
		header++ // no tagged fields
	}
	return testee.Object{"outcome": "accepted", "hex": hex.EncodeToString(sent[header:])}
}

// cannotHold says what sarama's types cannot hold, or what it never writes.
type cannotHold string

func (what cannotHold) Error() string { return "sarama cannot write " + string(what) }

// fill sets the fields of a struct from its JSON form.
func fill(value reflect.Value, text json.RawMessage, fields []*field) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	for _, part := range fields {
		text, ok := given[part.name]
		delete(given, part.name)
		if !ok {
			continue
		}
		if err := fillField(value, text, part); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	for name := range given {
		if name == "_unknownTaggedFields" {
			return cannotHold("unknown tagged fields")
		}
		return fmt.Errorf("%s has no field %s", value.Type(), name)
	}
	return nil
}

func fillField(value reflect.Value, text json.RawMessage, part *field) error {
	if always, ok := strings.CutPrefix(part.place, "="); ok {
		if string(text) != always {
			return cannotHold("another " + part.name + " than " + always)
		}
		return nil
	}
	if part.place == "+" {
		return special(value.Addr().Interface(), part.name, text)
	}
	return set(value.FieldByName(part.place), text, part)
}

// set sets a value from its JSON form: a struct, a map or list of structs, or a primitive.
func set(value reflect.Value, text json.RawMessage, part *field) error {
	if string(text) == "null" {
		if kind := value.Kind(); kind != reflect.Pointer && kind != reflect.Slice && kind != reflect.Map {
			return cannotHold("null in " + part.name)
		}
		value.SetZero()
		return nil
	}
	if value.Kind() == reflect.Pointer {
		value.Set(reflect.New(value.Type().Elem()))
		return set(value.Elem(), text, part)
	}
	if part.fields == nil {
		return setPrimitive(value, text, part)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if value.Kind() == reflect.Map {
		return setMap(value, list, part)
	}
	value.Set(reflect.MakeSlice(value.Type(), len(list), len(list)))
	for i, text := range list {
		if err := setElement(value.Index(i), text, part.fields); err != nil {
			return err
		}
	}
	return nil
}

// setMap makes a map of at most one element: sarama writes more in a random order.
func setMap(value reflect.Value, list []json.RawMessage, part *field) error {
	if len(list) > 1 {
		return cannotHold("several " + part.name + " in an order")
	}
	value.Set(reflect.MakeMap(value.Type()))
	for _, text := range list {
		var given map[string]json.RawMessage
		if err := json.Unmarshal(text, &given); err != nil {
			return err
		}
		key := reflect.New(value.Type().Key()).Elem()
		if err := setPrimitive(key, given[part.fields[0].name], part.fields[0]); err != nil {
			return err
		}
		delete(given, part.fields[0].name)
		rest, err := json.Marshal(given)
		if err != nil {
			return err
		}
		inner := reflect.New(value.Type().Elem()).Elem()
		if err := setElement(inner, rest, part.fields[1:]); err != nil {
			return err
		}
		value.SetMapIndex(key, inner)
	}
	return nil
}

// setElement sets an element of a list or map: a struct, or the value of the only field that it has.
func setElement(value reflect.Value, text json.RawMessage, fields []*field) error {
	if fields[0].place == "@" {
		var given map[string]json.RawMessage
		if err := json.Unmarshal(text, &given); err != nil {
			return err
		}
		if given["_unknownTaggedFields"] != nil {
			return cannotHold("unknown tagged fields")
		}
		return set(value, given[fields[0].name], fields[0])
	}
	if value.Kind() == reflect.Pointer {
		value.Set(reflect.New(value.Type().Elem()))
		value = value.Elem()
	}
	return fill(value, text, fields)
}

func setPrimitive(value reflect.Value, text json.RawMessage, part *field) error {
	switch value.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int:
		number, err := strconv.ParseInt(string(text), 10, 64)
		value.SetInt(number)
		return err
	case reflect.Int64:
		if value.Type() == reflect.TypeFor[time.Duration]() {
			number, err := strconv.ParseInt(string(text), 10, 64)
			value.SetInt(number * int64(time.Millisecond))
			return err
		}
		return testee.SetLong(value, text)
	case reflect.Float64:
		return testee.SetFloat(value, text)
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			data := testee.Bytes{}
			err := json.Unmarshal(text, &data)
			value.SetBytes(data)
			return err
		}
		var list []json.RawMessage
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		value.Set(reflect.MakeSlice(value.Type(), len(list), len(list)))
		for i, one := range list {
			if err := set(value.Index(i), one, part); err != nil {
				return err
			}
		}
		return nil
	default:
		return json.Unmarshal(text, value.Addr().Interface())
	}
}

// blocks are topics and their partitions in the requests whose maps are not public. Only one of each can be written: a
// map has no order.
type blocks []struct {
	Name             string
	Topic            string
	Partitions       json.RawMessage
	PartitionIndexes []int32
}

type block struct {
	Partition, PartitionIndex                                  int32
	Replicas                                                   []int32
	FetchOffset                                                int64 `json:",string"`
	CommittedOffset                                            int64 `json:",string"`
	CommitTimestamp                                            int64 `json:",string"`
	Timestamp                                                  int64 `json:",string"`
	LogStartOffset                                             int64 `json:",string"`
	MaxNumOffsets, PartitionMaxBytes                           int32
	CurrentLeaderEpoch, LastFetchedEpoch, CommittedLeaderEpoch *int32
	CommittedMetadata                                          *string
}

// special sets a field that has no place in the request's struct.
func special(request any, name string, text json.RawMessage) error {
	if bytes.Contains(text, []byte(`"_unknownTaggedFields"`)) {
		return cannotHold("unknown tagged fields")
	}
	switch request := request.(type) {
	case *sarama.QuotaEntityComponent:
		request.MatchType = sarama.QuotaMatchExact
		if string(text) == "null" {
			request.MatchType = sarama.QuotaMatchDefault
			return nil
		}
		return json.Unmarshal(text, &request.Name)
	case *sarama.QuotaFilterComponent:
		if (string(text) == "null") == (request.MatchType == sarama.QuotaMatchExact) {
			return cannotHold(string(text) + " for this type of match")
		}
		return json.Unmarshal(text, &request.Match)
	case *sarama.OffsetRequest:
		if name == "replicaId" {
			var id int32
			err := json.Unmarshal(text, &id)
			request.SetReplicaID(id)
			return err
		}
	case *sarama.MetadataRequest:
		return setTopics(&request.Topics, text, request.Version == 0)
	case *sarama.DeleteTopicsRequest:
		return setTopics(&request.Topics, text, true)
	}
	var topics blocks
	if err := json.Unmarshal(text, &topics); err != nil {
		return err
	}
	if len(topics) > 1 {
		return cannotHold("several topics in an order")
	}
	if len(topics) == 0 {
		return emptyBlocks(request, string(text))
	}
	topic := topics[0]
	if indexes := topic.PartitionIndexes; indexes != nil {
		switch request := request.(type) {
		case *sarama.OffsetFetchRequest:
			if len(indexes) == 0 {
				return cannotHold("a topic without partitions")
			}
			for _, index := range indexes {
				request.AddPartition(topic.Name, index)
			}
		case *sarama.ListPartitionReassignmentsRequest:
			request.AddBlock(topic.Name, indexes)
		}
		return nil
	}
	var partitions []block
	if err := json.Unmarshal(topic.Partitions, &partitions); err != nil {
		return err
	}
	if len(partitions) != 1 {
		return cannotHold("none or several partitions in an order")
	}
	return addBlock(request, topic.Name+topic.Topic, partitions[0])
}

func emptyBlocks(request any, text string) error {
	_, reassignments := request.(*sarama.ListPartitionReassignmentsRequest)
	_, fetch := request.(*sarama.OffsetFetchRequest)
	if (reassignments || fetch) != (text == "null") {
		return cannotHold(text + " for topics")
	}
	return nil
}

func addBlock(request any, topic string, one block) error {
	given := func(epoch *int32, usual int32) int32 {
		if epoch == nil {
			return usual
		}
		return *epoch
	}
	switch request := request.(type) {
	case *sarama.AlterPartitionReassignmentsRequest:
		request.AddBlock(topic, one.PartitionIndex, one.Replicas)
	case *sarama.DeleteOffsetsRequest:
		request.AddPartition(topic, one.PartitionIndex)
	case *sarama.FetchRequest:
		if one.LogStartOffset != 0 && request.Version >= 5 || given(one.LastFetchedEpoch, -1) != -1 {
			return cannotHold("another log start offset than 0, or a last fetched epoch")
		}
		request.AddBlock(topic, one.Partition, one.FetchOffset, one.PartitionMaxBytes, given(one.CurrentLeaderEpoch, -1))
	case *sarama.OffsetCommitRequest:
		if one.CommittedMetadata == nil {
			return cannotHold("null in committedMetadata")
		}
		epoch := given(one.CommittedLeaderEpoch, -1)
		request.AddBlockWithLeaderEpoch(
			topic, one.PartitionIndex, one.CommittedOffset, epoch, one.CommitTimestamp, *one.CommittedMetadata)
	case *sarama.OffsetRequest:
		if given(one.CurrentLeaderEpoch, -1) != -1 {
			return cannotHold("a current leader epoch")
		}
		request.AddBlock(topic, one.PartitionIndex, one.Timestamp, one.MaxNumOffsets)
	}
	return nil
}

// setTopics sets a list of topics by their names. In MetadataRequest, an empty list is null.
func setTopics(names *[]string, text json.RawMessage, emptyIsEmpty bool) error {
	var topics []struct {
		Name    *string
		TopicId string
	}
	if err := json.Unmarshal(text, &topics); err != nil {
		return err
	}
	if !emptyIsEmpty && topics != nil && len(topics) == 0 || emptyIsEmpty && topics == nil {
		return cannotHold(string(text) + " for topics")
	}
	for _, topic := range topics {
		id, err := base64.RawURLEncoding.DecodeString(topic.TopicId)
		if err != nil {
			return err
		}
		if topic.Name == nil || strings.Trim(string(id), "\x00") != "" {
			return cannotHold("the id of a topic")
		}
		*names = append(*names, *topic.Name)
	}
	return nil
}
