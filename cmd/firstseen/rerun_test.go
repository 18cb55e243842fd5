package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestRerunShowsFirstAndIsDoneWithYes(t *testing.T) {
	o := newOffice(t)
	for i := range 8 {
		o.add(fmt.Sprint("order-", i), dedup.Processed, dedup.Message{Key: []byte("k")})
	}
	dead := o.add("dead", dedup.Dead, dedup.Message{})
	where := []string{"rerun", "--handler", "book", "--topic", "orders", "--partition", "0",
		"--from-offset", "1", "--to-offset", "7"}
	stdout, stderr := o.run(exitUsage, append(where, "--why", "wrong price")...)
	require.Regexp(t,
		`^6 messages would be rerun, in this order:\n  \S+  orders/0@1  received .*\n(.*\n){4}  and 1 more\n`, stdout)
	require.Contains(t, stderr, "What the handler does with 6 messages takes effect a second time: give --yes")
	require.Zero(t, o.count(`select count(*) from firstseen.parked`))
	_, stderr = o.run(exitUsage, append(where, "--yes")...)
	require.Contains(t, stderr, "--why is required")
	stdout, _ = o.run(exitOK, append(where, "--yes", "--why", "wrong price", "--actor", "eve")...)
	require.Equal(t,
		"6 messages on the way to the handler: processes that run it handle them in their lanes\n", stdout)
	require.Equal(t, 6, o.count(`select count(*) from firstseen.parked join firstseen.lanes using (scope_id, lane) where attempts = 0 and due_at <= now()`))
	require.Equal(t, 6,
		o.count(`select count(*) from firstseen.audit where (actor, action, why) = ('eve', 'rerun', 'wrong price')`))
	stdout, _ = o.run(exitOK, "explain", "order-3")
	require.Regexp(t, `rerun by eve: wrong price`, stdout)

	stdout, _ = o.run(exitOK, "rerun", "--handler", "book", "--id", "order-0", "--id", "order-3",
		"--id", "dead", "--dry-run")
	require.Contains(t, stdout, "1 message would be rerun")
	require.Contains(t, stdout, dead.ID.String()+" is a dead letter: redrive it instead")
	require.Contains(t, stdout, "is not processed yet: it waits in its lane")
	require.NotContains(t, stdout, "--yes")
	stdout, _ = o.run(exitFailure, "rerun", "--handler", "book", "--id", "nobody", "--json", "--dry-run")
	var got struct {
		Rerun   int
		Missing []struct{ Why string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, "unseen", got.Missing[0].Why)
}

func TestRerunTakesTheHandlersOrderingFromTheConfig(t *testing.T) {
	o := newOffice(t)
	m := o.add("order-1", dedup.Processed, dedup.Message{Key: []byte("k")})
	lane := func(o dedup.Ordering) string { return o.Lane(&m).String() }
	require.NoError(t, os.WriteFile("firstseen.yaml",
		[]byte("topics: [{name: orders, handlers: [{name: book, function: f, ordering: partition}]}]\n"), 0o600))
	o.run(exitOK, "rerun", "--handler", "book", "--id", "order-1", "--yes", "--why", "x")
	require.Equal(t, 1,
		o.count(`select count(*) from firstseen.lanes where lane::text = $1`, lane(dedup.OrderByPartition)))
	o.add("order-2", dedup.Processed, dedup.Message{Key: []byte("k")})
	o.run(exitOK, "rerun", "--handler", "book", "--id", "order-2", "--ordering", "key", "--yes", "--why", "x")
	require.Equal(t, 1, o.count(`select count(*) from firstseen.lanes where lane::text = $1`, lane(dedup.OrderByKey)))
}

func TestRerunRefusesWrongUsage(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Processed, dedup.Message{})
	for _, args := range [][]string{{}, {"--id", "x"}, {"--handler", "book"},
		{"--handler", "book", "--topic", "orders"}, {"--handler", "book", "--from-offset", "3", "--topic", "orders"},
		{"--handler", "book", "--partition", "0"}, {"--handler", "book", "--topic", "orders", "--partition", "0",
			"--from-offset", "3", "--to-offset", "3"}, {"--handler", "book", "--id", "x",
			"--yes", "--dry-run", "--why",
			"x"}, {"--handler", "book", "--id", "x", "--ordering", "any"}} {
		o.run(exitUsage, append([]string{"rerun"}, args...)...)
	}
	_, stderr := o.run(exitFailure, "rerun", "--handler", "ledger", "--id", "order-1", "--dry-run")
	require.Contains(t, stderr, "handler ledger has seen no message in this inbox; those that have: book")
}

func (o *office) count(sql string, args ...any) (n int) {
	o.t.Helper()
	require.NoError(o.t, o.db.Pool.QueryRow(o.t.Context(), sql, args...).Scan(&n))
	return n
}

func TestRerunByAJobIsPausedResumedAndDone(t *testing.T) {
	o := newOffice(t)
	for i := range 8 {
		o.add(fmt.Sprint("order-", i), dedup.Processed, dedup.Message{Key: []byte("k")})
	}
	where := []string{"rerun", "--job", "--handler", "book", "--topic", "orders", "--partition", "0", "--from-offset", "1", "--to-offset", "7"}
	stdout, _ := o.run(exitOK, append(where, "--dry-run")...)
	require.Regexp(t, `^6 messages would be rerun, in this order:\n  \S+  orders/0@1 `, stdout)
	_, stderr := o.run(exitUsage, append(where, "--why", "wrong price")...)
	require.Contains(t, stderr, "What the handler does with 6 messages takes effect a second time: give --yes")
	_, stderr = o.run(exitFailure, "rerun", "--job", "--handler", "book", "--id", "nobody", "--yes", "--why", "x")
	require.Contains(t, stderr, "no processed message matches")
	stdout, _ = o.run(exitOK, append(where, "--yes", "--why", "wrong price", "--actor", "eve")...)
	require.Contains(t, stdout, "6 messages will be rerun by whichever process runs; see firstseen jobs show ")
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(stdout)
	_, stderr = o.run(exitUsage, "jobs", "pause", id)
	require.Contains(t, stderr, "--why is required")
	stdout, _ = o.run(exitOK, "jobs", "pause", id, "--why", "not now")
	require.Regexp(t, `(?m)^state +paused$`, stdout)
	require.Regexp(t, `(?m)^of +topic orders, handler book, since .*, partition 0 from offset 1 to before 7$`, stdout)
	require.NoError(t, operate.Of(o.store).WorkJobs(t.Context(), "host-1"))
	require.Zero(t, o.count(`select count(*) from firstseen.parked`))
	stdout, _ = o.run(exitOK, "jobs", "resume", id, "--why", "now")
	require.Regexp(t, `(?m)^state +queued$`, stdout)
	require.NoError(t, operate.Of(o.store).WorkJobs(t.Context(), "host-1"))
	stdout, _ = o.run(exitOK, "jobs", "list")
	require.Regexp(t, `(?m)^\S+ \S+ +`+id+` +rerun +done +6 +6 +0 +0 +eve +wrong price$`, stdout)
	require.Equal(t, 6, o.count(`select count(*) from firstseen.parked`))
	requireSame(t, first(o.run(exitOK, "jobs", "show", id, "--json")), o.ask("GET", o.api()+"/jobs/"+id, ""), "jobs show")
}
