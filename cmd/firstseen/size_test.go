package main

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
)

func TestSizeTellsTablesGrowthForecastAndShares(t *testing.T) {
	o := newOffice(t)
	for i := range 5 {
		o.add(fmt.Sprint("order-", i), dedup.Processed, dedup.Message{})
	}
	yesterday := deduptest.InboxDay(t, o.db.Pool, 1)
	_, err := o.db.Pool.Exec(t.Context(), `update firstseen.inbox set received_at = $1`, yesterday)
	require.NoError(t, err)
	stdout, _ := o.run(exitOK, "size")
	require.Regexp(t, `(?m)^TABLE +ROWS \(ESTIMATED\) +BYTES +A DAY$`, stdout)
	require.Regexp(t, `(?m)^message_dedup +5 +[\d.]+ KiB +\d`, stdout)
	require.Regexp(t, `(?m)^inbox +5 +[\d.]+ KiB +\d`, stdout)
	require.Regexp(t, `(?m)^disk +\d.* taken by all databases of this server; with postgres.capacity`, stdout)
	require.Regexp(t, `(?m)^inbox +holds messages of `+yesterday.Format(time.DateOnly), stdout)
	require.Regexp(t, `(?m)^index +of the IDs: .*nothing to do$`, stdout)
	require.Regexp(t, `(?m)^orders-inbox +book +5 +100.0 %$`, stdout)

	require.NoError(t, os.WriteFile("firstseen.yaml", []byte("postgres: {capacity: 1GiB}\n"), 0o600))
	stdout, _ = o.run(exitOK, "size")
	require.Regexp(t,
		`(?m)^disk +.* of 1.0 GiB taken by all databases of this server: full in \d+ days at this growth$`, stdout)
	stdout, _ = o.run(exitOK, "size", "--json")
	var got struct {
		Tables []struct {
			Name  string
			Bytes int64
		}
		FullInDays *int64 `json:"full_in_days"`
		Growth     struct {
			IDs int64 `json:"ids_per_day"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Len(t, got.Tables, 7)
	require.NotNil(t, got.FullInDays)
}
