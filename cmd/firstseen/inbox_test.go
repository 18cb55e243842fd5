package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/operate"
)

func TestInboxListTellsWhatBecameOfMessagesInPages(t *testing.T) {
	o := newOffice(t)
	for i := range 3 {
		o.add(fmt.Sprint("done-", i), dedup.Processed, dedup.Message{Key: []byte{byte(i)}})
	}
	o.add("waits", dedup.Parked, dedup.Message{Value: []byte("v")})
	o.add("died", dedup.Dead, dedup.Message{})
	stdout, _ := o.run(exitOK, "inbox", "list", "--status", "processed", "--limit", "2")
	lines := strings.Split(stdout, "\n")
	require.Regexp(t,
		`^RECEIVED \(UTC\) +STATUS +HANDLER +MESSAGE +ID +ATTEMPTS +DUE \(UTC\) +REASON +ERROR$`, lines[0])
	require.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +processed +book +orders/0@2 +done-2 +0 *$`, lines[1])
	require.Regexp(t, `^there are more: --after \S+$`, lines[3])
	stdout, _ = o.run(exitOK, "inbox", "list", "--status", "processed", "--limit", "2",
		"--after", strings.Fields(lines[3])[4])
	require.Contains(t, stdout, "done-0")
	require.Equal(t, 2, strings.Count(stdout, "\n"))
	stdout, _ = o.run(exitOK, "inbox", "list", "--status", "processed", "--key", `\x01`, "--since", "1h")
	require.Equal(t, 2, strings.Count(stdout, "\n"))
	stdout, _ = o.run(exitOK, "inbox", "list", "--status", "pending")
	require.Regexp(t, `(?m)pending +book +orders/0@3 +waits +0 +\d{4}-`, stdout)
	stdout, _ = o.run(exitOK, "inbox", "list", "--status", "dead", "--reason", "attempts_exhausted")
	require.Regexp(t, `(?m)dead +book +orders/0@4 +died +10 +attempts_exhausted`, stdout)
	stdout, _ = o.run(exitOK, "inbox", "list")
	require.Equal(t, "inbox orders-inbox: no messages of that status match\n", stdout,
		"failed ones are meant where nothing is said")
	stdout, _ = o.run(exitOK, "inbox", "list", "--status", "pending", "--json")
	var got struct {
		Messages []struct {
			Status  string
			Content struct{ Value struct{ Text string } }
			DueAt   string `json:"due_at"`
		}
		Next *string
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, []string{"pending", "v"}, []string{got.Messages[0].Status, got.Messages[0].Content.Value.Text})
	require.NotEmpty(t, got.Messages[0].DueAt)
	for _, args := range []string{"--status lost", "--status processed --reason x", "--limit 0", "x"} {
		_, stderr := o.run(exitUsage, append([]string{"inbox", "list"}, strings.Fields(args)...)...)
		require.NotEmpty(t, stderr, args)
	}
}

func TestInboxShowShowsAMessageWhateverBecameOfIt(t *testing.T) {
	o := newOffice(t)
	for name, state := range map[string]dedup.State{"processed": dedup.Processed,
		"parked": dedup.Parked, "died": dedup.Dead} {
		o.add(name, state, dedup.Message{Value: []byte(`{"a":1}`), Headers: []dedup.Header{{Key: "trace"}}})
		stdout, _ := o.run(exitOK, "inbox", "show", name)
		require.Regexp(t, `(?m)^`+name+` +\d{4}-`, stdout)
		require.Contains(t, stdout, "  trace: null\nvalue     7 bytes, JSON\n")
		stdout, _ = o.run(exitOK, "inbox", "show", name, "--json")
		require.Contains(t, stdout, `"text": "{\"a\":1}"`)
	}
	_, stderr := o.run(exitFailure, "inbox", "show", "nobody")
	require.Contains(t, stderr, "firstseen explain")
	_, stderr = o.run(exitFailure, "inbox", "show", "died", "--handler", "ship")
	require.Contains(t, stderr, "no message that is kept")
}

func TestStatusTellsWhereConsumersStandWhatWaitsAndWhatIsPaused(t *testing.T) {
	o := newOffice(t)
	o.add("waits", dedup.Parked, dedup.Message{})
	o.add("died", dedup.Dead, dedup.Message{})
	stdout, _ := o.run(exitOK, "status")
	require.Contains(t, stdout, "inbox orders-inbox: nothing is paused\n")
	_, err := o.store.Acquire(t.Context(), "billing", "orders", 3, "host-1")
	require.NoError(t, err)
	_, err = operate.Of(o.store).Pause(t.Context(), dedup.Pause{Kind: dedup.PauseTopic, Topic: "orders"},
		operate.By{Actor: "ann", Why: "migration"})
	require.NoError(t, err)
	require.NoError(t, o.store.TellHolds(t.Context(), "billing", uuid.New(), "host-1", []holds.Hold{
		{Subject: holds.Partition("orders", 3), Code: holds.CutOff, Since: time.Now().Add(-time.Hour),
			Reason: "ends at 5\x1b[2J", Tries: 1}}))
	stdout, _ = o.run(exitOK, "status")
	require.Regexp(t, `(?m)^waiting in billing, host-1 \(as of \d+s ago\):$`, stdout)
	require.Regexp(t, `(?m)^  partition orders/3, since 1h0m\ds ago: the partition's log is not the one that was read: .* \(cut_off\): ends at 5\S*$`, stdout)
	require.Contains(t, stdout, "    -> "+holds.EntryOf(holds.CutOff).Do)
	require.NotContains(t, stdout, "\x1b")
	require.Regexp(t, `(?m)^billing +orders/3 +- +\d+s ago +\d+s ago +host-1$`, stdout)
	require.Regexp(t, `(?m)^book +1 +0 +1 +\d+s ago$`, stdout)
	require.Regexp(t, `(?m)^  topic orders, \d+s ago by ann: migration$`, stdout)
	stdout, _ = o.run(exitOK, "status", "--json")
	var got struct {
		Positions []struct {
			Consumer, Topic, Owner string
			Partition              int
			Next                   *int64 `json:"next_offset"`
		}
		Backlog []struct{ Pending, Failed, Dead, Lanes int }
		Pauses  []struct{ Kind, Name, Why string }
		Holds   []struct {
			Consumer string
			Holds    []struct{ Kind, Name, Held, Do string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, []any{"billing", "orders", 3, "host-1"},
		[]any{got.Positions[0].Consumer, got.Positions[0].Topic, got.Positions[0].Partition, got.Positions[0].Owner})
	require.Nil(t, got.Positions[0].Next)
	require.Equal(t, []int{1, 1, 1}, []int{got.Backlog[0].Pending, got.Backlog[0].Dead, got.Backlog[0].Lanes})
	require.Equal(t, []string{"topic", "orders", "migration"},
		[]string{got.Pauses[0].Kind, got.Pauses[0].Name, got.Pauses[0].Why})
	require.Equal(t, "cut_off", got.Holds[0].Holds[0].Held)
}
