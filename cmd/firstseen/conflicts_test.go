package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
)

func TestConflictsShowPutsBothContentsSideBySide(t *testing.T) {
	o := newOffice(t)
	first := o.add("order-1", dedup.Processed,
		dedup.Message{Value: []byte(`{"total":10.50,"id":1,"items":["a","b"]}`)})
	o.add("order-1", dedup.Processed, dedup.Message{Value: []byte(`{"id":1, "total":10.5,"items":["a"], "new":true}`)})
	stdout, _ := o.run(exitOK, "conflicts", "list")
	require.Regexp(t, `(?m)book +orders/0@1 +`+first.ID.String()+` +48$`, stdout)

	stdout, _ = o.run(exitOK, "conflicts", "show", "order-1")
	require.Regexp(t, `(?m)^first +orders/0@0, received .* UTC, now processed$`, stdout)
	require.Regexp(t, `(?m)^copy +orders/0@1, received .* UTC, not handled$`, stdout)
	require.Regexp(t, `(?m)^  "id": 1, {40,}  "id": 1,$`, stdout)
	require.Regexp(t, `(?m)^  "total": 10.50 +\| .*"new": true,$|^  "total": 10.50 +\|   "total": 10.5$`, stdout)
	require.Regexp(t, `(?m)^    "b" +< *$`, stdout)
	stdout, _ = o.run(exitOK, "conflicts", "show", "order-1", "--json")
	var got struct {
		Conflicts []struct{ First, Copy map[string]any }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, "processed", got.Conflicts[0].First["status"])
	require.EqualValues(t, 1, got.Conflicts[0].Copy["offset"])
	_, stderr := o.run(exitFailure, "conflicts", "show", "order-2")
	require.Contains(t, stderr, "there is no conflict under the ID order-2")
}
