package consumer

import (
	"github.com/firstseen/firstseen/dedup/holds"
)

// Why a partition waits, as in PartitionStatus.Held and in the log's attribute "hold". Package holds says what each
// means, and what to do about it.
const (
	HeldPostgres    = holds.Postgres
	HeldReadOnly    = holds.ReadOnly
	HeldLocked      = holds.Locked
	HeldKafka       = holds.Kafka
	HeldHandler     = holds.Handler
	HeldMaxParked   = holds.MaxParked
	HeldUndecodable = holds.Undecodable
	HeldMemory      = holds.Memory
	HeldTopicReset  = holds.TopicReset
	HeldCutOff      = holds.CutOff
	HeldLost        = holds.Lost
	HeldDenied      = holds.Denied
	HeldSchemas     = holds.Schemas
	HeldNotHome     = holds.NotHome
)
