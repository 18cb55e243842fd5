package deadtopic

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/firstseen/firstseen/consumer/internal/produce"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/operate"
)

// Headers that say what a published dead letter is. They come behind the message's own.
const (
	headerID        = "firstseen-id"
	headerHandler   = "firstseen-handler"
	headerTenant    = "firstseen-tenant"
	headerReason    = "firstseen-reason"
	headerError     = "firstseen-error"
	headerAttempts  = "firstseen-attempts"
	headerTopic     = "firstseen-topic"
	headerPartition = "firstseen-partition"
	headerOffset    = "firstseen-offset"
	headerTimestamp = "firstseen-timestamp"
)

var diagnosticNames = []string{headerID, headerHandler, headerTenant, headerReason, headerError, headerAttempts,
	headerTopic,
	headerPartition, headerOffset, headerTimestamp}

// timestampFormat is RFC 3339 in milliseconds, which is all that Kafka keeps.
const timestampFormat = "2006-01-02T15:04:05.000Z07:00"

// diagnostics are the headers about a dead letter with its error cut to so many bytes; below 0 there is none.
func diagnostics(l *operate.DeadLetter, errorBytes int) []kafka.Header {
	m := &l.Message
	texts := map[string]string{
		headerID: m.ID.String(), headerHandler: l.Handler, headerTenant: m.Tenant, headerReason: l.Reason,
		headerAttempts: strconv.Itoa(l.Attempts), headerTopic: m.Topic,
		headerPartition: strconv.Itoa(int(m.Partition)),
		headerOffset:    strconv.FormatInt(m.Offset, 10), headerTimestamp: timestamp(m),
	}
	if errorBytes >= 0 {
		texts[headerError] = strings.ToValidUTF8(l.Error[:min(errorBytes, len(l.Error))], "")
	}
	headers := make([]kafka.Header, 0, len(diagnosticNames))
	for _, name := range diagnosticNames {
		if text, ok := texts[name]; ok {
			headers = append(headers, kafka.Header{Key: name, Value: []byte(text)})
		}
	}
	return headers
}

// timestamp is a message's in words, or the number that came where that is no time. Empty: it has none.
func timestamp(m *dedup.Message) string {
	switch {
	case m.RawTimestamp != 0:
		return strconv.FormatInt(m.RawTimestamp, 10)
	case m.Timestamp.IsZero():
		return ""
	}
	return m.Timestamp.UTC().Format(timestampFormat)
}

// cuts are the diagnostics of a letter that is too large, from all of them to the ID alone. A broker does not tell its
// limit to everyone: the error is cut to a quarter again and again.
func cuts(l *operate.DeadLetter) [][]kafka.Header {
	all := [][]kafka.Header{diagnostics(l, len(l.Error))}
	const least = 64 // an error shorter than this says nothing
	for n := len(l.Error) / 4; n >= least; n /= 4 {
		all = append(all, diagnostics(l, n))
	}
	none := diagnostics(l, -1)
	return append(all, none, none[:1])
}

// record is a message byte for byte, with diagnostics in place of those that it may bring from an earlier publishing.
// Its timestamp is the time of publishing: by the old one the topic's retention might delete it at once.
func record(l *operate.DeadLetter, diagnostics []kafka.Header) kafka.Record {
	m := &l.Message
	headers := make([]kafka.Header, 0, len(m.Headers)+len(diagnostics))
	for _, h := range m.Headers {
		if !slices.Contains(diagnosticNames, h.Key) {
			headers = append(headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
	}
	return kafka.Record{Time: time.Now(), Key: produce.Content(m.Key), Value: produce.Content(m.Value),
		Headers: append(headers, diagnostics...)}
}

// smaller is the compression that makes a record smaller, if any does: it may have come compressed.
func smaller(record func() kafka.Record) kafka.Compression {
	size := func(c kafka.Compression) int64 {
		set := protocol.RecordSet{Version: 2, Attributes: protocol.Attributes(c),
			Records: kafka.NewRecordReader(record())}
		n, err := set.WriteTo(io.Discard)
		if err != nil {
			return 1 << 62
		}
		return n
	}
	if size(kafka.Zstd) < size(0) {
		return kafka.Zstd
	}
	return 0
}
