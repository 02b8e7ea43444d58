// Tests a small decoder of Kafka record batches with a copied kfuzz suite. Uses only the standard library.
//
//	go run read_suite.go SUITE
//
// The decoder below is a consumer for magic 2, uncompressed or with gzip. To test your own decoder, replace readBatches,
// and declare in unsupported what it does not support.
//
// Exit codes: 0 if no required vector failed; 1 if one failed or none passed; 2 if there is no suite.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}
var spokenCodecs = []string{"none", "gzip"}

const (
	logOverhead          = 12
	headerSize           = 61
	crcCoversFrom        = 21
	decompressedBytesMax = 64 << 20
	// For a key or value longer than this, the suite may hold only a digest.
	digestAboveBytes = 64 << 10
)

// Every error of the decoder wraps errRefused. A panic is a fault of the decoder.
var errRefused = errors.New("refused")

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRefused, fmt.Sprintf(format, args...))
}

// ------------------------------------------------------------------------------------------------------ the decoder

type batch struct {
	BaseOffset           string   `json:"base_offset"`
	LastOffset           string   `json:"last_offset"`
	NextOffset           string   `json:"next_offset"`
	Magic                int      `json:"magic"`
	Compression          string   `json:"compression"`
	TimestampType        string   `json:"timestamp_type"`
	Transactional        bool     `json:"transactional"`
	Control              bool     `json:"control"`
	DeleteHorizon        *string  `json:"delete_horizon"`
	ProducerID           string   `json:"producer_id"`
	ProducerEpoch        int16    `json:"producer_epoch"`
	BaseSequence         int32    `json:"base_sequence"`
	PartitionLeaderEpoch int32    `json:"partition_leader_epoch"`
	Records              []record `json:"records"`
}

type record struct {
	Offset    string   `json:"offset"`
	Timestamp string   `json:"timestamp"`
	Key       any      `json:"key"`
	Value     any      `json:"value"`
	Headers   [][2]any `json:"headers"`
}

