package httpjson

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJSONSteersNoTerminal(t *testing.T) {
	want := map[string]string{"\x7fé": "\u009b31m \u0085 \u202e \u2066 <&> \x1b[0m\n 漢 \U0001f600"}
	for _, indent := range []string{"", "  "} {
		out, err := Marshal(want, indent)
		require.NoError(t, err)
		require.NotRegexp(t, `[\x{7f}-\x{9f}\x{202e}\x{2066}\x{1b}]`, string(out))
		require.Contains(t, string(out), `\u009b31m \u0085 \u202e \u2066 <&> \u001b[0m\n 漢 😀`)
		var got map[string]string
		require.NoError(t, json.Unmarshal(out, &got))
		require.Equal(t, want, got)
	}
}

func TestWhatIsNoJSONIsAnErrorAndNothingElse(t *testing.T) {
	for _, value := range []any{math.NaN(), time.Date(57878, 1, 1, 0, 0, 0, 0, time.UTC)} {
		out, err := Marshal(map[string]any{"a": 1, "b": value}, "")
		require.Error(t, err)
		require.Nil(t, out)
	}
}

func TestWhatIsNoJSONIsNoAnswer(t *testing.T) {
	w := httptest.NewRecorder()
	require.Error(t, Write(w, http.StatusOK, Type, math.NaN()))
	require.Zero(t, w.Body.Len())
	require.Empty(t, w.Header())
}
