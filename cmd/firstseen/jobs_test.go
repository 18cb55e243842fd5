package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestJobIsMadeListedShownAndCancelled(t *testing.T) {
	o := newOffice(t)
	o.run(exitFailure, "jobs", "list")
	_, stderr := o.run(exitFailure, "dead", "redrive", "--all", "--why", "mended", "--job", "--inbox", "orders-inbox")
	require.Contains(t, stderr, "no dead letter matches")
	o.add("order-1", dedup.Dead, dedup.Message{Key: []byte("k")})
	o.add("order-2", dedup.Dead, dedup.Message{Key: []byte("k")})
	stdout, _ := o.run(exitOK, "jobs", "list")
	require.Contains(t, stdout, "no jobs match")

	_, stderr = o.run(exitUsage, "dead", "discard", "--handler", "book", "--why", "spam", "--job")
	require.Contains(t, stderr, "2 dead letters will be forgotten for good: give --yes")
	stdout, _ = o.run(exitOK, "dead", "discard", "--handler", "book", "--dry-run", "--job")
	require.Equal(t, "2 dead letters would be discarded\n", stdout)
	stdout, _ = o.run(exitOK, "dead", "redrive", "--key", "k", "--why", "mended", "--job", "--actor", "ann")
	require.Contains(t, stdout, "2 dead letters will be redriven by whichever process runs; see firstseen jobs show ")
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(stdout)
	stdout, _ = o.run(exitOK, "jobs", "list")
	require.Regexp(t, `(?m)^\S+ \S+ +`+id+` +redrive +queued +2 +0 +0 +0 +ann +mended$`, stdout)
	_, stderr = o.run(exitUsage, "jobs", "cancel", id)
	require.Contains(t, stderr, "--why is required")
	stdout, _ = o.run(exitOK, "jobs", "cancel", id, "--why", "wrong key")
	require.Regexp(t, `(?m)^state +cancelled$`, stdout)
	require.Regexp(t, `(?m)^of +key "?k"?$`, stdout)

	stdout, _ = o.run(exitOK, "dead", "discard", "--all", "--why", "spam", "--job", "--yes", "--json")
	id = regexp.MustCompile(`[0-9a-f-]{36}`).FindString(stdout)
	require.NoError(t, operate.Of(o.store).WorkJobs(t.Context(), "host-1"))
	stdout, _ = o.run(exitOK, "jobs", "show", id)
	require.Regexp(t, `(?m)^state +done$`, stdout)
	require.Regexp(t, `(?m)^done +2$`, stdout)
	requireSame(t, first(o.run(exitOK, "jobs", "show", id, "--json")), o.ask("GET", o.api()+"/jobs/"+id, ""), "jobs show")
	requireSame(t, first(o.run(exitOK, "jobs", "list", "--json")), o.ask("GET", o.api()+"/jobs", ""), "jobs list")
	_, stderr = o.run(exitUsage, "jobs", "show", "7")
	require.Contains(t, stderr, `"7" is not the ID of a job`)
	_, stderr = o.run(exitFailure, "jobs", "show", "00000000-0000-4000-8000-000000000000")
	require.Contains(t, stderr, "there is no job")
}

func first(stdout, _ string) string { return stdout }

func TestErrorsAreCountedByWhatTheyHaveInCommon(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Dead, dedup.Message{})
	o.add("order-2", dedup.Dead, dedup.Message{})
	o.add("order-3", dedup.Parked, dedup.Message{})
	stdout, _ := o.run(exitOK, "dead", "errors", "--since", "24h")
	require.Regexp(t, `(?m)^2 +book +attempts_exhausted +\S+ \S+ +[0-9a-f-]{36} +insert: no such account`, stdout)
	stdout, _ = o.run(exitOK, "dead", "errors", "--reason", "killed")
	require.Contains(t, stdout, "no dead letters match")
	stdout, _ = o.run(exitOK, "inbox", "errors", "--handler", "book")
	require.Regexp(t, `(?m)^1 +book +\d`, stdout)
	root := o.api()
	requireSame(t, first(o.run(exitOK, "dead", "errors", "--json")), o.ask("GET", root+"/dead-letters/errors", ""), "dead errors")
	requireSame(t, first(o.run(exitOK, "inbox", "errors", "--json")), o.ask("GET", root+"/lanes/errors", ""), "inbox errors")
}