// readBatches returns the batches in data, where the last whole one ends, and whether a truncated one follows.
// A truncated batch at the end is not an error.
func readBatches(data []byte) ([]batch, int, bool, error) {
	batches, at := []batch{}, 0
	for len(data)-at >= logOverhead+5 {
		length := int(int32(binary.BigEndian.Uint32(data[at+8:])))
		magic := data[at+16]
		if length < 14 || (magic == 2 && length < headerSize-logOverhead) {
			return nil, 0, false, refused("length %d", length)
		}
		if len(data)-at-logOverhead < length {
			break
		}
		if magic != 2 {
			return nil, 0, false, refused("magic %d", magic)
		}
		one, err := readBatch(data[at : at+logOverhead+length])
		if err != nil {
			return nil, 0, false, err
		}
		batches = append(batches, one)
		at += logOverhead + length
	}
	return batches, at, at < len(data), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func readBatch(data []byte) (out batch, err error) {
	int16At := func(at int) int16 { return int16(binary.BigEndian.Uint16(data[at:])) }
	int32At := func(at int) int32 { return int32(binary.BigEndian.Uint32(data[at:])) }
	int64At := func(at int) int64 { return int64(binary.BigEndian.Uint64(data[at:])) }
	if binary.BigEndian.Uint32(data[17:]) != crc32.Checksum(data[crcCoversFrom:], castagnoli) {
		return out, refused("wrong CRC")
	}
	baseOffset, attributes, count := int64At(0), int16At(21), int32At(57)
	codec := int(attributes & 7)
	if codec >= len(codecs) {
		return out, refused("codec %d", codec)
	}
	if count < 0 {
		return out, refused("record count %d", count)
	}
	payload := cursor{data[headerSize:]}
	if codecs[codec] == "gzip" {
		if payload.data, err = gunzip(payload.data); err != nil {
			return out, err
		}
	}
	lastOffset := baseOffset + int64(int32At(23))
	out = batch{
		BaseOffset:           decimal(baseOffset),
		LastOffset:           decimal(lastOffset),
		NextOffset:           decimal(lastOffset + 1),
		Magic:                2,
		Compression:          codecs[codec],
		TimestampType:        "create",
		Transactional:        attributes&16 != 0,
		Control:              attributes&32 != 0,
		ProducerID:           decimal(int64At(43)),
		ProducerEpoch:        int16At(51),
		BaseSequence:         int32At(53),
		PartitionLeaderEpoch: int32At(12),
		Records:              []record{},
	}
	baseTimestamp := int64At(27)
	if attributes&64 != 0 {
		horizon := decimal(baseTimestamp)
		out.DeleteHorizon = &horizon
	}
	// Do not allocate by count, which may be wrong: if it is too high, the first missing record is an error.
	for range count {
		one, err := readRecord(&payload, baseOffset, baseTimestamp)
		if err != nil {
			return out, err
		}
		if attributes&8 != 0 {
			one.Timestamp = decimal(int64At(35))
		}
		out.Records = append(out.Records, one)
	}
	if attributes&8 != 0 {
		out.TimestampType = "log-append"
	}
	if len(payload.data) > 0 {
		return out, refused("%d bytes after the records", len(payload.data))
	}
	return out, nil
}

func readRecord(payload *cursor, baseOffset, baseTimestamp int64) (out record, err error) {
	// Keeps the first error, which is the one that readRecord returns.
	check := func(n int64, e error) int64 {
		if err == nil {
			err = e
		}
		return n
	}
	body, e := payload.take(check(payload.varint(32)))
	check(0, e)
	inside := cursor{body}
	_, e = inside.take(1)
	check(0, e)
	out.Timestamp = decimal(baseTimestamp + check(inside.varint(64)))
	out.Offset = decimal(baseOffset + check(inside.varint(32)))
	key, e := inside.octets()
	check(0, e)
	value, e := inside.octets()
	check(0, e)
	out.Key, out.Value, out.Headers = shown(key), shown(value), [][2]any{}
	headerCount := check(inside.varint(32))
	if err == nil && headerCount < 0 {
		err = refused("header count %d", headerCount)
	}
	for i := int64(0); err == nil && i < headerCount; i++ {
		name, e := inside.octets()
		check(0, e)
		content, e := inside.octets()
		check(0, e)
		if err == nil && name == nil {
			err = refused("a header without a key")
		}
		out.Headers = append(out.Headers, [2]any{text(name), shown(content)})
	}
	if err == nil && len(inside.data) > 0 {
		err = refused("%d bytes after the record's last header", len(inside.data))
	}
	return out, err
}

// cursor takes bytes from the front of data, and checks each length before it reads.
type cursor struct{ data []byte }

func (c *cursor) take(size int64) ([]byte, error) {
	if size < 0 || size > int64(len(c.data)) {
		return nil, refused("%d bytes wanted, %d left", size, len(c.data))
	}
	taken := c.data[:size:size]
	c.data = c.data[size:]
	return taken, nil
}

// varint reads a zigzag varint of at most 5 bytes (32 bits) or 10 bytes (64 bits). Like Java, it drops bits that do not
// fit.
func (c *cursor) varint(bits int) (int64, error) {
	var value uint64
	for shift := 0; shift < bits+3; shift += 7 {
		taken, err := c.take(1)
		if err != nil {
			return 0, err
		}
		value |= uint64(taken[0]&0x7F) << shift
		if taken[0] < 0x80 {
			if bits == 32 {
				value = uint64(uint32(value))
			}
			return int64(value>>1) ^ -int64(value&1), nil
		}
	}
	return 0, refused("a varint of more than %d bytes", bits/7+1)
}

// octets returns nil for null, and an empty slice for no bytes.
func (c *cursor) octets() ([]byte, error) {
	size, err := c.varint(32)
	if err != nil || size < 0 {
		return nil, err
	}
	return c.take(size)
}

// gunzip decompresses a gzip stream of one or more members, up to a fixed limit.
func gunzip(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, refused("gzip: %v", err)
	}
	out, err := io.ReadAll(io.LimitReader(reader, decompressedBytesMax+1))
	if err != nil {
		return nil, refused("gzip: %v", err)
	}
	if len(out) > decompressedBytesMax {
		return nil, refused("the decompressed payload exceeds the limit")
	}
	return out, nil
}

func decimal(number int64) string { return strconv.FormatInt(number, 10) }

// shown returns bytes in the suite's form: hex, null, or a digest if they are long.
func shown(octets []byte) any {
	if octets == nil {
		return nil
	}
	if len(octets) > digestAboveBytes {
		return map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(octets)), "size": len(octets)}
	}
	return hex.EncodeToString(octets)
}

// text returns a header's key: a string, or hex if it is not UTF-8.
func text(octets []byte) any {
	if utf8.Valid(octets) {
		return string(octets)
	}
	return map[string]any{"hex": hex.EncodeToString(octets)}
}

// -------------------------------------------------------------------------------------------------------- the judge

type document struct {
	Kind    string   `json:"kind"`
	Vectors []vector `json:"vectors"`
}

type vector struct {
	ID      string                 `json:"id"`
	Summary string                 `json:"summary"`
	Level   string                 `json:"level"`
	Hex     string                 `json:"hex"`
	Recipe  string                 `json:"recipe"`
	Expect  map[string]expectation `json:"expect"`
	Budget  *struct {
		CPUMs int64 `json:"cpu_ms"`
	} `json:"budget"`
}

type expectation struct {
	Verdict      string `json:"verdict"`
	Finding      string `json:"finding"`
	Batches      any    `json:"batches"`
	Alternatives []any  `json:"alternatives"`
	Consumed     int    `json:"consumed"`
	PartialTail  bool   `json:"partial_tail"`
}

