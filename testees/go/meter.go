package testee

import (
	"runtime"
	"runtime/metrics"
)

// After this many bytes the meter looks at the heap's profile. It also empties the pools, because a large buffer that is
// left there changes what the next request allocates.
const large = 1 << 20

// A meter tells how many bytes an answer allocates, and where. The peak of the process's memory would depend on when Go
// collects garbage, so the referee could not judge by it.
type meter struct {
	library string
	before  uint64           // the bytes allocated before this answer
	looked  uint64           // the bytes allocated at the last look at the profile
	seen    map[string]int64 // the bytes that each line of the library had allocated then
}

func newMeter(library string) *meter { return &meter{library: library, seen: map[string]int64{}} }

func (m *meter) start() {
	if allocated()-m.looked > large {
		m.heaviest()
	}
	m.before = allocated()
}

func (m *meter) stop(result Object) {
	taken := allocated() - m.before
	result["allocated_bytes"] = taken
	if taken > large {
		if at := m.heaviest(); at != "" {
			result["allocated_at"] = at
		}
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// heaviest is the line of the library that has allocated most since the last call.
func (m *meter) heaviest() (line string) {
	// A pool keeps its buffers for one collection after the one that finds them unused. The profile is as old as that.
	runtime.GC()
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 256)
	count, whole := runtime.MemProfile(records, true)
	for !whole {
		records = make([]runtime.MemProfileRecord, count+256)
		count, whole = runtime.MemProfile(records, true)
	}
	now := map[string]int64{}
	for _, record := range records[:count] {
		if at := placeIn(record.Stack(), m.library); at != "" {
			now[at] += record.AllocBytes
		}
	}
	var most int64
	for at, bytes := range now {
		if grown := bytes - m.seen[at]; grown > most || grown == most && grown > 0 && at < line {
			line, most = at, grown
		}
	}
	m.seen, m.looked = now, allocated()
	return line
}
