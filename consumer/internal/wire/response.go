package wire

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
)

// fetchResponse is a Fetch response, its records not decoded yet.
type fetchResponse struct {
	version    int16
	throttled  bool
	partitions []partitionResponse
}

type partitionResponse struct {
	topic         string    // up to version 12
	topicID       uuid.UUID // from version 13 on
	partition     int32
	errorCode     int16
	highWatermark int64
	lastStable    int64
	logStart      int64
	aborted       []abortedTransaction
	records       []byte
	diverged      *DivergedError
}

// abortedTransaction tells from which offset on a producer's records are part of an aborted transaction.
type abortedTransaction struct {
	producerID  int64
	firstOffset int64
}

// responseReader reads a Fetch response of the versions 4 to 13 as Kafka's FetchResponse.json lays it
// out. It reads without kmsg because that allocates an array as long as a response announces it, some
// hundred bytes per byte of the response.
type responseReader struct {
	kbin.Reader
	version int16
}

// readFetchResponse returns the partitions of a response; their records alias body.
func readFetchResponse(body []byte, version int16) (fetchResponse, error) {
	r := &responseReader{Reader: kbin.Reader{Src: body}, version: version}
	out := fetchResponse{version: version, throttled: r.Int32() > 0}
	if version >= 7 {
		if err := kerr.ErrorForCode(r.Int16()); err != nil {
			return out, err
		}
		r.Int32() // session ID
	}
	for range r.arrayLen(6) {
		out.partitions = r.topic(out.partitions)
	}
	if r.tags(); !r.Ok() {
		return out, fmt.Errorf("%w: the fetch response is cut short or malformed", kerr.CorruptMessage)
	}
	return out, nil
}

func (r *responseReader) flexible() bool { return r.version >= 12 }

// topic appends the partitions of the next topic.
func (r *responseReader) topic(out []partitionResponse) []partitionResponse {
	var id uuid.UUID
	var name string
	switch {
	case r.version >= 13:
		id = r.Uuid()
	case r.flexible():
		name = r.CompactString()
	default:
		name = r.String()
	}
	for range r.arrayLen(27) {
		if p := r.partition(); r.Ok() {
			p.topic, p.topicID = name, id
			out = append(out, p)
		}
	}
	r.tags()
	return out
}

func (r *responseReader) partition() partitionResponse {
	p := partitionResponse{
		partition:     r.Int32(),
		errorCode:     r.Int16(),
		highWatermark: r.Int64(),
		lastStable:    r.Int64(),
		logStart:      -1,
	}
	if r.version >= 5 {
		p.logStart = r.Int64()
	}
	for range r.arrayLen(16) {
		p.aborted = append(p.aborted, abortedTransaction{producerID: r.Int64(), firstOffset: r.Int64()})
		r.tags()
	}
	if r.version >= 11 {
		r.Int32() // preferred read replica, which needs a rack (KIP-392)
	}
	if r.flexible() {
		p.records = r.CompactNullableBytes()
	} else {
		p.records = r.NullableBytes()
	}
	if r.flexible() {
		p.diverged = r.diverged()
	}
	return p
}

// divergingEpoch is the tag of a partition's field that says where its log is not the one that was read (KIP-595).
const divergingEpoch = 0

// diverged reads a partition's tagged fields, most of which are of no use here.
func (r *responseReader) diverged() (d *DivergedError) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag := r.Uvarint()
		field := kbin.Reader{Src: r.Span(int(r.Uvarint()))}
		if tag != divergingEpoch {
			continue
		}
		d = &DivergedError{epoch: field.Int32(), end: field.Int64()}
		if !field.Ok() {
			r.Span(-1) // marks the reader as failed
		}
	}
	return d
}

// arrayLen reads the length of an array, and refuses one that the rest of the response is too short
// for when each element takes at least size bytes. A null array has no elements.
func (r *responseReader) arrayLen(size int) int {
	var n int
	if r.flexible() {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int32())
	}
	if n > len(r.Src)/size {
		r.Span(-1) // marks the reader as failed
		return 0
	}
	return max(n, 0)
}

func (r *responseReader) tags() {
	if r.flexible() {
		skipTags(&r.Reader)
	}
}
