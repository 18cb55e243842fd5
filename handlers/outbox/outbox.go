// Package outbox sends what a transaction says is to leave, once it has committed and only then: at least once, in the
// order of each key, and under one ID for ever, so that firstseen at the other end makes it exactly once.
//
// A message enters by [Writer.Add] in the caller's transaction, or by the SQL function firstseen.send. A [Relay], of
// which there may be any number, takes it from its table once the transaction has committed, gives it to a sender, and
// moves it to where every message lies: to the inbox when it is sent, to its key's lane while it is to be tried again,
// to the dead letters when it is given up. That is an inbox of its own, so whatever people do with an inbox they do
// with an outbox: explain, list, redrive, discard, pause, retention.
//
// A relay shares the outbox out by shards, sixteenths of a topic's keys, each as if it was a partition: who sends one
// has locked it, and owns its position, which keeps earlier owners away. So a message that takes down whoever sends it
// is found and set apart as a consumer's is.
//
// In reading order: message.go and key.go (what is added, and what makes two the same), headers.go (what a message
// brings along from the one that caused it), writer.go (adding), handler.go (handlers that return messages); config.go
// and relay.go (who sends), worker.go (a batch from its claim to its end), shard.go (what is claimed), sender.go (a Go
// function as a sender), event.go (what the log is told).
package outbox
