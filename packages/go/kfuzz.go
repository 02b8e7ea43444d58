// Package kfuzz shows the kfuzz vectors to a decoder of Kafka record batches: a subtest for each.
package kfuzz

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

//go:embed vectors.json
var embedded []byte

// Header is a header of a record. A nil value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is what a consumer gets. A nil key or value is null; an empty one is not.
type Record struct {
	Offset, Timestamp int64
	Key, Value        []byte
	Headers           []Header
}

// Decode returns the records in the batches of a fetch, or an error if a consumer must not read them. Records of control
// batches are left out. A panic fails the vector alone.
type Decode func(data []byte) ([]Record, error)

// Options says which vectors are shown. The zero value shows all except bombs.
type Options struct {
	// Match has ids or the folders they are in, such as "records/v2/codec". Empty means all.
	Match []string
	// Codecs and Magics are what the decoder supports. Vectors that need more are skipped. Empty means all.
	Codecs []string
	Magics []int
	// Expected maps the ids that fail to the reason. A vector in it that passes is a failure, so that the list stays true.
	Expected map[string]string
	// Bombs is a folder with the bytes of the vectors that are too large for this package, which `kfuzz vectors copy
	// --bombs` makes by their recipes. Without it they are skipped.
	Bombs string
}

type vector struct {
	ID, Summary, Hex, Recipe, SHA256, Verdict string
	Codecs                                    []string
	Magics                                    []int
	Records                                   *[]struct {
		Offset, Timestamp string
		Key, Value        *string
		Headers           [][2]*string
	}
}

// Run shows each vector to decode in a subtest with the vector's id.
func Run(t *testing.T, decode Decode, o Options) {
	t.Helper()
	var suite struct{ Vectors []vector }
	if err := json.Unmarshal(embedded, &suite); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for id := range o.Expected {
		left[id] = true
	}
	shown := 0
	for _, v := range suite.Vectors {
		delete(left, v.ID)
		if !v.matches(o.Match) {
			continue
		}
		shown++
		t.Run(v.ID, func(t *testing.T) {
			if missing := v.missing(o); missing != "" {
				t.Skip(missing)
			}
			data, err := v.bytes(o.Bombs)
			if err != nil {
				t.Fatal(err)
			}
			problem := v.judge(decode, data)
			reason, expected := o.Expected[v.ID]
			switch {
			case expected && problem == "":
				t.Errorf("passes, but is expected to fail: %s", reason)
			case expected:
				t.Skipf("fails as expected: %s (%s)", reason, problem)
			case problem != "":
				t.Errorf("%s: %s", v.Summary, problem)
			}
		})
	}
	if shown == 0 {
		t.Errorf("no vector matches %q", o.Match)
	}
	for id := range left {
		t.Errorf("Options.Expected names %s, and there is no such vector", id)
	}
}

func (v vector) matches(match []string) bool {
	return len(match) == 0 || slices.ContainsFunc(match, func(one string) bool {
		return v.ID == one || strings.HasPrefix(v.ID, strings.TrimSuffix(one, "/")+"/")
	})
}

func (v vector) missing(o Options) string {
	for _, codec := range v.Codecs {
		if len(o.Codecs) > 0 && !slices.Contains(o.Codecs, codec) {
			return "needs codec " + codec
		}
	}
	for _, magic := range v.Magics {
		if len(o.Magics) > 0 && !slices.Contains(o.Magics, magic) {
			return fmt.Sprint("needs magic ", magic)
		}
	}
	if v.Recipe != "" && o.Bombs == "" {
		return "is a bomb; Options.Bombs has none"
	}
	return ""
}

func (v vector) bytes(bombs string) ([]byte, error) {
	if v.Recipe == "" {
		return hex.DecodeString(v.Hex)
	}
	data, err := os.ReadFile(filepath.Join(bombs, v.Recipe+".bin"))
	if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) != v.SHA256 {
		err = errors.New(v.Recipe + ".bin holds other bytes; make it again with `kfuzz vectors copy --bombs`")
	}
	return data, err
}

// judge says what is wrong with the decoder's answer. It returns "" if the answer is right.
func (v vector) judge(decode Decode, data []byte) (problem string) {
	defer func() {
		if fault := recover(); fault != nil {
			problem = fmt.Sprint("panic: ", fault)
		}
	}()
	records, err := decode(data)
	switch {
	case err != nil && v.Verdict == "valid":
		return fmt.Sprint("refused, but it is valid: ", err)
	case err != nil:
		return ""
	case v.Verdict == "invalid":
		return "accepted, but it is invalid"
	case v.Records == nil:
		return ""
	case len(records) != len(*v.Records):
		return fmt.Sprintf("%d records, expected %d", len(records), len(*v.Records))
	}
	for i, want := range *v.Records {
		have := records[i]
		headers := make([][2]*string, len(have.Headers))
		for k, header := range have.Headers {
			headers[k] = [2]*string{text([]byte(header.Key)), text(header.Value)}
			if headers[k][0] == nil {
				headers[k][0] = new(string)
			}
		}
		for _, field := range []struct {
			name       string
			have, want any
		}{
			{"offset", fmt.Sprint(have.Offset), want.Offset},
			{"timestamp", fmt.Sprint(have.Timestamp), want.Timestamp},
			{"key", text(have.Key), want.Key},
			{"value", text(have.Value), want.Value},
			{"headers", headers, want.Headers},
		} {
			a, _ := json.Marshal(field.have)
			b, _ := json.Marshal(field.want)
			if !bytes.Equal(a, b) {
				return fmt.Sprintf("record %d: %s is %.200s, expected %.200s", i, field.name, a, b)
			}
		}
	}
	return ""
}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	out := hex.EncodeToString(data)
	return &out
}
