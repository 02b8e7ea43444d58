package testee

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

const unknownTags = "_unknownTaggedFields"

// Layout is the fields of a struct that one version of a message has.
type Layout []Field

// Field is one field of a Layout.
type Field struct {
	Index    int    // in the Go struct
	Name     string // Kafka's
	Nullable bool   // nil is null; if not, nil is empty
	Optional bool   // left out if it has its default
	Fields   Layout // of a struct, or of the structs in a list
}

// Messages converts between a library's structs and the protocol's JSON form of messages.
type Messages struct {
	// Name is Kafka's name of a Go field; empty if Kafka has no such field.
	Name func(in reflect.Type, goField string) string
	// SetDefaults sets the defaults of the struct that it gets a pointer to.
	SetDefaults func(pointer reflect.Value)
	// EachTag calls a function with each unknown tagged field of a struct.
	EachTag func(value reflect.Value, do func(tag uint32, data []byte))
	// LongestList is how many elements of a list are shown; 0 is all. It bounds the size of an answer.
	LongestList int
	// SetTag sets an unknown tagged field of a struct.
	SetTag func(value reflect.Value, tag uint32, data []byte) error
}

// JSON is the JSON form of a struct.
func (m Messages) JSON(value reflect.Value, fields Layout) Object {
	result := Object{}
	fresh := reflect.New(value.Type())
	m.SetDefaults(fresh)
	for _, field := range fields {
		part, usual := value.Field(field.Index), fresh.Elem().Field(field.Index)
		if field.Optional && reflect.DeepEqual(part.Interface(), usual.Interface()) {
			continue
		}
		result[field.Name] = m.valueJSON(part, field)
	}
	list := []Object{}
	m.EachTag(value, func(tag uint32, data []byte) {
		list = append(list, Object{"tag": tag, "hex": hex.EncodeToString(data)})
	})
	if len(list) > 0 {
		result[unknownTags] = list
	}
	return result
}

// Float is the JSON form of a float64.
func Float(number float64) any {
	switch {
	case math.IsNaN(number):
		return "NaN"
	case math.IsInf(number, 0):
		return strings.TrimPrefix(fmt.Sprint(number), "+") + "inity" // Inf, -Inf
	default:
		return number
	}
}

// SetLong sets an int64 from its JSON form, a text of digits.
func SetLong(value reflect.Value, text json.RawMessage) error {
	var digits string
	if err := json.Unmarshal(text, &digits); err != nil {
		return err
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	value.SetInt(number)
	return err
}

// SetFloat sets a float64 from its JSON form.
func SetFloat(value reflect.Value, text json.RawMessage) error {
	number, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64) // knows NaN and Infinity too
	value.SetFloat(number)
	return err
}

func (m Messages) valueJSON(value reflect.Value, field Field) any {
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return nil
		}
		return m.valueJSON(value.Elem(), field)
	case reflect.Struct:
		return m.JSON(value, field.Fields)
	case reflect.String:
		if field.Nullable && value.Len() == 0 { // of a library that has no null for strings
			return nil
		}
		return Shown(value.String())
	case reflect.Int64:
		return Long(value.Int())
	case reflect.Float64:
		return Float(value.Float())
	case reflect.Array: // a uuid
		uuid := value.Interface().([16]byte)
		return base64.RawURLEncoding.EncodeToString(uuid[:])
	case reflect.Slice:
		if value.IsNil() && field.Nullable {
			return nil
		}
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return hex.EncodeToString(value.Bytes())
		}
		list := []any{} // not null
		length := value.Len()
		if m.LongestList > 0 {
			length = min(length, m.LongestList)
		}
		for i := range length {
			list = append(list, m.valueJSON(value.Index(i), field))
		}
		return list
	case reflect.Bool:
		return value.Bool()
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return value.Uint()
	default: // not value.Interface(): an enumeration would print its name
		return value.Int()
	}
}

// Fill sets the fields of a struct from its JSON form. Fields that are not given get their defaults.
func (m Messages) Fill(value reflect.Value, text json.RawMessage) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	m.SetDefaults(value.Addr())
	var tags []struct {
		Tag uint32
		Hex Bytes
	}
	for name, text := range given {
		if name == unknownTags {
			if err := json.Unmarshal(text, &tags); err != nil {
				return err
			}
			continue
		}
		index := m.index(value.Type(), name)
		if index < 0 {
			return fmt.Errorf("%s has no field %s", value.Type(), name)
		}
		if err := m.fill(value.Field(index), text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, one := range tags {
		if err := m.SetTag(value, one.Tag, one.Hex); err != nil {
			return err
		}
	}
	return nil
}

func (m Messages) index(in reflect.Type, name string) int {
	for i := range in.NumField() {
		if m.Name(in, in.Field(i).Name) == name {
			return i
		}
	}
	return -1
}

func (m Messages) fill(value reflect.Value, text json.RawMessage) error {
	if string(text) == "null" {
		if kind := value.Kind(); kind != reflect.Pointer && kind != reflect.Slice && kind != reflect.String {
			return fmt.Errorf("%s cannot be null", value.Type())
		}
		value.SetZero()
		return nil
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		return m.fill(value.Elem(), text)
	case reflect.Struct:
		return m.Fill(value, text)
	case reflect.Int64:
		return SetLong(value, text)
	case reflect.Float64:
		return SetFloat(value, text)
	case reflect.Array:
		var form string
		if err := json.Unmarshal(text, &form); err != nil {
			return err
		}
		uuid, err := base64.RawURLEncoding.DecodeString(form)
		if err == nil && len(uuid) != 16 {
			err = fmt.Errorf("%q is no uuid", form)
		}
		reflect.Copy(value, reflect.ValueOf(uuid))
		return err
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			data := Bytes{}
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
			if err := m.fill(value.Index(i), one); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	case reflect.Int8, reflect.Int16, reflect.Int32:
		number, err := strconv.ParseInt(string(text), 10, value.Type().Bits())
		value.SetInt(number)
		return err
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		number, err := strconv.ParseUint(string(text), 10, value.Type().Bits())
		value.SetUint(number)
		return err
	default:
		return json.Unmarshal(text, value.Addr().Interface())
	}
}

// NamesIn reads a table of Kafka's names, for the fields to which KafkaName does not give them. A line has the Go field,
// Kafka's name, and the structs in which it applies; the result's keys are "Struct.Field". "#" begins a comment.
func NamesIn(table string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) > 2 && words[0] != "#" {
			for _, in := range words[2:] {
				found[in+"."+words[0]] = words[1]
			}
		}
	}
	return found
}

// KafkaName is Kafka's usual name of a Go field: TopicIDs is topicIds, ISRNodes is isrNodes.
func KafkaName(goField string) string {
	letters := []rune(strings.NewReplacer("IDs", "Ids", "ACLs", "Acls").Replace(goField))
	result := make([]rune, len(letters))
	for i, letter := range letters {
		last := i+1 == len(letters) || !unicode.IsLower(letters[i+1])
		if i == 0 || unicode.IsUpper(letters[i-1]) && last {
			letter = unicode.ToLower(letter)
		}
		result[i] = letter
	}
	return string(result)
}
