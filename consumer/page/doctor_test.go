package page_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/view"
)

func TestDoctorsFindingsAreShownTheWorstFirstWithWhatToDo(t *testing.T) {
	let := make(chan struct{})
	s := newStageWith(t, func(ctx context.Context) ([]view.Finding, error) {
		select {
		case <-let:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return []view.Finding{{Check: "server.version", Level: "ok", Checked: true, Seen: "it is 18"},
			{Check: "server.durability", Level: "warning", Checked: true, Seen: "<b>fsync", Do: "Switch it on."},
			{Check: "kafka.loss", Level: "fault", Checked: true, Seen: "messages were deleted", Do: "Raise retention."},
			{Check: "kafka.lag", Level: "info", Seen: "not checked: kafka is not reached"},
			{Check: "kafka.group", Level: "info", Seen: "not checked: kafka is not reached"}}, nil
	})
	b := s.signedIn(readToken, "")
	early := b.read("doctor")
	require.Contains(t, early, `<meta http-equiv="refresh"`)
	require.Contains(t, textOf(t, early), "Nothing is known yet")
	close(let)
	var page string
	require.Eventually(t, func() bool {
		page = b.read("doctor")
		return !strings.Contains(page, "http-equiv")
	}, 3*time.Minute, 10*time.Millisecond)
	text := requireInert(t, page)
	require.Contains(t, text, "There are faults")
	require.Contains(t, text, "<b>fsync")
	require.Contains(t, text, "What to do: Raise retention.")
	require.Contains(t, text, "kafka.lag, kafka.group")
	require.Equal(t, 1, strings.Count(text, "kafka is not reached"))
	for _, pair := range [][2]string{{"kafka.loss", "server.durability"}, {"server.durability", "Not checked"},
		{"Not checked", "server.version"}} {
		require.Less(t, strings.Index(text, pair[0]), strings.Index(text, pair[1]), pair)
	}
}

func TestProgramWithoutADoctorSaysWhereToRunHim(t *testing.T) {
	page := newStage(t, nil).signedIn(readToken, "").read("doctor")
	require.Contains(t, textOf(t, page), "firstseen doctor --config FILE")
	require.NotContains(t, page, "http-equiv")
}
