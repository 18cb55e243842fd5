package login

import (
	"encoding/binary"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ForeignError is an answer that is none of Kafka's.
type ForeignError struct {
	// First are its first bytes, 8 at most.
	First []byte
}

func (e *ForeignError) Error() string { return "that is no answer of Kafka's" }

const (
	question   = 7 // the number of each request
	mostAnswer = 1 << 20
)

// Ask sends a request over a connection on which nothing else is under way, and reads its answer.
func Ask(conn io.ReadWriter, clientID string, request kmsg.Request, answer kmsg.Response) error {
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	if _, err := conn.Write(format.AppendRequest(nil, request, question)); err != nil {
		return err
	}
	head := make([]byte, 8)
	if n, err := io.ReadFull(conn, head); err != nil {
		if n > 0 {
			return &ForeignError{head[:n]}
		}
		return err
	}
	size := binary.BigEndian.Uint32(head)
	if size < 4 || size > mostAnswer || binary.BigEndian.Uint32(head[4:]) != question {
		return &ForeignError{head}
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	answer.SetVersion(request.GetVersion())
	return answer.ReadFrom(body)
}
