package admin

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/view"
)

func TestDoctorsFindingsAreForWhoMayRead(t *testing.T) {
	s := newStage(t, func(s *stage) {
		withTokens(s)
		s.doctor = func(context.Context) ([]view.Finding, error) {
			return []view.Finding{{Check: "kafka.lag", Level: "warning", Checked: true, Seen: "4 wait", Do: "Wait."},
				{Check: "kafka.loss", Level: "info", Seen: "not checked: no config is given"}}, nil
		}
	})
	s.refused(http.StatusUnauthorized, http.MethodGet, prefix+"/doctor", "")
	found := s.get(prefix+"/doctor", "Authorization", "Bearer "+readToken)
	require.Equal(t, "warning", found.at("worst"))
	require.Equal(t, "4 wait", found.at("findings.0.seen"))
	require.Equal(t, "Wait.", found.at("findings.0.do"))
	require.Equal(t, false, found.at("findings.1.checked"))
	require.NotNil(t, found.at("looked_at"))
	require.Nil(t, found.at("looking_since"))
}

func TestWhoDoesNotWaitForTheDoctorIsToldThatHeLooks(t *testing.T) {
	let := make(chan struct{})
	s := newStage(t, func(s *stage) {
		s.doctor = func(ctx context.Context) ([]view.Finding, error) {
			select {
			case <-let:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	early := s.get(prefix + "/doctor?wait=false")
	require.NotNil(t, early.at("looking_since"))
	require.Nil(t, early.at("worst"))
	require.Equal(t, []any{}, early.at("findings"))
	close(let)
	require.Equal(t, "ok", s.get(prefix+"/doctor").at("worst"))
}

func TestProgramWithoutADoctorSaysWhereToRunIt(t *testing.T) {
	p := newStage(t, nil).refused(http.StatusNotImplemented, http.MethodGet, prefix+"/doctor", "")
	require.Contains(t, p.Detail, "firstseen doctor --config")
}
