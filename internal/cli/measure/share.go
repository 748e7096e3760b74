package measure

import (
	"encoding/json"
	"fmt"
	"math"
)

// Share is a part of a whole, with the bounds of the true share at 95 % confidence
// (Wilson's interval). If Whole is 0, everything is 0.
type Share struct {
	Part  int     `json:"part"`
	Whole int     `json:"whole"`
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// ShareOf returns a part of a whole.
func ShareOf(part, whole int) Share {
	if whole == 0 {
		return Share{}
	}
	const z = 1.959964
	n := float64(whole)
	p := float64(part) / n
	middle := p + z*z/(2*n)
	reach := z * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	below := 1 + z*z/n
	return Share{
		Part: part, Whole: whole, Value: p,
		Low: max(0, (middle-reach)/below), High: min(1, (middle+reach)/below),
	}
}

// String formats the share in hundredths with its bounds: "41.9 [41-43]".
func (s Share) String() string {
	if s.Whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f [%.0f-%.0f]", 100*s.Value, 100*s.Low, 100*s.High)
}

// UnmarshalJSON parses the format of a share, or "part/whole".
func (s *Share) UnmarshalJSON(raw []byte) error {
	var short string
	if json.Unmarshal(raw, &short) == nil {
		var part, whole int
		if _, err := fmt.Sscanf(short, "%d/%d", &part, &whole); err != nil {
			return fmt.Errorf("cannot read the share %q: %w", short, err)
		}
		*s = ShareOf(part, whole)
		return nil
	}
	type plain Share
	var p plain
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	*s = ShareOf(p.Part, p.Whole)
	return nil
}
