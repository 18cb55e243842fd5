package main

import (
	"slices"
	"strings"
)

// target is a file, or a directory of migrations, and the tests that should notice its changes, the quickest first.
type target struct {
	path  string
	tests []tests
}

// tests of a package, but those whose names match.
type tests struct{ pkg, but string }

func (ts tests) dir() string { return strings.TrimPrefix(ts.pkg, "./") }

// inConsumer are the consumer's tests on the embedded broker. What a real Kafka or a crowd of processes is needed for
// takes too long.
var inConsumer = tests{"./consumer", "Alloc|Kafka|Kill|Crash|Memory|Bench|RealBroker"}

// What is built together allocates as it likes.
func in(pkg string) []tests { return []tests{{pkg, "Alloc"}} }

// targets: here a fault costs most, in what decides that a message is new, done, retried, given up, or forgotten, and
// who may ask for it.
var targets = []target{
	{"migrations/sql", slices.Concat(in("./dedup"), in("./dedup/operate"), in("./handlers"))},
	{"dedup/accept.go", in("./dedup")},
	{"dedup/position.go", in("./dedup")},
	{"dedup/lanes.go", slices.Concat(in("./dedup"), in("./handlers"))},
	{"dedup/settle.go", slices.Concat(in("./dedup"), in("./handlers"))},
	{"dedup/tx.go", slices.Concat(in("./dedup"), in("./handlers"))},
	{"dedup/failure/failure.go", in("./dedup/failure")},
	{"dedup/identity/rule.go", in("./dedup/identity")},
	{"handlers/retry.go", in("./handlers")},
	{"handlers/errors.go", in("./handlers")},
	{"handlers/circuit.go", in("./handlers")},
	{"handlers/processor.go", in("./handlers")},
	{"handlers/internal/isolate/isolate.go", in("./handlers")},
	{"handlers/internal/isolate/narrow.go", in("./handlers")},
	{"handlers/internal/isolate/lost.go", in("./handlers")},
	{"handlers/lanes.go", in("./handlers")},
	{"handlers/work.go", in("./handlers")},
	{"handlers/suspect.go", slices.Concat(in("./handlers"), []tests{inConsumer})},
	{"handlers/deliver.go", in("./handlers")},
	{"handlers/crashguard/crashguard.go", []tests{inConsumer}},
	{"consumer/worker.go", []tests{inConsumer}},
	{"consumer/replay/place.go", []tests{{"./consumer/replay", "Reader"}, inConsumer}}, // which needs no broker
	{"consumer/start.go", []tests{inConsumer}},
	{"consumer/session.go", []tests{inConsumer}},
	{"dedup/wait/wait.go", in("./dedup/wait")},
	{"consumer/retention/guard.go", in("./consumer/retention")},
	{"consumer/admin/access.go", in("./consumer/admin")},
}
