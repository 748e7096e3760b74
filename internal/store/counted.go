package store

import (
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/metrics"
)

// counted updates the metrics for a durable change: they count what is on record, and nothing else.
func (cs *commits) counted(c *Change) {
	if cs.metrics == nil {
		return
	}
	for _, r := range c.Records {
		switch r.ActionType {
		case audit.ActionExchange:
			// The expiry or resolution of an exchange is no decision about a message.
			if r.PolicyResult != "" {
				cs.metrics.Decision(r.Side, r.PolicyResult, r.Code)
			}
		case audit.ActionDelivery:
			switch r.Event {
			case "delivered":
				cs.metrics.Delivery(metrics.Delivered)
			case "failed":
				cs.metrics.Delivery(metrics.Failed)
			case "expired":
				cs.metrics.Delivery(metrics.Expired)
			}
		}
	}
	for a := range Each[*Approval](c) {
		if a.New {
			cs.metrics.Held()
		}
	}
}