// unsupported returns the reason to skip data, or "". Declare here what the decoder does not support; never guess from a
// failure.
func unsupported(data []byte) string {
	for at := 0; len(data)-at >= logOverhead+6; {
		length := int(int32(binary.BigEndian.Uint32(data[at+8:])))
		if data[at+16] < 2 {
			return "magic 0 or 1"
		}
		if data[at+16] == 2 && len(data)-at > 22 {
			codec := int(data[at+22] & 7)
			if codec < len(codecs) && !slices.Contains(spokenCodecs, codecs[codec]) {
				return codecs[codec]
			}
		}
		if length < 0 {
			break
		}
		at += logOverhead + length
	}
	return ""
}

// judge returns what is wrong with the decoder's answer, or "" if it is right.
func judge(expect expectation, data []byte) (wrong string) {
	defer func() {
		if fault := recover(); fault != nil {
			wrong = fmt.Sprintf("fault: %v", fault)
		}
	}()
	batches, consumed, partialTail, err := readBatches(data)
	if err != nil {
		if expect.Verdict == "valid" {
			return fmt.Sprintf("refused valid bytes: %v", err)
		}
		return ""
	}
	if expect.Verdict == "invalid" {
		return "accepted invalid bytes: " + expect.Finding
	}
	// Convert to JSON and back, so that both sides have the same Go types.
	var found any
	if err := json.Unmarshal(compact(batches), &found); err != nil {
		panic(err)
	}
	// A decoder that accepts must read the expected contents, or one of the alternatives that are equally right.
	readings := append([]any{expect.Batches}, expect.Alternatives...)
	if !slices.ContainsFunc(readings, func(reading any) bool { return same(reading, found) }) {
		return fmt.Sprintf("read %.2000s", compact(found))
	}
	if consumed != expect.Consumed {
		return fmt.Sprintf("consumed %d bytes, not %d", consumed, expect.Consumed)
	}
	if partialTail != expect.PartialTail {
		return fmt.Sprintf("partial tail: %v", partialTail)
	}
	return ""
}

// same reports whether found is the expected reading. The suite may hold only its digest.
func same(reading, found any) bool {
	digest, ok := reading.(map[string]any)
	if !ok {
		return reflect.DeepEqual(reading, found)
	}
	line := compact(found)
	return digest["sha256"] == fmt.Sprintf("%x", sha256.Sum256(line)) && digest["size"] == float64(len(line))
}

// compact returns JSON without spaces, with the keys of each map sorted.
func compact(value any) []byte {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(line.Bytes(), []byte("\n"))
}

func cpuMs() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return (usage.Utime.Nano() + usage.Stime.Nano()) / 1e6
}

type tally struct {
	passed, missed, failed int
	skipped                map[string]int
}

func (t *tally) take(root, kind string, one vector) error {
	expect, ok := one.Expect["consumer"]
	if kind != "records" || !ok {
		t.skipped["other kinds and roles"]++
		return nil
	}
	data, err := hex.DecodeString(one.Hex)
	if one.Recipe != "" {
		data, err = os.ReadFile(filepath.Join(root, "bombs", one.Recipe+".bin"))
		if errors.Is(err, os.ErrNotExist) {
			t.skipped["bombs without bytes"]++
			return nil
		}
	}
	if err != nil {
		return err
	}
	if reason := unsupported(data); reason != "" {
		t.skipped[reason]++
		return nil
	}
	began := cpuMs()
	wrong := judge(expect, data)
	if spent := cpuMs() - began; wrong == "" && one.Budget != nil && spent > one.Budget.CPUMs {
		wrong = fmt.Sprintf("took %d ms of CPU; the budget is %d", spent, one.Budget.CPUMs)
	}
	switch {
	case wrong == "":
		t.passed++
	case one.Level == "recommended":
		t.missed++
		fmt.Printf("missed %s (recommended): %s\n", one.ID, wrong)
	default:
		t.failed++
		fmt.Printf("FAILED %s (%s): %s\n", one.ID, one.Summary, wrong)
	}
	return nil
}

func readJSON(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func run(root string) (int, error) {
	var manifest struct {
		Vectors []string `json:"vectors"`
	}
	if err := readJSON(filepath.Join(root, "manifest.json"), &manifest); err != nil {
		return 2, fmt.Errorf("%w; name a folder that `kfuzz vectors copy` wrote", err)
	}
	total := tally{skipped: map[string]int{}}
	for _, name := range manifest.Vectors {
		var file document
		if err := readJSON(filepath.Join(root, name), &file); err != nil {
			return 2, err
		}
		for _, one := range file.Vectors {
			if err := total.take(root, file.Kind, one); err != nil {
				return 2, err
			}
		}
	}
	var skipped []string
	for _, why := range slices.Sorted(maps.Keys(total.skipped)) {
		skipped = append(skipped, fmt.Sprintf("%d %s", total.skipped[why], why))
	}
	if skipped == nil {
		skipped = []string{"none"}
	}
	fmt.Printf("%d passed, %d recommended missed, %d failed\n", total.passed, total.missed, total.failed)
	fmt.Printf("skipped: %s\n", strings.Join(skipped, ", "))
	if total.failed > 0 || total.passed == 0 {
		return 1, nil
	}
	return 0, nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run read_suite.go SUITE")
		os.Exit(2)
	}
	code, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
