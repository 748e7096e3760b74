package approval

import (
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Detections returns the findings in a text, in the form of records and for people.
func Detections(v *ocip.Verdict) (list []audit.Detection) {
	for _, d := range v.Detections {
		list = append(list, audit.Detection{Rule: d.Rule, Member: d.Member, Start: d.Start, End: d.End, Zone: d.Zone, Shadow: d.Shadow})
	}
	return list
}
