package crashtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/crashtest/internal/receiver"
	"github.com/firstseen/firstseen/dedup"
)

// called is one call to a webhook.
type called struct {
	offset int
	key    string // empty: the offset's own
	body   string // the same
}

func keyOf(n int) string { return uuid.NewSHA1(uuid.Nil, fmt.Append(nil, n)).String() }

// calling is a run in which a webhook makes these calls, of messages with two keys by turns.
func calling(t *testing.T, ordering dedup.Ordering, list ...called) *trial {
	t.Helper()
	s := &stack{config: &Config{Messages: sampleOf(6, 2), Webhooks: []Webhook{{Handler: "notify", Ordering: ordering}}}}
	one := &trial{s: s, run: &RunResult{}, holds: &tables{}}
	for i := range s.config.Messages {
		one.sent = append(one.sent, sending{of: i})
		one.records = append(one.records, &kgo.Record{Topic: "a", Offset: int64(i), Key: s.config.Messages[i].Key})
	}
	var err error
	one.receiver, err = receiver.Open(receiver.Config{Handle: func(_ context.Context, c *receiver.Call) error {
		c.Early = c.Offset >= int64(len(one.records))
		return nil
	}})
	require.NoError(t, err)
	for _, c := range list {
		post(t, one.receiver.URL(), c)
	}
	one.addCalls()
	return one
}

func post(t *testing.T, at string, c called) {
	t.Helper()
	if c.key == "" {
		c.key = keyOf(c.offset)
	}
	if c.body == "" {
		c.body = "body of " + fmt.Sprint(c.offset)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/notify", strings.NewReader(c.body))
	require.NoError(t, err)
	req.Header = http.Header{"Idempotency-Key": {c.key}, "X-Firstseen-Topic": {"a"},
		"X-Firstseen-Partition": {"0"}, "X-Firstseen-Offset": {fmt.Sprint(c.offset)}}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestCallsOfWebhooksAreHeldAgainstWhatIsPromised(t *testing.T) {
	all := []called{{offset: 0}, {offset: 1}, {offset: 2}, {offset: 3}, {offset: 4}, {offset: 5}}
	right := calling(t, "", all...)
	right.holds.promised()
	for name, c := range map[string]struct {
		calls []called
		want  []string
	}{
		"in another order across keys": {[]called{all[1], all[3], all[0], all[2], all[5], all[4]}, nil},
		"again":                        {append(all[:6:6], all[0], all[3]), nil},
		"one is left out":              {all[:5], []string{"missing [body of 5]"}},
		"out of order in a key": {[]called{all[2], all[0], all[1], all[3], all[4], all[5]},
			[]string{"changed in_order true false"}},
		"another key the second time":   {append(all[:6:6], called{offset: 5, key: keyOf(99)}), []string{"extra [body of 5]"}},
		"another body":                  {append(all[:5:5], called{offset: 5, body: "x"}), []string{"changed body body of 5 x"}},
		"of a message that nobody sent": {append(all[:6:6], called{offset: 6}), []string{"extra [body of 6]"}},
	} {
		run := calling(t, "", c.calls...)
		require.Equal(t, c.want, said(run.differences(&reference{right.holds, compared{}})), name)
	}
}

func said(list []Difference) (texts []string) {
	for _, d := range list {
		text := d.Kind
		for _, cell := range d.Row {
			if cell.Column == "body" {
				text += fmt.Sprintf(" [%s]", cell.Value)
			}
		}
		for _, c := range d.Changed {
			text += fmt.Sprintf(" %s %s %s", c.Column, c.Right, c.Has)
		}
		texts = append(texts, text)
	}
	return texts
}

func TestCallBeforeItsMessageIsAcceptedIsNeverRight(t *testing.T) {
	right := calling(t, "", called{offset: 6})
	right.holds.promised()
	run := calling(t, "", called{offset: 6})
	require.Equal(t, []string{"changed accepted true false"}, said(run.differences(&reference{right.holds, compared{}})))
}

func TestOrderOfCallsIsThatOfTheHandler(t *testing.T) {
	mixed := []called{{offset: 1}, {offset: 0}, {offset: 4}, {offset: 2}}
	wants := map[dedup.Ordering]int{dedup.Unordered: 0, dedup.OrderByKey: 1, dedup.OrderByPartition: 2}
	for ordering, want := range wants {
		run, wrong := calling(t, ordering, mixed...), 0
		for _, row := range run.holds.list[0].rows {
			if row[callInOrder] == "false" {
				wrong++
			}
		}
		require.Equal(t, want, wrong, string(ordering))
	}
}

func TestWhatComesAgainIsCountedAndKeptOnce(t *testing.T) {
	run := calling(t, "", called{offset: 0}, called{offset: 0}, called{offset: 0})
	require.Equal(t, 2, run.run.Repeated)
	require.Len(t, run.holds.list[0].rows, 1)
}
