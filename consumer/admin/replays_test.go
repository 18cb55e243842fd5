package admin

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// What a replay does is tested where topics are read: packages service and page.
func TestReplaysAreRefusedWhereNoTopicIsReadOrTheyAreAskedForWrongly(t *testing.T) {
	s := newStage(t, withTokens)
	read, write := []string{"Authorization", "Bearer " + readToken}, []string{"Authorization", "Bearer " + writeToken}
	for query, want := range map[string]string{"": "topic", "topic=orders": "from", "topic=orders&from=earliest&partition=-1": "partition",
		"topic=orders&from=earliest&partition=2147483648": "partition", "topic=orders&from=earliest&partitions=1": "partitions"} {
		require.Contains(t, s.refused(http.StatusBadRequest, http.MethodGet, prefix+"/replays/plan?"+query, "", read...).Parameter, want, query)
	}
	problem := s.refused(http.StatusNotImplemented, http.MethodGet, prefix+"/replays/plan?topic=orders&from=earliest", "", read...)
	require.Contains(t, problem.Detail, "this process reads no topic")
	body := fmt.Sprintf(`{"id":%q,"topic":"orders","from":"earliest","why":"lost"}`, uuid.New())
	s.refused(http.StatusForbidden, http.MethodPost, prefix+"/replays", body, read...)
	s.refused(http.StatusNotImplemented, http.MethodPost, prefix+"/replays", body, write...)
	for body, want := range map[string]string{
		`{"id":"x","topic":"orders","from":"earliest","why":"lost"}`:                            "id",
		fmt.Sprintf(`{"id":%q,"topic":"orders","from":"earliest","why":" "}`, uuid.New()):       "why",
		fmt.Sprintf(`{"id":%q,"topic":"orders","from":"earliest"}`, uuid.New()):                 "why",
		fmt.Sprintf(`{"id":%q,"topic":"orders","why":"x"}`, uuid.New()):                         "from",
		fmt.Sprintf(`{"id":%q,"topic":"o","from":"1","rate":0,"why":"x"}`, uuid.New()):          "rate",
		fmt.Sprintf(`{"id":%q,"topic":"o","from":"1","partitions":[-1],"why":"x"}`, uuid.New()): "partitions",
	} {
		require.Contains(t, s.refused(http.StatusBadRequest, http.MethodPost, prefix+"/replays", body, write...).Parameter, want, body)
	}
	require.Empty(t, s.get(prefix+"/jobs", read...).at("jobs"))
}
