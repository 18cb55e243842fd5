package dedup

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// statement is one whose rows nobody reads. Its parameters are of the types *array and *int32, nil for a null.
type statement struct {
	sql  string
	args []any
}

// streamedBytes is from where on statements are written to the connection from where their parameters are: pgx makes
// up to four copies of those.
const streamedBytes = 256 << 10

// run runs statements in one round trip, up to the first that fails.
func run(ctx context.Context, conn *pgx.Conn, statements ...statement) error {
	if streams(conn, statements...) {
		return stream(ctx, conn.PgConn(), statements...)
	}
	q := &pgx.Batch{}
	for i := range statements {
		q.Queue(statements[i].sql, statements[i].parameters()...)
	}
	return conn.SendBatch(ctx, q).Close()
}

// streams says whether statements are streamed on a connection. One that is to use no extended protocol never does.
func streams(conn *pgx.Conn, statements ...statement) bool {
	size := 0
	for i := range statements {
		size += statements[i].size()
	}
	return size >= streamedBytes && conn.Config().DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol
}

func (s *statement) size() (n int) {
	for _, arg := range s.args {
		if a, ok := arg.(*array); ok {
			n += a.size()
		}
	}
	return n
}

func (s *statement) parameters() []any {
	args := make([]any, len(s.args))
	for i, arg := range s.args {
		args[i] = arg
		if a, ok := arg.(*array); ok {
			args[i] = a.parameter()
		}
	}
	return args
}

// stream runs statements by the extended query protocol (Postgres manual, "Message Flow"), unnamed ones and so without
// a trace in the session. Where they can't be sent, or the answer does not come, the connection is closed.
func stream(ctx context.Context, pg *pgconn.PgConn, statements ...statement) error {
	if pg.IsBusy() || pg.IsClosed() {
		return pg.Exec(ctx, "").Close() // says so
	}
	err := write(ctx, pg.Conn(), statements)
	var answer error
	for ready := false; err == nil && !ready; {
		var m pgproto3.BackendMessage
		if m, err = pg.ReceiveMessage(ctx); err != nil {
			break
		}
		switch m := m.(type) {
		case *pgproto3.ErrorResponse:
			answer = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			ready = true
		}
	}
	if err == nil {
		return answer
	}
	closeMidway(pg)
	switch {
	case answer != nil: // the last that it said
		return answer
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// closeMidway closes a connection on which no more can be said.
func closeMidway(pg *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), db.RollbackTimeout)
	defer cancel()
	db.Sever(ctx, pg)
	_ = pg.Close(ctx)
}

// write sends statements. Large pieces go to the connection as they are.
func write(ctx context.Context, conn net.Conn, statements []statement) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })
	w := bufio.NewWriterSize(conn, largeBytes)
	var err error
	for i := 0; i < len(statements) && err == nil; i++ {
		err = statements[i].writeTo(w)
	}
	if err == nil {
		var sync []byte
		sync, _ = (&pgproto3.Sync{}).Encode(nil)
		_, _ = w.Write(sync)
		err = w.Flush()
	}
	if !stop() && err == nil {
		err = ctx.Err() // the deadline may have been set since
	}
	return err
}

func (s *statement) writeTo(w *bufio.Writer) error {
	parse := pgproto3.Parse{Query: s.sql}
	values := make([]*pieces, len(s.args))
	length := len("\x00\x00") + 4*2 + 4*len(s.args)
	for i, arg := range s.args {
		var oid uint32
		values[i], oid = encoded(arg)
		parse.ParameterOIDs = append(parse.ParameterOIDs, oid)
		if values[i] != nil {
			length += values[i].size()
		}
	}
	head, err := parse.Encode(nil)
	if err != nil {
		return err
	}
	head = append(head, 'B')
	head = binary.BigEndian.AppendUint32(head, uint32(4+length))
	head = append(head, 0, 0)       // the unnamed portal of the unnamed statement
	head = append(head, 0, 1, 0, 1) // one format for all parameters: binary
	head = binary.BigEndian.AppendUint16(head, uint16(len(values)))
	_, _ = w.Write(head) // what fails fails from then on
	for _, v := range values {
		if v == nil {
			_ = binary.Write(w, binary.BigEndian, uint32(nullLength))
			continue
		}
		_ = binary.Write(w, binary.BigEndian, uint32(v.size()))
		if err := v.writeTo(w); err != nil {
			return err
		}
	}
	tail, err := (&pgproto3.Execute{}).Encode([]byte{0, 0}) // results in no format of their own
	_, _ = w.Write(tail)
	return err
}

// encoded is a parameter in its binary format; nil: null.
func encoded(arg any) (*pieces, uint32) {
	if a, ok := arg.(*array); ok {
		return a.finish(), a.oid()
	}
	number := arg.(*int32)
	if number == nil {
		return nil, pgtype.Int4OID
	}
	return &pieces{buf: binary.BigEndian.AppendUint32(nil, uint32(*number))}, pgtype.Int4OID
}
