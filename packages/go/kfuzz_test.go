package kfuzz

import (
	"encoding/json"
	"errors"
	"testing"
)

// Refuses everything, which is right for invalid vectors alone.
func refuse([]byte) ([]Record, error) { return nil, errors.New("no") }

func TestInvalidVectorsMayBeRefused(t *testing.T) {
	Run(t, refuse, Options{Match: []string{"records/v2/count/negative-one"}})
}

func TestAFailureIsExpected(t *testing.T) {
	Run(t, refuse, Options{
		Match:    []string{"records/v2/header/minimal"},
		Expected: map[string]string{"records/v2/header/minimal": "it refuses everything"},
	})
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	var suite struct{ Vectors []vector }
	if err := json.Unmarshal(embedded, &suite); err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, v := range suite.Vectors {
		if v.Recipe != "" {
			continue
		}
		data, _ := v.bytes("")
		refused := v.judge(refuse, data)
		accepted := v.judge(func([]byte) ([]Record, error) { return nil, nil }, data)
		panicked := v.judge(func([]byte) ([]Record, error) { panic("x") }, data)
		if (refused != "") != (v.Verdict == "valid") || panicked != "panic: x" {
			t.Errorf("%s: %q %q", v.ID, refused, panicked)
		}
		if wrong := v.Verdict == "invalid" || v.Records != nil && len(*v.Records) > 0; (accepted != "") != wrong {
			t.Errorf("%s: %q", v.ID, accepted)
		}
		said[v.Verdict] = true
	}
	if len(said) != 3 {
		t.Error(said)
	}
}
