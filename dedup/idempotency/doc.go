// Package idempotency lets an HTTP request take effect once, and gives its answer again: a client that has heard
// nothing may send it again, with the same Idempotency-Key, as often as it likes. In comes any [http.Handler]; out
// comes one that knows which requests it has answered. It knows nothing of brokers, and is used without the rest of
// firstseen.
//
// There are two modes, and the difference is where the effect lies.
//
// [InTransaction] is for effects in the same Postgres. The handler takes its transaction from the request's context
// ([Tx]); what it does through that, the key and the answer commit together or not at all, and the client hears
// nothing before that. After a crash there is nothing to clean up: no lease runs out, no key is stuck.
//
// [Claimed] is for effects that lie elsewhere. The key is claimed for a while, the claim is kept up while the handler
// works, and the answer is stored when it has ended. Who dies in between leaves a claim that ends by itself, and then
// the handler runs again: at least once. [Key] is what to hand on to whom the effect is asked of, and [Fence] what
// tells an owner from one that came after him.
//
// # Which answers are kept
//
//   - 2xx and 3xx are: they are the answer, and the effect stands.
//   - 4xx are too, but for those of who asks and when (401, 403, 407, 408, 421, 423, 425, 429), which another try
//     may get past: see [Config].Final. In a transaction nothing stands of what the handler did before it answered
//     so, whether the statement that told it so had failed or not: only key and answer commit.
//   - 5xx, a panic, a body that did not arrive, an answer over its bound and a commit that failed keep nothing and, in
//     a transaction, undo everything. The key is as if it had never been seen. With [Claimed] an answer over its bound
//     is the exception: the effect has happened, and so what is kept is that it can't be told any more.
//
// # Twins
//
// A request whose key is being worked on waits for nothing that others need. Within a process it finds that out in
// memory, and waits there without a connection. Between processes it can't be an insert of the key, which would wait,
// on a pooled connection, for as long as the first one's handler takes; nor an advisory lock, which anybody may hold
// who can log in. So the key has a row before the transaction that works on it begins: inserted and committed in the
// same round trip, without waiting for the disk. The transaction locks that row and its twins skip it, at once. What a
// crash leaves is a row that nobody holds and that has no answer: it means nothing, the next try takes it, and the
// sweep deletes it. The lock ends with its session; a session whose process was lost without a word is ended by
// Postgres, once the handler's time is over.
//
// In reading order: package request (keys, bodies, problems); scope.go, fingerprint.go, answer.go (what a request and
// its answer are known by); store.go (the port), postgres.go, transaction.go and sweep.go (Postgres); middleware.go
// (Config), serve.go (the way of one request), inflight.go, recorder.go, modes.go, lease.go, codes.go, events.go.
package idempotency
