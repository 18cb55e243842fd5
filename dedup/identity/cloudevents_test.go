package identity

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func structuredEvent(contentType, payload string) Record {
	m := withHeaders("content-type", contentType)
	m.Value = []byte(payload)
	return m
}

func TestCloudEventHasOneIdentityInBothModes(t *testing.T) {
	binary := identify(t, withHeaders("ce_id", "bc", "ce_source", "/a", "content-type", "application/json"),
		"cloudevents")
	assert.Equal(t, "/a bc", binary.RawID)
	for _, contentType := range []string{
		"application/cloudevents+json", "Application/CloudEvents+JSON; charset=UTF-8",
		" application/cloudevents+json ;x",
	} {
		m := structuredEvent(contentType, `{"specversion":"1.0","id":"bc","source":"\/a"}`)
		assert.Equal(t, binary.ID, identify(t, m, "cloudevents").ID, contentType)
	}
}

func TestCloudEventPairsNeverMeetByConcatenation(t *testing.T) {
	assert.NotEqual(t, identify(t, withHeaders("ce_source", "a", "ce_id", "bc"), "cloudevents").ID,
		identify(t, withHeaders("ce_source", "ab", "ce_id", "c"), "cloudevents").ID)
}

func TestCloudEventWithUUIDStaysUniqueToItsSource(t *testing.T) {
	a := identify(t, withHeaders("ce_source", "a", "ce_id", canonicalID), "cloudevents")
	b := identify(t, withHeaders("ce_source", "b", "ce_id", canonicalID), "cloudevents")
	assert.NotEqual(t, a.ID, b.ID)
	assert.NotEqual(t, canonicalID, a.ID.String())
}

func TestCloudEventWithHalfItsPairIsMissing(t *testing.T) {
	requireReason(t, ReasonMissingID, withHeaders("ce_id", "1"), "cloudevents")
	requireReason(t, ReasonMissingID, withHeaders("ce_source", "a", "ce_id", " "), "cloudevents")
	requireReason(t, ReasonMissingID, structuredEvent("application/cloudevents+json", `{"id":"1","source":null}`),
		"cloudevents")
	assert.Equal(t, "m1", identify(t, withHeaders("ce_id", "1", "h", "m1"), "cloudevents", "header:h").RawID)
}

func TestCloudEventFaultsHaveTheirReasons(t *testing.T) {
	const structured = "application/cloudevents+json"
	requireReason(t, ReasonAmbiguousID, withHeaders("ce_id", "1", "ce_id", "2", "ce_source", "a"), "cloudevents")
	requireReason(t, ReasonAmbiguousID, withHeaders("ce_id", "1", "ce_source", "b", "ce_source", "a"), "cloudevents")
	requireReason(t, ReasonAmbiguousID, structuredEvent(structured, `{"id":"1","source":"a","id":"2"}`), "cloudevents")
	requireReason(t, ReasonIDNotScalar, structuredEvent(structured, `{"id":["1"],"source":"a"}`), "cloudevents")
	requireReason(t, ReasonNotJSON, structuredEvent(structured, `{"id":"1","source":"a"`), "cloudevents")
	half := strings.Repeat("a", MaxIDBytes/2)
	requireReason(t, ReasonIDTooLong, withHeaders("ce_id", half+"a", "ce_source", half), "cloudevents")
	assert.Empty(t, identify(t, withHeaders("ce_id", half, "ce_source", half), "cloudevents").Reason)
}

func TestABatchOfCloudEventsSaysThatItIsOne(t *testing.T) {
	m := structuredEvent("application/cloudevents-batch+json; charset=utf-8", `[{"id":"1","source":"a"}]`)
	requireReason(t, ReasonMissingID, m, "cloudevents")
	found := newRule(t, "cloudevents").Find(&m, testTopicID)
	assert.Contains(t, found.Sought, "; it is a batch of CloudEvents, which Kafka's binding does not have")
	assert.NotContains(t, newRule(t, "header:h").Find(&m, testTopicID).Sought, "batch")
}

func TestCloudEventModeIsReadFromTheWholeMediaType(t *testing.T) {
	for _, contentType := range []string{"application/cloudevents+jsonx",
		"application/cloudevents", "application/json", ""} {
		m := structuredEvent(contentType, `{"id":"1","source":"a"}`)
		requireReason(t, ReasonMissingID, m, "cloudevents")
	}
	m := withHeaders("content-type", "application/cloudevents+json", "content-type", "text/plain", "ce_id", "1",
		"ce_source", "a")
	requireReason(t, ReasonAmbiguousID, m, "cloudevents")
}
