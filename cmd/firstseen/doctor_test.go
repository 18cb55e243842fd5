package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestDoctorsExitCodeIsThatOfTheWorstFinding(t *testing.T) {
	o := newOffice(t)
	o.add("order-1", dedup.Dead, dedup.Message{})
	sql := func(sql string) {
		t.Helper()
		_, err := o.db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	stdout, stderr := o.run(exitOK, "doctor", "--only", "dead")
	require.Empty(t, stderr)
	require.Equal(t, `dead
  info     dead.waiting: handler book: 1 dead letters wait
           -> Look at them: `+"`firstseen dead list`"+`.
  info     dead.unpublished: not checked: no config is given
1 ok, 2 info, 0 warnings, 0 faults
`, stdout)
	stdout, _ = o.run(exitOK, "doctor", "--only", "schema.version", "--all")
	require.Regexp(t, `^schema\n  ok       schema.version: the schema firstseen is at version \d+\n1 ok, 0 info, 0 warnings, 0 faults\n$`, stdout)

	sql(`update firstseen.dead_letters set died_at = '2001-01-01'`)
	_, stderr = o.run(exitWarning, "doctor", "--only", "dead.waiting")
	require.Equal(t, "firstseen: there are warnings\n", stderr)
	sql(`alter table firstseen.positions disable trigger positions_sealed`)
	stdout, stderr = o.run(exitFault, "doctor", "--json", "--only", "dead.waiting,schema")
	require.Equal(t, "firstseen: there are faults\n", stderr)
	var got struct {
		Worst    string
		Findings []struct {
			Check, Level, Seen, Do string
			Checked                bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, "fault", got.Worst)
	for _, f := range got.Findings {
		if f.Check == "schema.login" {
			require.False(t, f.Checked, "without a config there is no login to look at")
			continue
		}
		require.Equal(t, f.Level == "ok", f.Do == "", f)
		require.True(t, f.Checked, f)
	}
	require.Contains(t, stdout, "alter table firstseen.TABLE enable trigger TRIGGER")
}

func TestDoctorLooksAtWhatThereIs(t *testing.T) {
	o := newOffice(t)
	_, stderr := o.runWithout(exitUsage, "doctor")
	require.Contains(t, stderr, "give --config or --dsn")
	_, stderr = o.runWithout(exitUsage, "doctor", "--config", "none.yaml")
	require.Contains(t, stderr, "none.yaml")
	_, stderr = o.run(exitUsage, "doctor", "--only", "nonsense")
	require.Contains(t, stderr, `no check "nonsense"`)
	o.run(exitUsage, "doctor", "--timeout", "0s")
	o.run(exitUsage, "doctor", "now")

	require.NoError(t, os.WriteFile("firstseen.yaml",
		[]byte(fmt.Sprintf("postgres: {dsn: %q}\nkafka: {brokers: ['127.0.0.1:1']}\ngroup: g\nbatch: {messages: -1}\n",
			o.db.DSN)), 0o600))
	stdout, _ := o.runWithout(exitFault, "doctor", "--timeout", "2s")
	require.Contains(t, stdout, "fault    config.loads: batch.messages (line 4, column 9): ")
	require.Contains(t, stdout, "fault    config.loads: topics: ")
	require.Contains(t, stdout, "fault    kafka.reachable: ")
	require.NotContains(t, stdout, "postgres.reachable")
	require.Contains(t, stdout, "info     kafka.version, auto_create, topics, recreated, cut_off, replication, ")
	require.NoError(t, os.WriteFile("nodsn.yaml", []byte("kafka: {brokers: ['127.0.0.1:1']}\ngroup: g\ntopics: [{name: x, handlers: [{name: h, function: f}]}]\n"), 0o600))
	o.runWithout(exitFault, "doctor", "--config", "nodsn.yaml", "--only", "config")
	o.run(exitOK, "doctor", "--config", "nodsn.yaml", "--only", "config")
	t.Setenv("FIRSTSEEN_POSTGRES_DSN", "postgres://app:hunter2@127.0.0.1:1/app")
	stdout, _ = o.runWithout(exitFault, "doctor", "--only", "postgres.reachable")
	require.Contains(t, stdout, "connection refused")
	require.NotContains(t, stdout, "hunter2")
}

func (o *office) runWithout(code int, args ...string) (stdout, stderr string) {
	o.t.Helper()
	stdout, stderr, got := command(o.t, args...)
	require.Equal(o.t, code, got, stdout+stderr)
	return stdout, stderr
}

func TestDoctorListsItsChecks(t *testing.T) {
	stdout, _, code := command(t, "doctor", "--list", "--only", "config.sasl")
	require.Equal(t, exitOK, code)
	require.Equal(t, "config.sasl  no password crosses the network as it is\n", stdout)
	stdout, _, _ = command(t, "doctor", "--list")
	require.Greater(t, strings.Count(stdout, "\n"), 50)
	stdout, _, _ = command(t, "doctor", "--list", "--json")
	require.Contains(t, stdout, `"check": "kafka.two_databases"`)
}

func TestDoctorThatIsEndedIsAFailure(t *testing.T) {
	o := newOffice(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	require.Equal(t, exitFailure, execute(ctx, []string{"doctor", "--dsn", o.db.DSN}, &out, &out))
}
