package devstack

import (
	"fmt"
	"math/rand/v2"
)

// names are those of everything that a run makes.
type names struct {
	Topic  string
	Group  string
	Schema string // firstseen's tables
	Bank   string // the handler's tables
}

// newNames gives plain names where all is embedded and thrown away, and else ones that nobody has yet.
func newNames(o *Options) names {
	if o.Kafka == "" && o.Postgres == "" && o.Data == "" {
		return names{Topic: "movements", Group: "bank", Schema: "firstseen", Bank: "bank"}
	}
	run := fmt.Sprintf("%08x", rand.Uint32())
	return names{
		Topic: "firstseen-dev-" + run, Group: "firstseen-dev-" + run,
		Schema: "firstseen_dev_" + run, Bank: "firstseen_dev_" + run + "_bank",
	}
}

// searchPath has statements find the bank's tables, then firstseen's.
func (n names) searchPath() string { return n.Bank + ", " + n.Schema }
