package testee

import (
	"encoding/binary"
	"io"
)

// Frame is one whole batch, or one legacy message, in the bytes of a fetch. A testee uses frames only to see whether
// the library has left out records without an error: most libraries do not tell how far they have read.
type Frame struct {
	Start, End int // positions in the bytes
	Magic      int8
	Count      int32 // the number of records that the header promises; -1 for a legacy message
	LastOffset int64
}

// Frames splits bytes at the length fields. After the last frame there may be an incomplete batch, which a fetch may
// end with. If other bytes follow, whole is false.
func Frames(data []byte) (frames []Frame, whole bool) {
	at := 0
	for len(data)-at > 16 {
		left := data[at:]
		size := int64(int32(binary.BigEndian.Uint32(left[8:])))
		if size < 14 { // the overhead of the smallest message, of magic 0
			return frames, false
		}
		if size+12 > int64(len(left)) {
			break
		}
		frame := Frame{at, at + int(size) + 12, int8(left[16]), -1, int64(binary.BigEndian.Uint64(left))}
		if frame.Magic == 2 && size >= 49 {
			frame.Count = int32(binary.BigEndian.Uint32(left[57:]))
			frame.LastOffset += int64(int32(binary.BigEndian.Uint32(left[23:])))
		}
		frames = append(frames, frame)
		at = frame.End
	}
	return frames, true
}

// ReadSized reads a request or a response from a connection, without the size before it.
func ReadSized(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(from, data)
	return data, err
}
