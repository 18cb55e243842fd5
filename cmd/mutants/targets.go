package main

// target is a file, or a directory of migrations, and the tests that should notice its changes, the quickest first.
type target struct {
	path  string
	tests []tests
}

// tests are those of a package whose names match.
type tests struct{ pkg, match string }

const everything = "."

// targets are where a fault costs most: what decides that a message is new, done, retried, given up, or forgotten, and
// who may ask for it.
var targets = []target{
	{"migrations/sql", []tests{{"./dedup", everything}, {"./dedup/operate", everything}, {"./handlers", "Lane|Model|Killed|Retr"}}},
	{"dedup/accept.go", []tests{{"./dedup", everything}}},
	{"dedup/lanes.go", []tests{{"./dedup", "Lane|Claim|Load"}, {"./handlers", "Lane|Model"}}},
	{"dedup/identity/rule.go", []tests{{"./dedup/identity", everything}}},
	{"handlers/retry.go", []tests{{"./handlers", "Pauses|Hold|Becomes|Retr"}}},
	{"handlers/errors.go", []tests{{"./handlers", "Error|Kind|Told|Verdict"}}},
	{"handlers/circuit.go", []tests{{"./handlers", "Circuit|Receiver"}}},
	{"handlers/processor.go", []tests{{"./handlers", everything}}},
	{"handlers/isolate.go", []tests{{"./handlers", everything}}},
	{"handlers/again.go", []tests{{"./handlers", everything}}},
	{"handlers/lanes.go", []tests{{"./handlers", everything}}},
	{"handlers/deliver.go", []tests{{"./handlers", everything}}},
	{"consumer/worker.go", []tests{{"./consumer", everything}}},
	{"consumer/replay/place.go", []tests{{"./consumer", everything}}},
	{"consumer/start.go", []tests{{"./consumer", everything}}},
	{"consumer/internal/wait/wait.go", []tests{{"./consumer/internal/wait", "^TestPausesBetween|^TestASleep|^TestSlots"}}},
	{"cmd/internal/retention/guard.go", []tests{{"./cmd/internal/retention", everything}}},
	{"cmd/internal/admin/access.go", []tests{{"./cmd/internal/admin", everything}}},
}
